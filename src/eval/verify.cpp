// The engine's answers against a linear scan that shares no code with the engine.
//
// Everything is widened to float64 and written as metric.hpp defines it; additions run in the order
// that metric.hpp promises (32 interleaved sums, then halves onto halves), so that not only the ids
// but the bits of the distances must agree. Slow on purpose: a sample of rows is enough to find
// what is wrong everywhere.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gigaknn/eval.hpp>

#include "core/half.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "core/sample.hpp"
#include "io/validate.hpp"

namespace gigaknn {
namespace {

template <class Term>
double sum_in_order(std::int64_t d, const Term& term) {
  constexpr std::int64_t lanes = 32;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= d; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] += term(i + lane);
  }
  for (std::int64_t lane = 0; i + lane < d; ++lane) sums[lane] += term(i + lane);
  for (std::int64_t half = lanes / 2; half >= 1; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

// One row in float64. An unusable one (NaN, infinity, a zero row under cosine) is farthest from
// everything.
struct WideRow {
  std::vector<double> values;
  double squared_norm = 0;
  bool usable = true;

  void read(MatrixRef matrix, std::int64_t row, Metric metric) {
    const std::int64_t d = matrix.cols;
    values.resize(static_cast<std::size_t>(d));
    switch (matrix.dtype) {
      case DType::f32:
        std::copy_n(matrix.row<float>(row), d, values.begin());
        break;
      case DType::u8:
        std::copy_n(matrix.row<std::uint8_t>(row), d, values.begin());
        break;
      case DType::i8:
        std::copy_n(matrix.row<std::int8_t>(row), d, values.begin());
        break;
      case DType::bf16:
        std::transform(matrix.row<std::uint16_t>(row), matrix.row<std::uint16_t>(row) + d,
                       values.begin(), float_of_bf16);
        break;
      default:
        std::transform(matrix.row<std::uint16_t>(row), matrix.row<std::uint16_t>(row) + d,
                       values.begin(), float_of_half);
    }
    usable = std::all_of(values.begin(), values.end(),
                         [](double value) { return std::isfinite(value); });
    if (metric != Metric::cosine) return;
    squared_norm = sum_in_order(d, [this](std::int64_t i) { return values[i] * values[i]; });
    usable = usable && squared_norm > 0;
  }
};

double hamming_or_jaccard(const std::vector<double>& x, const std::vector<double>& y,
                          Metric metric) {
  double different = 0;
  double common = 0;
  double in_either = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto a = static_cast<unsigned>(x[i]);
    const auto b = static_cast<unsigned>(y[i]);
    different += std::popcount(a ^ b);
    common += std::popcount(a & b);
    in_either += std::popcount(a | b);
  }
  if (metric == Metric::hamming) return different;
  return in_either == 0 ? 0.0 : 1.0 - common / in_either;
}

double value_of_pair(const WideRow& left, const WideRow& right, Metric metric) {
  const auto d = static_cast<std::int64_t>(left.values.size());
  const double* x = left.values.data();
  const double* y = right.values.data();
  const auto difference = [x, y](std::int64_t i) { return x[i] - y[i]; };
  const auto squared = [](double value) { return value * value; };
  const auto product = [x, y](std::int64_t i) { return x[i] * y[i]; };
  const auto squared_difference = [&](std::int64_t i) { return squared(difference(i)); };
  switch (metric) {
    case Metric::l2:
      return sum_in_order(d, squared_difference);
    case Metric::euclidean:
      return std::sqrt(sum_in_order(d, squared_difference));
    case Metric::inner_product:
      return sum_in_order(d, product);
    case Metric::cosine:
      return 1.0 - sum_in_order(d, product) / std::sqrt(left.squared_norm * right.squared_norm);
    case Metric::l1:
      return sum_in_order(d, [&](std::int64_t i) { return std::fabs(difference(i)); });
    case Metric::linf: {
      double largest = 0;
      for (std::int64_t i = 0; i < d; ++i) largest = std::max(largest, std::fabs(difference(i)));
      return largest;
    }
    case Metric::chi2:
      return sum_in_order(d, [&](std::int64_t i) {
        return x[i] + y[i] == 0 ? 0.0 : squared_difference(i) / (x[i] + y[i]);
      });
    case Metric::hellinger:
      return std::sqrt(sum_in_order(
                 d, [&](std::int64_t i) { return squared(std::sqrt(x[i]) - std::sqrt(y[i])); })) /
             std::sqrt(2.0);
    case Metric::hamming:
    case Metric::jaccard:
      break;
  }
  return hamming_or_jaccard(left.values, right.values, metric);
}

// The k nearest of all entries offered: by value, then by id.
class NearestList {
 public:
  NearestList(std::int64_t k, Metric metric) : k_(static_cast<std::size_t>(k)), metric_(metric) {}

  void offer(float value, std::int64_t id) {
    const std::pair<float, std::int64_t> entry{larger_is_nearer(metric_) ? -value : value, id};
    if (heap_.size() == k_ && !(entry < heap_.front())) return;
    heap_.push_back(entry);
    std::push_heap(heap_.begin(), heap_.end());
    if (heap_.size() <= k_) return;
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
  }

