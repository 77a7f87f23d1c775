// Times what is built on a device and searched, as users build and search it: a k-NN graph by NN-Descent, two graphs that are merged, and
// an index of product codes of 100 million rows. Inputs and results lie on the host; recall is against exact neighbours. Wang, Zhao, Zeng
// 2021: figures 6 and 7; Johnson, Douze, Jégou 2017: section 6.
//
//   gpu_builds [--small] [--graphs | --codes] [--rows N] [--device NAME] [--json FILE]
//     --small          sizes for the emulated device, to see that all of it works
//     --graphs, --codes  these alone
//     --rows           of the base; otherwise a million for graphs, 100 million for codes
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gigaknn/device.hpp>
#include <gigaknn/graph.hpp>
#include <gigaknn/index.hpp>

#include "core/threads.hpp"
#include "measure.hpp"

namespace gigaknn::bench {
namespace {

constexpr std::int64_t k = 10;

// Rows of bytes near a subspace of 16 dimensions, in 1,000 clusters that overlap, as bench/vectors.py has them. Row i is the same whatever
// n.
class Clusters {
 public:
  explicit Clusters(std::int64_t d) : d_(d) {
    for (std::int64_t j = 0; j < latent * d; ++j) directions_.push_back(normal(1, j) / std::sqrt(static_cast<float>(latent)));
    for (std::int64_t j = 0; j < latent * centres; ++j) centres_.push_back(normal(2, j));
  }

  Matrix rows(std::int64_t first, std::int64_t n) const {
    Matrix rows(n, d_, DType::u8);
    parallel_for({}, n, 4096, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<float> values(static_cast<std::size_t>(d_));
      for (std::int64_t i = begin; i < end; ++i) draw(first + i, values.data(), rows.row<std::uint8_t>(i));
    });
    return rows;
  }

 private:
  static constexpr std::int64_t latent = 16, centres = 1000;

  // Nearly: the sum of four uniform numbers.
  static float normal(std::uint64_t stream, std::int64_t i) {
    const std::uint64_t bits = random_bits(17, stream, static_cast<std::uint64_t>(i));
    const auto sum = static_cast<float>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
    return (sum * 0x1p-16f - 2) * 1.7320508f;
  }

  void draw(std::int64_t row, float* values, std::uint8_t* out) const {
    for (std::int64_t j = 0; j < d_; ++j) values[j] = 128 + 2 * normal(4, row * d_ + j);
    const float* const centre = centres_.data() + latent * random_below(centres, 17, 3, static_cast<std::uint64_t>(row));
    for (std::int64_t c = 0; c < latent; ++c) {
      const float at = 40 * (centre[c] + 0.5f * normal(5, row * latent + c));
      for (std::int64_t j = 0; j < d_; ++j) values[j] += at * directions_[static_cast<std::size_t>(c * d_ + j)];
    }
    for (std::int64_t j = 0; j < d_; ++j) out[j] = static_cast<std::uint8_t>(std::clamp(values[j] + 0.5f, 0.0f, 255.0f));
  }

