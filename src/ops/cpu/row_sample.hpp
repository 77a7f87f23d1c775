// A sample of the base as floats, and what it tells of the whole: spaces are fitted to it and filters chosen by it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "ops/cpu/pair_distance.hpp"

namespace gigaknn::cpu {

struct RowSample {
  std::int64_t rows = 0;
  std::int64_t d = 0;
  std::vector<float> x;  ///< [rows, d]

  const float* row(std::int64_t i) const { return x.data() + i * d; }
};

/// Writes row i of the base as a space sees it to x [d]; scratch [d].
using LoadRow = std::function<void(std::int64_t i, float* x, float* scratch)>;

/// Some thousand rows that are not far, in no order: each part of it is a sample too, however the base is sorted.
RowSample draw_sample(MatrixRef base, const RowFacts& facts, const LoadRow& load, const RunOptions& run);
/// Takes out the rows, a tenth at the most, that lie eight times as far from the mean as half of all: there a few rows would say where
/// the others are looked for, whose distances they do not change.
void drop_outliers(RowSample& sample);
/// Bytes of `floats` a row for each row of such a sample.
std::size_t sample_bytes(std::int64_t n, std::int64_t d, std::int64_t floats);

/// The distance within which a query has k of n rows, from its distances to a sample (sorted here).
double radius_of_rank(std::vector<double>& distances, double k, double n);

/// Cycles that one surviving pair costs: a read from L2 or memory, the distance in full, the lists (Zen 4).
double survivor_cycles(DType dtype, std::int64_t d);

}  // namespace gigaknn::cpu
