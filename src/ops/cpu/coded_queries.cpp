#include "ops/cpu/coded_queries.hpp"

#include <algorithm>
#include <utility>

namespace gigaknn::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

void encode_queries(const QueryCoder& coder, MatrixRef queries, const RowFacts& facts, std::int64_t begin,
                    std::int64_t end, CodedQueries& out) {
  const std::int64_t stride = coder.space.stride();
  const PairDistance& pair = coder.pair;
  for (std::int64_t i = begin; i < end; ++i) {
    if (!facts.far[at(i)]) out.query.push_back(i);
  }
  out.count = static_cast<std::int64_t>(out.query.size());
  CodedRows given;
  given.resize(end - begin, stride);
  coder.space.encode(queries, facts, begin, end, true, given, 0);
  // Queries of one region side by side: their survivors are rows that stand together.
  const auto by_region = [&](std::int64_t a, std::int64_t b) { return given.regions[at(a - begin)] < given.regions[at(b - begin)]; };
  if (out.count == end - begin && std::is_sorted(out.query.begin(), out.query.end(), by_region)) {
    out.coded = std::move(given);
  } else {
    std::stable_sort(out.query.begin(), out.query.end(), by_region);
    out.coded.resize(out.count, stride);
    for (std::int64_t i = 0; i < out.count; ++i) out.coded.copy_row(given, out.query[at(i)] - begin, i);
  }
  out.scratch.resize(at(pair.d()));
  if (pair.widens()) out.widened.resize(at(out.count * pair.d()));
  for (std::int64_t i = 0; i < out.count; ++i) {
    const std::int64_t query = out.query[at(i)];
    out.list.push_back(query - begin);
    const void* readable =
        pair.readable(queries.row_bytes(query), pair.widens() ? out.widened.data() + i * pair.d() : nullptr);
    out.scored.push_back(
        coder.scorer.query(readable, facts.squared_norms.empty() ? 0 : facts.squared_norms[at(query)]));
  }
  out.terms = coder.bounds.start(out.coded, out.count);
}

}  // namespace gigaknn::cpu
