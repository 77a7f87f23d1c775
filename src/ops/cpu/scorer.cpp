#include "ops/cpu/scorer.hpp"

#include <algorithm>

namespace gigaknn::cpu {
namespace {

// NaN, which screens nothing out, where products of elements could leave float32's normal range.
float safe_inverse(double squared_norm) {
  const double norm = std::sqrt(squared_norm);
  return norm > 1e-12 && norm < 1e12 ? static_cast<float>(1 / norm) : std::nanf("");
}

}  // namespace

Scorer::Scorer(MatrixRef base, const RowFacts& facts, const PairDistance& pair)
    : base_(base), facts_(&facts), pair_(pair) {
  const Metric metric = pair.metric();
  screens_ = is_floating(base.dtype) && (metric == Metric::l2 || metric == Metric::euclidean || metric == Metric::cosine ||
                        metric == Metric::l1);
  // The fast kernels: at most d / 4 + 16 terms in a chain (Higham 2002, section 3.1).
  relative_error_ = static_cast<float>((static_cast<double>(pair.d()) / 4 + 24) * 0x1p-24);
  // Each product and sum may lose half the smallest subnormal as well.
  absolute_error_ = static_cast<float>(static_cast<double>(pair.d() + 16) * 0x1p-147);
  prefetch_bytes_ = std::min<std::int64_t>(base.cols * static_cast<std::int64_t>(size_of(base.dtype)), 1024);
  if (screens_ && metric == Metric::cosine) {
    inverse_norms_.resize(static_cast<std::size_t>(base.rows));
    for (std::size_t i = 0; i < inverse_norms_.size(); ++i) {
      inverse_norms_[i] = safe_inverse(facts.squared_norms[i]);
    }
  }
}

ScoredQuery Scorer::query(const void* readable, double squared_norm) const {
  ScoredQuery query{.row = readable, .squared_norm = squared_norm};
  if (!screens_) return query;
  if (pair_.metric() == Metric::cosine) query.inverse_norm = safe_inverse(squared_norm);
  return query;
}

bool Scorer::surely_farther(const ScoredQuery& query, const float* row, LocalRow id, float limit) const {
  const auto* x = static_cast<const float*>(query.row);
  const RowKernels& kernels = pair_.kernels();
  switch (pair_.metric()) {
    case Metric::l2:
    case Metric::euclidean: {
      const float square = pair_.metric() == Metric::l2 ? limit : limit * limit * 1.000001f;
      // A sum that overflowed proves nothing against a limit that is nearly as large.
      return square <= 0x1p127f &&
             kernels.fast_l2_f32(x, row, pair_.d()) * (1 - relative_error_) > square + absolute_error_;
    }
    case Metric::l1:
      return limit <= 0x1p127f &&
             kernels.fast_l1_f32(x, row, pair_.d()) * (1 - relative_error_) > limit + absolute_error_;
    case Metric::cosine: {
      const float cosine = kernels.fast_dot_f32(x, row, pair_.d()) * query.inverse_norm * inverse_norms_[id];
      return 1 - cosine - (relative_error_ + 0x1p-20f) > limit;
    }
    default: return false;
  }
}

PackedNeighbor Scorer::score(const ScoredQuery& query, LocalRow row, PackedNeighbor bound,
                             float* scratch) const {
  const void* readable = pair_.readable(base_.row_bytes(row), scratch);
  if (screens_ && bound != no_neighbor &&
      surely_farther(query, static_cast<const float*>(readable), row, key_of(bound))) {
    return no_neighbor;
  }
  const double squared = facts_->squared_norms.empty() ? 0 : facts_->squared_norms[row];
  return pack_neighbor(pair_.key(query.row, readable, query.squared_norm, squared), row);
}

}  // namespace gigaknn::cpu