  std::int64_t d_;
  std::vector<float> directions_;  // [latent, d]
  std::vector<float> centres_;     // [centres, latent]
};

void measure_graphs(const std::string& device, std::int64_t n) {
  const std::int64_t d = small ? 16 : 128;
  const Matrix base = Clusters(d).rows(0, n);
  GraphParams params;
  params.k = k;
  params.recall = 0.99;
  params.device = device;
  const auto build = [&](MatrixRef rows, const std::string& method) {
    params.method = method;
    return build_graph(rows, params);
  };
  const auto expect_recall = [&](const KnnGraph& graph) {
    return expect_right(graph.recall.value >= params.recall,
                        join_text("recall ", graph.recall.value, ", asked ", params.recall, ": ", graph.method));
  };
  const auto named = [&](const std::string& work, const KnnGraph& graph) {
    return join_text(work, " of ", n, " x ", d, " u8, k = ", k, ", recall ", graph.recall.value, " (", graph.method, ")");
  };
  const int repeats = small ? 1 : 3;
  KnnGraph graph;
  // Makes `graph`. Returns what it takes, 0 where it is not right.
  const auto measure = [&](const std::string& work, const std::function<void()>& make, double target_ms) {
    make();
    double ms = 0;
    report_if(expect_recall(graph), {named(work, graph), 0, target_ms}, [&] { return ms = host_ms(repeats, make, 0); });
    return ms;
  };
  double ms = 0;
  attempt("NN-Descent", [&] { ms = measure("NN-Descent", [&] { graph = build(base, "gnnd"); }, n == 1000000 ? 350 : 0); });
  attempt("graph by cells", [&] { measure("graph by cells", [&] { graph = build(base, "ivf"); }, 0); });

  const MatrixRef halves[] = {base.ref().slice(0, n / 2), base.ref().slice(n / 2, n)};
  const KnnGraph graphs[] = {build(halves[0], "gnnd"), build(halves[1], "gnnd")};
  MergeParams merging;
  merging.method = "nn-descent";
  merging.recall = params.recall;
  merging.device = device;
  const auto merge = [&] { graph = merge_graphs(graphs[0], halves[0], graphs[1], halves[1], merging).graph; };
  attempt("GGM of two halves", [&] { measure("GGM of two halves", merge, small ? 0 : 0.6 * ms); });
}

// Share of the k nearest that were found, by the rows' own distances, whatever the index compared.
double recall_of(const Neighbors& found, const Neighbors& truth, MatrixRef queries, MatrixRef base) {
  std::int64_t hits = 0;
  for (std::int64_t i = 0; i < truth.queries * k; ++i) {
    const RowId id = found.ids[static_cast<std::size_t>(i)];
    if (id == no_row) continue;
    std::int64_t squared = 0;
    for (std::int64_t j = 0; j < base.cols; ++j) {
      const std::int64_t difference = queries.row<std::uint8_t>(i / k)[j] - base.row<std::uint8_t>(value_of(id))[j];
      squared += difference * difference;
    }
    hits += static_cast<float>(squared) <= truth.distances[static_cast<std::size_t>((i / k + 1) * k - 1)];
  }
  return static_cast<double>(hits) / static_cast<double>(truth.queries * k);
}

void measure_codes(const std::string& device, std::int64_t n) {
  const std::int64_t q = small ? 20 : 10000, d = small ? 24 : 96;
  const Clusters clusters(d);
  double begin = now_ms();
  const auto lap = [&](const std::string& work) {
    report({work}, now_ms() - begin);
    begin = now_ms();
  };
  const Matrix base = clusters.rows(0, n);
  const Matrix queries = clusters.rows(n, q);
  const std::string set = join_text(n, " x ", d, " u8");
  lap("generate " + set);
  FlatParams exact;
  exact.device = device;
  exact.expected_queries = q;
  const Neighbors truth = make_flat_index(base, exact)->search(queries, k);
  lap(join_text("exact search of ", q, " in ", set, ", k = ", k, ", prepared"));
  IndexParams params;
  params.recipe = join_text("IVF", small ? 16 : std::clamp<std::int64_t>(n / 1500, 1024, 65536), ",PQ", d / 3, ",RFlat");
  params.device = device;
  params.expected_queries = q;
  const std::unique_ptr<Index> index = make_index(base, params);
  lap(join_text("train and add ", params.recipe, " of ", set));
  const double target_ms = 1000.0 * static_cast<double>(q) / 300000;
  for (const std::int64_t refine : {2, 4, 0}) {  // codes alone last: they do not reach the recall, so are asked for more and more lists
    double before = 0;
    for (std::int64_t nprobe = 1; nprobe <= index->lists(); nprobe *= 2) {
      Neighbors found;
      const double ms = host_ms(small ? 1 : 5, [&] { found = index->search(queries, k, {.nprobe = nprobe, .refine = refine}); });
      const double recall = recall_of(found, truth, queries, base);
      const bool reached = recall >= 0.9;
      report({join_text(q, " in ", params.recipe, " of ", set, ", nprobe ", nprobe, ", refine ", refine, ": recall@10 ", recall), 0,
              reached && n >= 100000000 ? target_ms : 0},
             ms);
      if (reached || recall < before + 0.002) break;
      before = recall;
    }
  }
}

int run(int argc, char** argv) {
  bool graphs = true, codes = true;
  std::int64_t rows = 0;
  std::string device, json;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (option == "--small") {
      small = true;
    } else if (option == "--graphs") {
      codes = false;
    } else if (option == "--codes") {
      graphs = false;
    } else if (option == "--rows" && value) {
      rows = std::atoll(argv[++i]);
    } else if (option == "--device" && value) {
      device = argv[++i];
    } else if (option == "--json" && value) {
      json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: gpu_builds [--small] [--graphs | --codes] [--rows N] [--device NAME] [--json FILE]\n");
      return 2;
    }
  }
  require(graphs || codes, Fault::invalid_argument, "--graphs and --codes leave each other out");
  if (device.empty()) device = simt::device_kind() == "emulated" ? "emulated" : "cuda:0";
  std::printf("%s: %s, %d threads\n", device.c_str(), isa_of(device).c_str(), available_threads());
  json_file.open(json, isa_of(device));
  if (graphs) measure_graphs(device, rows > 0 ? rows : small ? 1000 : 1000000);
  if (codes) measure_codes(device, rows > 0 ? rows : small ? 1000 : 100000000);
  json_file.finish();
  return wrong_results > 0;
}

}  // namespace
}  // namespace gigaknn::bench

int main(int argc, char** argv) {
  try {
    return gigaknn::bench::run(argc, argv);
  } catch (const gigaknn::Error& error) {
    std::fprintf(stderr, "gpu_builds: %s\n", error.what());
    return 3;
  }
}