  /// Entries of the list at `ids`, `distances` that are not what was found; the tail must be empty.
  std::int64_t count_differences(const RowId* ids, const float* distances) {
    std::sort(heap_.begin(), heap_.end());
    const float infinity = std::numeric_limits<float>::infinity();
    std::int64_t differences = 0;
    for (std::size_t i = 0; i < k_; ++i) {
      const auto [key, id] = i < heap_.size() ? heap_[i] : std::pair{infinity, value_of(no_row)};
      const float value =
          (larger_is_nearer(metric_) ? -key : key) + 0.0f;  // -0 and 0 are one value
      const bool same = value_of(ids[i]) == id && std::bit_cast<std::uint32_t>(distances[i]) ==
                                                      std::bit_cast<std::uint32_t>(value);
      differences += same ? 0 : 1;
    }
    return differences;
  }

 private:
  std::size_t k_;
  Metric metric_;
  std::vector<std::pair<float, std::int64_t>> heap_;
};

struct Scan {
  const Neighbors& result;
  MatrixRef queries;
  MatrixRef base;
  Metric metric;
  bool self_excluded;

  /// Differences in the lists of these query rows. Each base row is widened once for all of them.
  std::int64_t count_differences(const std::int64_t* rows, std::int64_t count,
                                 const RunOptions& run) const {
    std::vector<WideRow> wide(static_cast<std::size_t>(count));
    std::vector<NearestList> lists(static_cast<std::size_t>(count), NearestList(result.k, metric));
    for (std::int64_t i = 0; i < count; ++i) wide[i].read(queries, rows[i], metric);
    const float infinity = std::numeric_limits<float>::infinity();
    const float farthest = larger_is_nearer(metric) ? -infinity : infinity;
    WideRow other;
    for (std::int64_t id = 0; id < base.rows; ++id) {
      if (id % 4096 == 0) check_cancelled(run);
      other.read(base, id, metric);
      for (std::int64_t i = 0; i < count; ++i) {
        if (self_excluded && rows[i] == id) continue;
        const bool usable = wide[i].usable && other.usable;
        lists[i].offer(
            usable ? static_cast<float>(value_of_pair(wide[i], other, metric)) : farthest, id);
      }
    }
    std::int64_t differences = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      differences += lists[i].count_differences(result.ids.data() + rows[i] * result.k,
                                                result.distances.data() + rows[i] * result.k);
    }
    return differences;
  }
};

void require_arguments(const Scan& scan, std::int64_t sample) {
  const auto& [result, queries, base, metric, self_excluded] = scan;
  require(result.queries == queries.rows, Fault::invalid_argument, "the result has ",
          result.queries, " rows, the queries ", queries.rows, ": they must be of the same set");
  require(result.distances.size() == result.ids.size(), Fault::invalid_argument, "the result has ",
          result.ids.size(), " ids and ", result.distances.size(),
          " distances: without distances there is nothing to verify");
  require(queries.cols == base.cols && queries.dtype == base.dtype, Fault::invalid_argument,
          "queries are ", name_of(queries.dtype), " with ", queries.cols, " columns, the base is ",
          name_of(base.dtype), " with ", base.cols, ": they must agree");
  require(holds_vectors(base.dtype), Fault::invalid_argument,
          "vectors must be f32, f16, bf16, u8 or i8, got ", name_of(base.dtype));
  require(!on_bits(metric) || base.dtype == DType::u8, Fault::invalid_argument, "metric ",
          name_of(metric), " takes packed bits, rows of u8, got ", name_of(base.dtype));
  require(!self_excluded || queries.rows <= base.rows, Fault::invalid_argument, "the queries have ",
          queries.rows, " rows, the base ", base.rows, ": row i cannot be row i of the base");
  require(sample >= 1, Fault::invalid_argument, "sample is ", sample, ", must be at least 1");
  require(result.k >= 1, Fault::invalid_argument, "the result has no neighbours to verify");
  require_columns(queries, "the queries");
  require_columns(base, "the base");
}

}  // namespace

Verification verify_sample(const Neighbors& result, MatrixRef queries, MatrixRef base,
                           Metric metric, bool self_excluded, std::int64_t sample,
                           std::uint64_t seed, const RunOptions& run) {
  const Scan scan{result, queries, base, metric, self_excluded};
  require_arguments(scan, sample);
  const std::vector<std::int64_t> rows = sample_rows(queries.rows, sample, seed);
  Verification verification;
  verification.rows = static_cast<std::int64_t>(rows.size());
  verification.entries = verification.rows * result.k;
  std::atomic<std::int64_t> different{0};
  std::atomic<std::int64_t> done{0};
  // 8 rows a task: widening a base row then costs little beside comparing it.
  parallel_for(run, verification.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    different += scan.count_differences(rows.data() + begin, end - begin, run);
    done += end - begin;
    if (run.progress) run.progress->report("verify", done, verification.rows);
  });
  verification.different = different;
  return verification;
}

}  // namespace gigaknn
