// Rows gigabytes apart and numbers that float32 does not hold, on the GPU, real or emulated.
#include "ops/conformance.hpp"

#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "ops/gpu/gpu_ops.hpp"
#include "ops/gpu/list_memory.hpp"
#include "ops/gpu/pair_keys.hpp"
#include "ops/gpu/product_codes.hpp"
#include "ops/gpu/scan.hpp"
#include "ops/gpu/stream_rows.hpp"
#include "ops/gpu/sum_by_label.hpp"
#include "simt/device.hpp"

namespace gigaknn {
namespace {

using namespace test;

Devices device() { return {gpu::devices().front()}; }

// Some rows of a base of gigabytes as kernels see it: its other pages are zeros that take no memory. The emulated device's kernels read
// the host's.
class FarBase {
 public:
  static constexpr std::int64_t count = 200;

  /// `n` rows `pitch` bytes apart, of which the first and the last ones are written.
  FarBase(Metric metric, DType dtype, std::int64_t n, std::int64_t pitch)
      : c_{.metric = metric, .dtype = dtype, .kind = Kind::clustered, .n = count, .q = 20, .d = 20, .k = 5}, rows_(c_),
        memory_(n * pitch), norms_(n * 8), marks_(n) {
    const reference::Rows facts(rows_.base, metric);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = i < 20 ? i : n - count + i;
      numbers.push_back(static_cast<LocalRow>(row));
      std::memcpy(memory_.get() + row * pitch, rows_.base.ref().row_bytes(i), static_cast<std::size_t>(c_.d) * size_of(dtype));
      norms_.get<double>()[row] = facts.square_norm[static_cast<std::size_t>(i)];
    }
    view = {memory_.get(), n, pitch, static_cast<std::int32_t>(c_.d), dtype, norms_.get<double>(), marks_.get<std::uint8_t>()};
  }

  std::vector<LocalRow> numbers;  // of the rows written, ascending
  gpu::RowsView view;
  MatrixRef rows() const { return rows_.base; }
  MatrixRef queries() const { return rows_.queries; }
  std::int64_t k() const { return c_.k; }

  void expect_found(const simt::DeviceBuffer<PackedNeighbor>& found, const char* way) const {
    const std::vector<PackedNeighbor> lists = found.download();
    const Neighbors want = reference::nearest_rows(queries(), rows(), c_.metric, k());
    for (std::size_t i = 0; i < lists.size(); ++i) {
      EXPECT_EQ(row_of(lists[i]), numbers[static_cast<std::size_t>(value_of(want.ids[i]))]) << way << ": " << c_;
    }
  }

