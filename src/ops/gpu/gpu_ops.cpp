#include "ops/gpu/gpu_ops.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/canonical.hpp"
#include "ops/gpu/encode_products.hpp"
#include "ops/gpu/gpu_cells.hpp"
#include "ops/gpu/gpu_codes.hpp"
#include "ops/gpu/gpu_growth.hpp"
#include "ops/gpu/gpu_kmeans.hpp"
#include "ops/gpu/gpu_rows.hpp"
#include "ops/gpu/pair_keys.hpp"
#include "ops/gpu/read_lists.hpp"
#include "ops/gpu/select_rows.hpp"
#include "ops/gpu/unusable_rows.hpp"
#include "ops/join_cells.hpp"
#include "ops/list_writer.hpp"
#include "ops/merge_lists.hpp"
#include "ops/part_sums.hpp"
#include "ops/requests.hpp"

namespace gigaknn::gpu {
namespace {

constexpr std::size_t select_batch_bytes = std::size_t{1} << 30;
#ifdef GIGAKNN_TINY_TILES
constexpr std::size_t pair_batch_bytes = 256;
#else
constexpr std::size_t pair_batch_bytes = 16 << 20;  // of rows, and what is found, at a time
#endif
constexpr std::size_t encode_batch_bytes = std::size_t{256} << 20;

class GpuOps : public Ops {
 public:
  explicit GpuOps(int device) : device_(device) {}

  std::string name() const override { return join_text(simt::device_kind(), ':', device_); }
  std::string isa() const override { return simt::device_name(device_); }

  std::unique_ptr<PreparedRows> prepare(MatrixRef base, Metric metric, const PrepareHints& hints,
                                        const RunOptions& run) const override {
    require_base(base, metric);
    const std::size_t needed = device_bytes_needed(base.rows, base.cols, base.dtype, metric, hints);
    require(run.device_memory_bytes == 0 || needed <= run.device_memory_bytes, Fault::out_of_memory,
            "a device budget of ", run.device_memory_bytes, " bytes is too small: ", base.rows,
            " rows need ", needed);
    return std::make_unique<GpuRows>(device_, base, metric, hints, run);
  }

  std::size_t bytes_needed(std::int64_t n, std::int64_t, DType, Metric, const PrepareHints& hints,
                           int) const override {
    return GpuRows::host_bytes_needed(n, hints);
  }
  std::size_t device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric,
                                  const PrepareHints& hints) const override {
    return GpuRows::device_bytes_needed(n, d, dtype, metric, hints);
  }

  MemorySpace space() const override { return MemorySpace::device; }
  UnusableRows unusable_rows(MatrixRef rows) const override { return find_unusable_rows(rows); }
  std::size_t device_memory() const override { return simt::free_memory(device_); }

  void nearest_rows(const PreparedRows& prepared, MatrixRef queries, std::int64_t k,
                    NeighborsOut out, const RunOptions& run,
                    std::int64_t first_self) const override {
    require_queries(prepared, queries, k);
    static_cast<const GpuRows&>(prepared).nearest(queries, k, out, first_self, run);
  }

  void self_nearest(const PreparedRows& prepared, std::int64_t k, NeighborsOut out,
                    const RunOptions& run) const override {
    require_k(k);
    static_cast<const GpuRows&>(prepared).self_nearest(k, out, run);
  }

  std::unique_ptr<PreparedCells> prepare_cells(MatrixRef base, const CellRows& cells, Metric metric, const PrepareHints& hints,
                                               const RunOptions& run) const override {
    require_base(base, metric);
    require_cells(base, cells);
    const std::size_t needed = GpuCells::device_bytes_needed(base.rows, base.cols, base.dtype, cells.count(), hints);
    require(run.device_memory_bytes == 0 || needed <= run.device_memory_bytes, Fault::out_of_memory,
            "a device budget of ", run.device_memory_bytes, " bytes is too small: ", base.rows,
            " rows in cells need ", needed);
    return std::make_unique<GpuCells>(device_, base, cells, metric, hints, run);
  }
  std::size_t cell_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric, std::int64_t cells,
                                const PrepareHints& hints, int) const override {
    return GpuCells::host_bytes_needed(n, cells, hints) + (hints.self ? join_bytes(hints.batch, d, dtype, hints.k) : 0);
  }

  void nearest_in_cells(const PreparedCells& prepared, MatrixRef queries, const RowId* probes,
                        std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run,
                        const RowId* self, RowMask allowed) const override {
    require_probing(prepared, queries, probes, width, k, allowed, run);
    static_cast<const GpuCells&>(prepared).nearest(queries, probes, width, k, out, self, allowed, run);
  }

