#include "ops/cpu/cpu_ops.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/canonical.hpp"
#include "ops/cpu/cpu_rows.hpp"

namespace gigaknn::cpu {
namespace {

class CpuOps : public Ops {
 public:
  CpuOps(Isa isa, const char* isa_name) : isa_name_(isa_name), kernels_(row_kernels(isa)), float_kernels_(float_kernels(isa)) {
#if defined(__x86_64__)
    if (isa == Isa::avx2) code_kernels_ = code_kernels_avx2();
    if (isa == Isa::avx512vnni) code_kernels_ = code_kernels_avx512vnni();
#endif
  }
  bool available() const { return kernels_ != nullptr; }
  std::string name() const override { return "cpu"; }
  std::string isa() const override { return isa_name_; }

  std::unique_ptr<PreparedRows> prepare(MatrixRef base, Metric metric, const PrepareHints& hints,
                                        const RunOptions& run) const override {
    require(base.rows >= 1 && base.cols >= 1, Fault::invalid_argument, "a base of ", base.rows, " x ",
            base.cols, " has nothing to search");
    require(base.rows < std::int64_t{0xFFFFFFFF}, Fault::unsupported, "a base of ", base.rows,
            " rows must be searched in blocks of fewer than 4294967295");
    require_metric(base, metric);
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

  void self_nearest(const PreparedRows& prepared, std::int64_t k, NeighborsOut out,
                    const RunOptions& run) const override {
    require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
    static_cast<const CpuRows&>(prepared).self_nearest(k, out, run);
  }

  RadiusNeighbors within_radius(const PreparedRows& prepared, MatrixRef queries, float radius,
                                const RunOptions& run) const override {
    require_queries(prepared, queries, 1);
    require(!std::isnan(radius), Fault::invalid_argument, "the radius must be a number, got ", radius);
    return static_cast<const CpuRows&>(prepared).within(queries, radius, run);
  }

  void pair_distances(MatrixRef queries, MatrixRef base, Metric metric, const RowId* ids, float* out,
                      const RunOptions& run) const override {
    require(queries.cols == base.cols && queries.dtype == base.dtype, Fault::invalid_argument,
            "queries are ", queries.cols, " x ", name_of(queries.dtype), ", the base ", base.cols, " x ",
            name_of(base.dtype));
    require_metric(base, metric);
    const PairDistance pair = pair_for(base, metric);
    parallel_for(run, queries.rows, 256, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<float> x(static_cast<std::size_t>(base.cols)), y(x);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t id = value_of(ids[i]);
        require(id >= -1 && id < base.rows, Fault::invalid_argument, "id ", id, " must be in [-1, ",
                base.rows - 1, "]");
        const float key = id < 0 ? std::numeric_limits<float>::infinity()
                                 : pair.key_of_rows(queries.row_bytes(i), base.row_bytes(id), x.data(), y.data());
        out[i] = value_of_key(metric, key);
      }
    });
  }

 private:
  PairDistance pair_for(MatrixRef base, Metric metric) const {
    return PairDistance(*kernels_, metric, base.dtype, base.cols);
  }
  static void require_metric(MatrixRef base, Metric metric) {
    require(on_bits(metric) ? base.dtype == DType::u8 : base.dtype <= DType::i8, Fault::unsupported, "metric ",
            name_of(metric), " takes ", on_bits(metric) ? "u8 rows of packed bits" : "f32, f16, u8 or i8 rows",
            ", got ", name_of(base.dtype));
  }
  static void require_queries(const PreparedRows& base, MatrixRef queries, std::int64_t k) {
    require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
    require(queries.cols == base.cols() && queries.dtype == base.dtype(), Fault::invalid_argument,
            "queries are ", queries.cols, " x ", name_of(queries.dtype), ", the base ", base.cols(), " x ",
            name_of(base.dtype()));
  }

  const char* isa_name_;
  const RowKernels* kernels_;
  const FloatKernels* float_kernels_;
  CodeKernelSet code_kernels_;
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

std::string list_of_names() {
  std::string list = "cpu";
  for (std::size_t i = 0; i < std::size(isas); ++i) {
    if (ops_for(i).available()) list += std::string(", cpu:") + isas[i].name;
  }
  return list;
}

}  // namespace gigaknn::cpu
