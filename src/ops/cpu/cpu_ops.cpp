#include "ops/cpu/cpu_ops.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/canonical.hpp"
#include "ops/cpu/byte_products.hpp"
#include "ops/cpu/cpu_assignment.hpp"
#include "ops/cpu/cpu_cells.hpp"
#include "ops/cpu/cpu_codes.hpp"
#include "ops/cpu/cpu_growth.hpp"
#include "ops/cpu/cpu_rows.hpp"
#include "ops/cpu/product_encoder.hpp"
#include "ops/cpu/sum_by_label.hpp"
#include "ops/list_writer.hpp"
#include "ops/requests.hpp"

namespace gigaknn::cpu {
namespace {

class CpuOps : public Ops {
 public:
  CpuOps(Isa isa, const char* isa_name) : isa_(isa), isa_name_(isa_name), kernels_(row_kernels(isa)), float_kernels_(float_kernels(isa)) {
#if defined(__x86_64__)
    if (!available()) return;
    if (isa == Isa::avx2) {
      code_kernels_ = code_kernels_avx2();
      product_kernels_ = &product_kernels_avx2();
    }
    if (isa == Isa::avx512vnni) {
      code_kernels_ = code_kernels_avx512vnni();
      product_kernels_ = &product_kernels_avx512vbmi();  // Highway's target has both
    }
#endif
  }
  bool available() const { return kernels_ != nullptr; }
  std::string name() const override { return "cpu"; }
  std::string isa() const override { return isa_name_; }

  std::unique_ptr<PreparedRows> prepare(MatrixRef base, Metric metric, const PrepareHints& hints,
                                        const RunOptions& run) const override {
    require_base(base, metric);
    const std::size_t needed = bytes_needed(base.rows, base.cols, base.dtype, metric, hints, threads_of(run));
    require(run.memory_bytes == 0 || needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ",
            run.memory_bytes, " bytes is too small: preparing ", base.rows, " rows needs ", needed);
    return std::make_unique<CpuRows>(base, pair_for(base, metric), code_kernels_, *float_kernels_, hints, run);
  }

  std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric,
                           const PrepareHints& hints, int threads) const override {
    return CpuRows::bytes_needed(n, d, dtype, metric, code_kernels_, hints, threads);
  }

  void nearest_rows(const PreparedRows& prepared, MatrixRef queries, std::int64_t k, NeighborsOut out,
                    const RunOptions& run, std::int64_t first_self) const override {
    require_queries(prepared, queries, k);
    static_cast<const CpuRows&>(prepared).nearest(queries, k, out, first_self, run);
  }

  void nearest_set(const PreparedRows& prepared, MatrixRef queries, std::int64_t k, RowId* ids, const RunOptions& run) const override {
    require_queries(prepared, queries, k);
    const auto& rows = static_cast<const CpuRows&>(prepared);
    if (!rows.finds_sets(queries.rows, k)) return Ops::nearest_set(prepared, queries, k, ids, run);
    rows.find_set(queries, k, ids, run);
  }

  void self_nearest(const PreparedRows& prepared, std::int64_t k, NeighborsOut out,
                    const RunOptions& run) const override {
    require_k(k);
    static_cast<const CpuRows&>(prepared).self_nearest(k, out, run);
  }

  std::unique_ptr<PreparedCells> prepare_cells(MatrixRef base, const CellRows& cells, Metric metric, const PrepareHints& hints,
                                               const RunOptions& run) const override {
    require_base(base, metric);
    require_cells(base, cells);
    const std::size_t needed = cell_bytes_needed(base.rows, base.cols, base.dtype, metric, cells.count(), hints, threads_of(run));
    require(run.memory_bytes == 0 || needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ",
            run.memory_bytes, " bytes is too small: preparing ", base.rows, " rows in cells needs ", needed);
    return std::make_unique<CpuCells>(base, cells, pair_for(base, metric), code_kernels_, *float_kernels_, hints, run);
  }
  std::size_t cell_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t cells,
                                const PrepareHints& hints, int threads) const override {
    return CpuCells::bytes_needed(n, d, dtype, metric, code_kernels_, cells, hints, threads);
  }

  void nearest_in_cells(const PreparedCells& prepared, MatrixRef queries, const RowId* probes, std::int64_t width,
                        std::int64_t k, NeighborsOut out, const RunOptions& run, const RowId* self, RowMask allowed) const override {
    require_probing(prepared, queries, probes, width, k, allowed, run);
    static_cast<const CpuCells&>(prepared).nearest(queries, {probes, width, self, allowed}, k, out, run);
  }

  void join_cells(const PreparedCells& prepared, std::span<const RowId> rows, const RowId* own, const RowId* probes,
                  std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run) const override {
    require_joining(prepared, rows, own, probes, width, k, run);
    static_cast<const CpuCells&>(prepared).join({probes, width, rows.data()}, own, std::ssize(rows), k, out, run);
  }