  void join_cells(const PreparedCells& prepared, std::span<const RowId> rows, const RowId* own, const RowId* probes,
                  std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run) const override {
    require_joining(prepared, rows, own, probes, width, k, run);
    const auto& cells = static_cast<const GpuCells&>(prepared);
    if (cells.join(rows, own, probes, width, k, out, run)) return;
    join_by_search(*this, prepared, prepared.bytes(), cells.base(), rows, own, probes, width, k, out, run);
  }

  void encode_products(MatrixRef rows, MatrixRef codewords, std::uint8_t* codes, const RunOptions& run) const override {
    require_encoding(rows, codewords);
    const std::int64_t part_dims = codewords.cols, m = rows.cols / part_dims;
    const std::size_t row_bytes = static_cast<std::size_t>(rows.cols) * sizeof(float);
    const std::size_t word_bytes = static_cast<std::size_t>(part_dims) * sizeof(float);
    const std::size_t all_word_bytes = static_cast<std::size_t>(codewords.rows) * word_bytes;
    const std::size_t a_row = row_bytes + static_cast<std::size_t>(m);
    const std::size_t needed = all_word_bytes + a_row + 3 * 256;
    require(run.device_memory_bytes == 0 || needed <= run.device_memory_bytes, Fault::out_of_memory, "a device budget of ",
            run.device_memory_bytes, " bytes is too small: encoding a row needs ", needed);
    const std::size_t room =
        run.device_memory_bytes == 0 ? encode_batch_bytes : std::min(encode_batch_bytes, run.device_memory_bytes - (needed - a_row));
    const std::int64_t batch = std::max<std::int64_t>(1, static_cast<std::int64_t>(room / a_row));
    const simt::OwnStream stream(device_);
    const simt::DeviceBuffer<float> words(static_cast<std::size_t>(codewords.rows * part_dims), stream);
    simt::copy_rows(words.get(), word_bytes, codewords.data, static_cast<std::size_t>(codewords.stride_bytes), word_bytes,
                    static_cast<std::size_t>(codewords.rows), stream);
    for (std::int64_t first = 0; first < rows.rows; first += batch) {
      check_cancelled(run);
      const std::int64_t count = std::min(batch, rows.rows - first);
      const simt::DeviceBuffer<float> some(static_cast<std::size_t>(count * rows.cols), stream);
      const simt::DeviceBuffer<std::uint8_t> found(static_cast<std::size_t>(count * m), stream);
      simt::copy_rows(some.get(), row_bytes, rows.row_bytes(first), static_cast<std::size_t>(rows.stride_bytes), row_bytes,
                      static_cast<std::size_t>(count), stream);
      gpu::encode_products(some.get(), count, words.get(), m, static_cast<int>(codewords.rows / m), static_cast<int>(part_dims),
                           found.get(), stream);
      simt::copy(codes + first * m, found.get(), found.size(), stream);
      simt::synchronize(stream);
    }
  }

  std::unique_ptr<PreparedCodes> prepare_codes(const gigaknn::ProductCodes& codes, Metric metric, const PrepareHints& hints,
                                               const RunOptions& run) const override {
    require_codes(codes, metric);
    const std::size_t needed =
        GpuCodes::device_bytes_needed(device_, codes.cells.begins.back(), codes.shape(), codes.cells.count(), hints);
    require(run.device_memory_bytes == 0 || needed <= run.device_memory_bytes, Fault::out_of_memory, "a device budget of ",
            run.device_memory_bytes, " bytes is too small: the codes of ", codes.cells.begins.back(), " rows need ", needed);
    return std::make_unique<GpuCodes>(device_, codes, metric, run);
  }
  std::size_t code_bytes_needed(std::int64_t n, const CodeShape&, Metric, std::int64_t cells, const PrepareHints& hints,
                                int) const override {
    return GpuCodes::host_bytes_needed(n, cells, hints);
  }
  void nearest_in_codes(const PreparedCodes& prepared, MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k,
                        NeighborsOut out, const RunOptions& run, RowMask allowed, ListOrder order) const override {
    require_code_probing(prepared, queries, probes, width, k, allowed, run);
    static_cast<const GpuCodes&>(prepared).nearest(queries, probes, width, k, out, allowed, run);
    if (order == ListOrder::by_id) sort_by_id(out);
  }

