// Queries ready to be compared with codes, and scored in full where they survive.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/cpu/code_bounds.hpp"
#include "ops/cpu/code_space.hpp"
#include "ops/cpu/scorer.hpp"

namespace gigaknn::cpu {

struct CodedQueries {
  std::int64_t count = 0;
  CodedRows coded;
  std::vector<std::int64_t> query;  ///< [count] row of the query matrix, or position in the base (self)
  std::vector<std::int64_t> list;   ///< [count] its list
  QueryBounds terms;                ///< [count]
  std::vector<ScoredQuery> scored;  ///< [count]
  std::vector<float> widened;       ///< [count, d] where rows are widened
  std::vector<float> scratch;       ///< [d]
};

/// What turns rows into coded queries.
struct QueryCoder {
  const CodeSpace& space;
  const CodeBounds& bounds;
  const Scorer& scorer;
  const PairDistance& pair;
};

/// Queries [begin, end) that are not far, those of one region side by side; `list` counts from `begin`.
void encode_queries(const QueryCoder& coder, MatrixRef queries, const RowFacts& facts, std::int64_t begin,
                    std::int64_t end, CodedQueries& out);

}  // namespace gigaknn::cpu