  std::unique_ptr<GrowingGraph> grow_graph(MatrixRef rows, Metric metric, const GrowthParams& params,
                                           const RunOptions& run) const override {
    require_base(rows, metric);
    require_growth(rows, params);
    return std::make_unique<CpuGrowingGraph>(rows, pair_for(rows, metric), code_kernels_, params, run);
  }
  std::size_t growth_bytes_needed(std::int64_t n, std::int64_t d, const GrowthParams& params, int threads) const override {
    return CpuGrowingGraph::bytes_needed(n, d, params, threads);
  }

  RadiusNeighbors within_radius(const PreparedRows& prepared, MatrixRef queries, float radius,
                                const RunOptions& run) const override {
    require_queries(prepared, queries, 1);
    require_radius(radius);
    return static_cast<const CpuRows&>(prepared).within(queries, radius, run);
  }

  void pair_distances(MatrixRef queries, MatrixRef base, Metric metric, const RowId* ids, std::int64_t width, float* out,
                      const RunOptions& run) const override {
    require_pairs(queries, base, metric, width);
    const PairDistance pair = pair_for(base, metric);
    parallel_for(run, queries.rows * width, 256, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<float> x(static_cast<std::size_t>(base.cols)), y(x);
      PairDistance::ReadRow query;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t id = value_of(ids[i]);
        require_pair_id(id, base.rows);
        if (i == begin || i % width == 0) query = pair.read(queries.row_bytes(i / width), x.data());
        const float key = id < 0 ? std::numeric_limits<float>::infinity() : pair.key_of_rows(query, base.row_bytes(id), y.data());
        out[i] = value_of_key(metric, key);
      }
    });
  }

  std::unique_ptr<Assignment> start_assignment(MatrixRef rows, Metric metric, DType centroids, std::int64_t clusters,
                                               const RunOptions& run) const override {
    require_assignment(rows, metric, centroids, clusters);
    const PairDistance pair(*kernels_, metric, centroids, rows.cols);
    return std::make_unique<CpuAssignment>(rows, pair, clusters, kernels_for(metric, rows.cols, code_kernels_), *float_kernels_, run);
  }
  std::size_t assignment_bytes_needed(std::int64_t n, std::int64_t d, Metric metric, std::int64_t clusters, int threads) const override {
    return CpuAssignment::bytes_needed(metric, n, d, clusters, threads);
  }

  void sum_by_label(MatrixRef rows, const double* weights, const RowId* labels, std::int64_t label_count, double* sums,
                    std::int64_t* counts, const RunOptions& run) const override {
    require_labelled(rows, label_count);
    const LabelRuns runs(labels, rows.rows, label_count);
    cpu::sum_by_label(*kernels_, rows, weights, runs, sums, run);
    for (std::int64_t label = 0; label < label_count; ++label) counts[label] = runs.count(label);
  }

  void products(MatrixRef rows, MatrixRef directions, float* out, const RunOptions& run) const override {
    require_products(rows, directions);
    if (rows.dtype == DType::i8 && code_kernels_.bytes && rows.cols <= code_kernels_.bytes->most_dims) {
      return byte_products(*code_kernels_.bytes, rows, directions, out, run);
    }
    const PairDistance pair = pair_for(directions, Metric::inner_product);
    const RowFacts of_rows = pair.facts_of(rows, run), of_directions = pair.facts_of(directions, run);
    parallel_for(run, rows.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t j = 0; j < directions.rows; ++j) {
          const bool far = of_rows.far[static_cast<std::size_t>(i)] != 0 || of_directions.far[static_cast<std::size_t>(j)] != 0;
          const float key = far ? std::numeric_limits<float>::infinity() : pair.key(rows.row_bytes(i), directions.row_bytes(j));
          out[i * directions.rows + j] = value_of_key(Metric::inner_product, key);
        }
      }
    });
  }
  void encode_products(MatrixRef rows, MatrixRef codewords, std::uint8_t* codes, const RunOptions& run) const override {
    require_encoding(rows, codewords);
    cpu::encode_products(rows, codewords, *float_kernels_, *kernels_, codes, run);
  }
  std::unique_ptr<PreparedCodes> prepare_codes(const ProductCodes& codes, Metric metric, const PrepareHints& hints,
                                               const RunOptions& run) const override {
    require_codes(codes, metric);
    const std::size_t needed =
        code_bytes_needed(codes.cells.begins.back(), codes.shape(), metric, codes.cells.count(), hints, threads_of(run));
    require(run.memory_bytes == 0 || needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
            " bytes is too small: preparing ", codes.cells.begins.back(), " codes needs ", needed);
    return std::make_unique<CpuCodes>(codes, PairDistance(*kernels_, metric, DType::f32, codes.d), *product_kernels_, nibble_scan(isa_),
                                      code_kernels_.bytes, level_reader(isa_), *float_kernels_, run);
  }
  std::size_t code_bytes_needed(std::int64_t n, const CodeShape& shape, Metric, std::int64_t cells, const PrepareHints& hints,
                                int threads) const override {
    return CpuCodes::bytes_needed(n, shape, product_kernels_->quick_bytes, code_kernels_.bytes, cells, hints, threads);
  }
  void nearest_in_codes(const PreparedCodes& prepared, MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k,
                        NeighborsOut out, const RunOptions& run, RowMask allowed, ListOrder order) const override {
    require_code_probing(prepared, queries, probes, width, k, allowed, run);
    static_cast<const CpuCodes&>(prepared).nearest(queries, probes, width, k, out, allowed, order, run);
  }

  void nearest_among(MatrixRef queries, MatrixRef base, Metric metric, const RowId* candidates, std::int64_t width, std::int64_t k,
                     NeighborsOut out, const RunOptions& run) const override {
    require_k(k);
    require_pairs(queries, base, metric, width);
    const PairDistance pair = pair_for(base, metric);
    const ListWriter writer(metric, 0, {});
    parallel_blocks(run, queries.rows, 16, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> x(static_cast<std::size_t>(base.cols)), y(x);
      std::vector<PackedNeighbor> keys;
      const std::int64_t row_bytes = base.cols * static_cast<std::int64_t>(size_of(base.dtype));
      for (std::int64_t i = begin; i < end; ++i) {
        const RowId* const mine = candidates + i * width;
        for (std::int64_t j = 0; j < width; ++j) {
          require_pair_id(value_of(mine[j]), base.rows);
          if (mine[j] == no_row) continue;
          for (std::int64_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(base.row_bytes(value_of(mine[j])) + b);
        }
        keys.clear();
        const PairDistance::ReadRow query = pair.read(queries.row_bytes(i), x.data());
        for (std::int64_t j = 0; j < width; ++j) {
          if (mine[j] == no_row) continue;
          const float key = pair.key_of_rows(query, base.row_bytes(value_of(mine[j])), y.data());
          if (key < std::numeric_limits<float>::infinity()) keys.push_back(pack_neighbor(key, static_cast<LocalRow>(value_of(mine[j]))));
        }
        const std::int64_t kept = std::min<std::int64_t>(k, std::ssize(keys));
        std::partial_sort(keys.begin(), keys.begin() + kept, keys.end());
        writer.write(keys.data(), kept, false, -1, i, out);
      }
    });
  }

  void select_k(MatrixRef values, std::int64_t k, NeighborsOut out, const RunOptions& run) const override {
    require_values(values, k);
    parallel_for(run, values.rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<PackedNeighbor> keys;
      for (std::int64_t i = begin; i < end; ++i) {
        keys.assign(static_cast<std::size_t>(std::max(k, values.cols)), no_neighbor);
        const float* const row = values.row<float>(i);
        for (std::int64_t j = 0; j < values.cols; ++j) keys[j] = pack_neighbor(row[j], static_cast<LocalRow>(j));
        const auto kth = keys.begin() + k;
        if (kth != keys.end()) std::nth_element(keys.begin(), kth, keys.end());
        std::sort(keys.begin(), kth);
        write_selected(keys.data(), i, out);
      }
    });
  }

 private:
  PairDistance pair_for(MatrixRef base, Metric metric) const {
    return PairDistance(*kernels_, metric, base.dtype, base.cols);
  }

  Isa isa_;
  const char* isa_name_;
  const RowKernels* kernels_;
  const FloatKernels* float_kernels_;
  CodeKernelSet code_kernels_;
  const ProductKernels* product_kernels_ = &product_kernels_generic();
};