 private:
  Case c_;
  Problem rows_;
  LazyZeros memory_, norms_, marks_;
};

// Offsets of more than 32 bits and numbers that float32 does not hold, wherever kernels have them.
TEST(GpuSearch, far_rows_are_read_and_named) {
  if (!gpu::emulated()) return;
  gpu::multiplies_by_warpgroups(0);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (const auto& [n, pitch] : {std::pair<std::int64_t, std::int64_t>{FarBase::count, (32 << 20) + 16}, {(1 << 24) + 1000, 512}}) {
    for (const auto& [metric, dtype] :
         {Subject{Metric::l2, DType::f32}, {Metric::l2, DType::u8}, {Metric::l1, DType::u8}, {Metric::chi2, DType::f32}}) {
      const FarBase base(metric, dtype, n, pitch);
      const simt::OwnStream stream(0);
      gpu::DeviceRows queries(base.queries(), stream);
      find_facts(queries, metric, stream);
      std::vector<LocalRow> scattered;  // as places are
      for (std::int64_t i = 0; i < FarBase::count; ++i) scattered.push_back(base.numbers[at(i * 77 % FarBase::count)]);
      const simt::DeviceBuffer<LocalRow> order(std::span<const LocalRow>(scattered), stream);
      const std::int64_t q = base.queries().rows;
      const simt::DeviceBuffer<PackedNeighbor> found(at(q * base.k()), stream);
      gpu::SearchJob job{.base = base.view,
                         .queries = queries.view(),
                         .base_codes = {},
                         .query_codes = {},
                         .metric = metric,
                         .first_self = -1,
                         .places = {order.get(), 0, FarBase::count},
                         .rule = {.metric = metric, .far = queries.view().far},
                         .finished = true,
                         .end_list = q};
      const auto search = [&](const char* way, const std::function<void(const gpu::Survivors&)>& take) {
        const gpu::ListMemory lists(q, base.k(), FarBase::count, !job.finished, stream);
        set_bounds(job.rule, no_neighbor, lists.view, stream);
        take(lists.view);
        finish_lists(lists.view, 1, found.get(), stream);
        base.expect_found(found, way);
      };
      search("all are computed", [&](const gpu::Survivors& lists) { take_all(job, 1, lists, stream); });
      if (n == FarBase::count && gpu::can_stream_rows(metric, dtype, base.view.cols)) {
        search("streamed", [&](const gpu::Survivors& lists) { stream_rows(job, 1, lists, stream); });
      }
      std::optional<gpu::ProductCodes> codes;
      std::optional<gpu::ProductCodes::Queries> query_codes;
      if (gpu::ProductCodes::suits(metric, base.view.cols)) {
        codes.emplace(base.view, metric, order.get(), FarBase::count, stream);
        query_codes = codes->encode_queries(queries.view(), stream);
        job.base_codes = codes->view();
        job.query_codes = query_codes->codes;
        job.rule.form = gpu::LimitForm::at_least;
        job.rule.terms = query_codes->terms.get();
        job.finished = codes->kind() != gpu::ProductKind::bf16;
      } else {
        job.rule.form = gpu::LimitForm::at_most;
        job.rule.error = gpu::difference_error(metric, dtype, base.view.cols);
        job.rule.slack = gpu::difference_slack(metric, base.view.cols);
        job.finished = gpu::differences_are_exact(metric, dtype);
      }
      search("scanned", [&](const gpu::Survivors& lists) {
        for (job.places.begin = 0; job.places.begin < FarBase::count; job.places.begin = job.places.end) {
          job.places.end = job.places.begin == 0 ? 70 : FarBase::count;
          codes ? scan_products(job, lists, stream) : scan_differences(job, lists, stream);
          settle(job, job.places.end == FarBase::count, lists, stream);
        }
      });
      if (n > FarBase::count) continue;
      const simt::DeviceBuffer<float> keys(at(q * n), stream);
      pair_keys(queries.view(), base.view, {.count = q * n, .width = n, .with_all = true}, metric, keys.get(), stream);
      const std::vector<float> computed = keys.download();
      const reference::Rows xs(base.queries(), metric), ys(base.rows(), metric);
      for (std::int64_t i = 0; i < q * n; ++i) EXPECT_EQ(computed[at(i)], reference::distance(xs, i / n, ys, i % n, metric)) << i;
      const std::vector<RowId> labels(at(n), RowId{0});
      std::vector<double> sums(at(base.view.cols)), want(sums.size());
      std::vector<std::int64_t> counts(1);
      gpu::sum_by_label(base.view, nullptr, LabelRuns(labels.data(), n, 1), sums.data(), stream);
      device().front()->sum_by_label(base.rows(), nullptr, labels.data(), 1, want.data(), counts.data(), {});
      EXPECT_EQ(sums, want) << name_of(metric);
    }
  }
}
TEST(GpuSearch, far_rows_of_the_host_are_answered_as_near_ones) {
  for (const DType dtype : {DType::f32, DType::u8}) check_far_rows(dtype, device());
}
#if !defined(GIGAKNN_SANITIZED) && !defined(GIGAKNN_TINY_TILES)
TEST(GpuSelection, far_columns_have_their_numbers) {
  check_select_far_columns(device());
}
#endif

}  // namespace
}  // namespace gigaknn
