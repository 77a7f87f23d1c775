#include "ops/cpu/cpu_ops.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/canonical.hpp"
#include "ops/cpu/pair_distance.hpp"
#include "ops/cpu/top_k.hpp"

namespace gigaknn::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

class CpuRows : public PreparedRows {
 public:
  CpuRows(MatrixRef base_, PairDistance pair_, RowFacts facts_)
      : base(base_), pair(pair_), facts(std::move(facts_)) {}
  std::int64_t rows() const override { return base.rows; }
  std::int64_t cols() const override { return base.cols; }
  DType dtype() const override { return base.dtype; }
  Metric metric() const override { return pair.metric(); }
  MemorySpace space() const override { return MemorySpace::host; }
  std::size_t bytes() const override { return facts.far.size() + facts.squared_norms.size() * 8; }
  std::string description() const override { return "scan"; }

  MatrixRef base;
  PairDistance pair;
  RowFacts facts;
};

class CpuOps : public Ops {
 public:
  CpuOps(Isa isa, const char* isa_name) : isa_name_(isa_name), kernels_(row_kernels(isa)) {}
  bool available() const { return kernels_ != nullptr; }
  std::string name() const override { return "cpu"; }
  std::string isa() const override { return isa_name_; }

  std::unique_ptr<PreparedRows> prepare(MatrixRef base, Metric metric, const PrepareHints&,
                                        const Run& run) const override {
    require(base.rows >= 1 && base.cols >= 1, Fault::invalid_argument, "a base of ", base.rows, " x ",
            base.cols, " has nothing to search");
    require(on_bits(metric) ? base.dtype == DType::u8 : base.dtype <= DType::i8, Fault::unsupported,
            "metric ", name_of(metric), " does not take ", name_of(base.dtype), " rows");
    PairDistance pair(*kernels_, metric, base.dtype, base.cols);
    return std::make_unique<CpuRows>(base, pair, pair.facts_of(base, run));
  }
  std::size_t bytes_needed(std::int64_t n, std::int64_t, DType, Metric, const PrepareHints&,
                           int) const override {
    return static_cast<std::size_t>(n) * 9;
  }
  void nearest_rows(const PreparedRows& prepared, MatrixRef queries, std::int64_t k, NeighborsOut out,
                    const Run& run, std::int64_t first_self) const override {
    const auto& base = static_cast<const CpuRows&>(prepared);
    require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
    require(queries.cols == base.cols() && queries.dtype == base.dtype(), Fault::invalid_argument,
            "queries are ", queries.cols, " x ", name_of(queries.dtype), ", the base ", base.cols(), " x ",
            name_of(base.dtype()));
    const RowFacts facts = base.pair.facts_of(queries, run);
    parallel_for(run, queries.rows, 1, [&](std::int64_t begin, std::int64_t, int) {
      search_one(base, queries, facts, begin, k, out, first_self);
      if (run.progress) run.progress->report("search", begin, queries.rows);
    });
  }
  void self_nearest(const PreparedRows& prepared, std::int64_t k, NeighborsOut out,
                    const Run& run) const override {
    nearest_rows(prepared, static_cast<const CpuRows&>(prepared).base, k, out, run, 0);
  }
  RadiusNeighbors within_radius(const PreparedRows& prepared, MatrixRef queries, float radius,
                                const Run& run) const override {
    const auto& base = static_cast<const CpuRows&>(prepared);
    const std::int64_t n = base.rows();
    Neighbors all(queries.rows, n);
    nearest_rows(prepared, queries, n, NeighborsOut(all), run, -1);
    RadiusNeighbors result;
    result.offsets.push_back(0);
    const float limit = key_of_value(base.metric(), radius);
    for (std::int64_t i = 0; i < queries.rows; ++i) {
      for (std::int64_t j = i * n; j < (i + 1) * n; ++j) {
        if (!(key_of_value(base.metric(), all.distances[static_cast<std::size_t>(j)]) <= limit)) break;
        result.ids.push_back(all.ids[static_cast<std::size_t>(j)]);
        result.distances.push_back(all.distances[static_cast<std::size_t>(j)]);
      }
      result.offsets.push_back(static_cast<std::int64_t>(result.ids.size()));
    }
    return result;
  }
  void pair_distances(MatrixRef queries, MatrixRef base, Metric metric, const RowId* ids, float* out,
                      const Run& run) const override {
    PairDistance pair(*kernels_, metric, base.dtype, base.cols);
    const RowFacts q = pair.facts_of(queries, run);
    const RowFacts b = pair.facts_of(base, run);
    std::vector<float> s1(static_cast<std::size_t>(base.cols)), s2(s1);
    for (std::int64_t i = 0; i < queries.rows; ++i) {
      const auto id = value_of(ids[i]);
      const std::size_t x = static_cast<std::size_t>(i);
      const std::size_t y = static_cast<std::size_t>(id);
      float key = infinity;
      if (id >= 0 && !q.far[x] && !b.far[y]) {
        key = pair.key(pair.readable(queries.row_bytes(i), s1.data()), pair.readable(base.row_bytes(id), s2.data()),
                       metric == Metric::cosine ? q.squared_norms[x] : 0, metric == Metric::cosine ? b.squared_norms[y] : 0);
      }
      out[i] = value_of_key(metric, key);
    }
  }

 private:
  void search_one(const CpuRows& base, MatrixRef queries, const RowFacts& facts, std::int64_t i, std::int64_t k,
                  NeighborsOut out, std::int64_t first_self) const {
    const bool cosine = base.metric() == Metric::cosine;
    const std::size_t x = static_cast<std::size_t>(i);
    std::vector<float> s1(static_cast<std::size_t>(base.cols())), s2(s1);
    const void* query = base.pair.readable(queries.row_bytes(i), s1.data());
    TopK list(1, k);
    for (std::int64_t j = 0; j < base.rows(); ++j) {
      if (first_self >= 0 && first_self + i == j) continue;
      const std::size_t y = static_cast<std::size_t>(j);
      float key = infinity;
      if (!facts.far[x] && !base.facts.far[y]) {
        key = base.pair.key(query, base.pair.readable(base.base.row_bytes(j), s2.data()),
                            cosine ? facts.squared_norms[x] : 0, cosine ? base.facts.squared_norms[y] : 0);
      }
      list.push(0, pack_neighbor(key, static_cast<LocalRow>(j)));
    }
    std::int64_t count = 0;
    const PackedNeighbor* best = list.finish(0, count);
    for (std::int64_t j = 0; j < k; ++j) {
      out.ids[i * k + j] = j < count ? RowId{row_of(best[j])} : no_row;
      out.distances[i * k + j] = value_of_key(base.metric(), j < count ? key_of(best[j]) : infinity);
    }
  }

  const char* isa_name_;
  const RowKernels* kernels_;
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