struct NamedIsa {
  const char* name;
  Isa isa;
};
constexpr NamedIsa isas[] = {
    {"avx512vnni", Isa::avx512vnni}, {"avx2", Isa::avx2}, {"generic", Isa::generic}};

const CpuOps& ops_for(std::size_t i) {
  static const CpuOps all[] = {CpuOps(isas[0].isa, isas[0].name), CpuOps(isas[1].isa, isas[1].name),
                               CpuOps(isas[2].isa, isas[2].name)};
  return all[i];
}

}  // namespace

const Ops* find_ops(const std::string& name) {
  std::string isa = name.starts_with("cpu:") ? name.substr(4) : "";
  if (name == "cpu") {
    if (const char* asked = std::getenv("GIGAKNN_ISA")) isa = asked;
  } else if (isa.empty()) {
    return nullptr;
  }
  for (std::size_t i = 0; i < std::size(isas); ++i) {
    if ((isa.empty() || isa == isas[i].name) && ops_for(i).available()) return &ops_for(i);
  }
  return nullptr;
}

std::vector<std::string> names() {
  std::vector<std::string> list = {"cpu"};
  for (std::size_t i = 0; i < std::size(isas); ++i) {
    if (ops_for(i).available()) list.push_back(std::string("cpu:") + isas[i].name);
  }
  return list;
}

}  // namespace gigaknn::cpu