  std::unique_ptr<GrowingGraph> grow_graph(MatrixRef rows, Metric metric, const GrowthParams& params,
                                           const RunOptions& run) const override {
    require_base(rows, metric);
    require_growth(rows, params);
    require(params.k <= most_growing_list(), Fault::unsupported, "lists that grow on this device have at most ", most_growing_list(),
            " entries, not ", params.k);
    const std::size_t needed = growth_device_bytes_needed(rows.rows, rows.cols, rows.dtype, params);
    require(run.device_memory_bytes == 0 || needed <= run.device_memory_bytes, Fault::out_of_memory,
            "a device budget of ", run.device_memory_bytes, " bytes is too small: a graph of ", rows.rows,
            " rows needs ", needed);
    return std::make_unique<GpuGrowingGraph>(device_, rows, metric, params, run);
  }
  std::int64_t most_growing_list() const override { return most_list_length(device_); }
  std::size_t growth_bytes_needed(std::int64_t n, std::int64_t, const GrowthParams& params, int) const override {
    return GpuGrowingGraph::host_bytes_needed(n, params);
  }
  std::size_t growth_device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype,
                                         const GrowthParams& params) const override {
    return GpuGrowingGraph::device_bytes_needed(n, d, dtype, params);
  }

  RadiusNeighbors within_radius(const PreparedRows& prepared, MatrixRef queries, float radius,
                                const RunOptions& run) const override {
    require_queries(prepared, queries, 1);
    require_radius(radius);
    return static_cast<const GpuRows&>(prepared).within(queries, radius, run);
  }

  void pair_distances(MatrixRef queries, MatrixRef base, Metric metric, const RowId* ids, std::int64_t width,
                      float* out, const RunOptions& run) const override {
    require_pairs(queries, base, metric, width);
    const std::int64_t pairs = queries.rows * width;
    // Of each pair a row, its share of a query, a key; two queries more where a batch begins and ends amid one's pairs.
    const std::size_t a_row = DeviceRows::bytes_of(1, base.cols, base.dtype), sharing = static_cast<std::size_t>(std::max<std::int64_t>(width, 1));
    const std::int64_t batch = batch_of(a_row + (a_row + sharing - 1) / sharing + sizeof(float), 2 * a_row, "a pair needs ", run);
    const std::size_t row_bytes = static_cast<std::size_t>(base.cols) * size_of(base.dtype);
    for (std::int64_t first = 0; first < pairs; first += batch) {
      check_cancelled(run);
      const std::int64_t count = std::min(batch, pairs - first), first_query = first / width;
      // The rows asked for, gathered on the host: no more of the base than that has to travel.
      Matrix gathered(count, base.cols, base.dtype);
      parallel_for(run, count, 1024, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t id = value_of(ids[first + i]);
          require_pair_id(id, base.rows);
          if (id >= 0) {
            std::memcpy(gathered.row<std::byte>(i), base.row_bytes(id), row_bytes);
          } else {
            std::memset(gathered.row<std::byte>(i), 0, row_bytes);
          }
        }
      });
      const simt::OwnStream stream(device_);
      DeviceRows there(gathered, stream);
      find_facts(there, metric, stream);
      const std::vector<float> keys = keys_of(queries.slice(first_query, (first + count - 1) / width + 1), there, metric,
                                              {.count = count, .first = first - first_query * width, .width = width}, stream);
      for (std::int64_t i = 0; i < count; ++i) {
        const bool none = value_of(ids[first + i]) < 0;
        out[first + i] = value_of_key(metric, none ? std::numeric_limits<float>::infinity()
                                                   : keys[static_cast<std::size_t>(i)]);
      }
    }
  }

  void products(MatrixRef rows, MatrixRef directions, float* out, const RunOptions& run) const override {
    require_products(rows, directions);
    const std::int64_t width = directions.rows;
    if (width == 0) return;
    const std::size_t a_row = DeviceRows::bytes_of(1, rows.cols, rows.dtype) + static_cast<std::size_t>(width) * sizeof(float);
    const std::int64_t batch =
        batch_of(a_row, DeviceRows::bytes_of(width, directions.cols, directions.dtype), "products of a row need ", run);
    const simt::OwnStream directions_stream(device_);
    DeviceRows directions_there(directions, directions_stream);
    find_facts(directions_there, Metric::inner_product, directions_stream);
    simt::synchronize(directions_stream);
    for (std::int64_t first = 0; first < rows.rows; first += batch) {
      check_cancelled(run);
      const std::int64_t count = std::min(batch, rows.rows - first);
      const simt::OwnStream stream(device_);  // whose end gives back what a batch took
      const std::vector<float> keys = keys_of(rows.slice(first, first + count), directions_there, Metric::inner_product,
                                              {.count = count * width, .width = width, .with_all = true}, stream);
      std::transform(keys.begin(), keys.end(), out + first * width, [](float key) { return value_of_key(Metric::inner_product, key); });
    }
  }

  void sum_by_label(MatrixRef rows, const double* weights, const RowId* labels, std::int64_t label_count, double* sums,
                    std::int64_t* counts, const RunOptions& run) const override {
    gpu::sum_by_label(*this, device_, rows, weights, labels, label_count, sums, counts, run);
  }
  std::size_t copies_to_sum_bytes(std::int64_t n, std::int64_t d) const override { return PartSums::bytes_needed(n, d); }
  KeptRows keep_rows(MatrixRef rows, Metric metric, DType centroids, std::int64_t clusters, const RunOptions& run) const override {
    const std::size_t beside = std::max(device_bytes_needed(clusters, rows.cols, centroids, metric, hints_to_label(rows.rows)),
                                        bytes_to_sum_kept(rows.rows, rows.cols, centroids, clusters));
    return gpu::keep_rows(device_, rows, centroids, beside, run);
  }

  void select_k(MatrixRef values, std::int64_t k, NeighborsOut out,
                const RunOptions& run) const override {
    require_values(values, k);
    const int multiprocessors = simt::multiprocessors(device_);
    const auto needed = [&](std::int64_t rows) {
      const std::size_t lists =
          static_cast<std::size_t>(rows * k) * sizeof(PackedNeighbor) +
          static_cast<std::size_t>(rows * values.cols) * sizeof(float) + 8 * 256;
      return lists + select_bytes(rows, k, select_plan(rows, values.cols, k, multiprocessors),
                                  multiprocessors);
    };
    const std::size_t budget =
        run.device_memory_bytes > 0 ? run.device_memory_bytes : select_batch_bytes;
    std::int64_t batch = std::max<std::int64_t>(values.rows, 1);
    while (batch > 1 && needed(batch) > budget) batch = (batch + 1) / 2;
    require(run.device_memory_bytes == 0 || needed(batch) <= budget, Fault::out_of_memory,
            "a device budget of ", budget, " bytes is too small: selecting from a row needs ",
            needed(batch));
    for (std::int64_t first = 0; first < values.rows; first += batch) {
      check_cancelled(run);
      const std::int64_t rows = std::min(batch, values.rows - first);
      const simt::OwnStream stream(device_);
      const simt::DeviceBuffer<float> on_device(static_cast<std::size_t>(rows * values.cols),
                                                stream);
      const simt::DeviceBuffer<PackedNeighbor> found(static_cast<std::size_t>(rows * k), stream);
      const std::size_t row_bytes = static_cast<std::size_t>(values.cols) * sizeof(float);
      simt::copy_rows(on_device.get(), row_bytes, values.row_bytes(first),
                      static_cast<std::size_t>(values.stride_bytes), row_bytes,
                      static_cast<std::size_t>(rows), stream);
      select_rows(on_device.get(), nullptr, rows, values.cols, values.cols, k, found.get(), stream);
      read_lists(found.get(), rows, k, stream, [&](std::int64_t first_list, std::int64_t count, const PackedNeighbor* sorted) {
        parallel_for(run, count, lists_a_thread(k), [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t i = begin; i < end; ++i) write_selected(sorted + i * k, first + first_list + i, out);
        });
      });
    }
  }

 private:
  // So many of what takes `each` bytes of the device's memory at a time, beside `others` bytes that stay.
  static std::int64_t batch_of(std::size_t each, std::size_t others, const char* what, const RunOptions& run) {
    others += 8 * 256;  // the device rounds what it gives up
    require(run.device_memory_bytes == 0 || others + each <= run.device_memory_bytes, Fault::out_of_memory, "a device budget of ",
            run.device_memory_bytes, " bytes is too small: ", what, others + each);
    const std::size_t room = run.device_memory_bytes == 0 ? pair_batch_bytes : std::min(pair_batch_bytes, run.device_memory_bytes - others);
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(room / each));
  }

  static std::vector<float> keys_of(MatrixRef rows, const DeviceRows& others, Metric metric, const RowPairs& pairs, simt::Stream* stream) {
    DeviceRows there(rows, stream);
    find_facts(there, metric, stream);
    const simt::DeviceBuffer<float> keys(static_cast<std::size_t>(pairs.count), stream);
    pair_keys(there.view(), others.view(), pairs, metric, keys.get(), stream);
    return keys.download();
  }

  int device_;
};

}  // namespace

std::vector<const Ops*> devices() {
  static const auto all = [] {
    std::vector<std::unique_ptr<const Ops>> list;
    for (int device = 0; device < simt::device_count(); ++device)
      list.push_back(std::make_unique<GpuOps>(device));
    return list;
  }();
  std::vector<const Ops*> list;
  for (const auto& ops : all) list.push_back(ops.get());
  return list;
}

bool emulated() {
  return simt::device_kind() == "emulated";
}
std::map<std::string, std::int64_t> launches() {
  return simt::launches();
}

}  // namespace gigaknn::gpu
