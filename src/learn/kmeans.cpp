// Training rows --kmeans_start--> centroids --Lloyd, round after round--> centroids; of very many clusters in two levels.
#include <gigaknn/kmeans.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <queue>
#include <utility>

#include "core/elements.hpp"
#include "core/gather.hpp"
#include "core/random.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "io/validate.hpp"
#include "learn/kmeans_sample.hpp"
#include "learn/kmeans_start.hpp"
#include "learn/lloyd.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t least_two_level_clusters = 64;
#else
constexpr std::int64_t least_two_level_clusters = std::int64_t{1} << 15;
#endif
constexpr std::int64_t rows_a_region = 256;  // that the regions are fitted to
constexpr std::uint64_t drawing_stream = 31;
constexpr double balancing_share = 0.75;     // of the rounds; what was moved then comes to rest

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool in_two_levels(const KMeansParams& params) {
  if (params.levels != KMeansLevels::automatic) return params.levels == KMeansLevels::two && params.clusters > 1;
  return params.clusters >= least_two_level_clusters;
}

/// Rows to be fitted to, ascending, and their weights (none: all 1).
struct Training {
  std::vector<std::int64_t> rows;
  std::vector<float> weights;
};

// About `count` rows, at least `least`, each with a probability proportional to its weight; those who have less than their share of it
// stand for others like them (Horvitz, Thompson 1952; drawn systematically, so that the number is not left to chance).
Training draw_by_weight(std::span<const float> weights, std::int64_t count, std::int64_t least, std::uint64_t seed) {
  std::vector<float> heaviest;
  heaviest.reserve(weights.size());
  std::copy_if(weights.begin(), weights.end(), std::back_inserter(heaviest), [](float weight) { return weight > 0; });
  double share = 0;  // a row as heavy as that is drawn for certain
  if (std::ssize(heaviest) > count) {
    std::sort(heaviest.begin(), heaviest.end(), std::greater<>());
    // What all but the heaviest weigh, added from the lightest up: taken off the sum of all it would drown in its rounding.
    std::vector<double> rest(at(count));
    double sum = std::accumulate(heaviest.rbegin(), heaviest.rend() - count, 0.0);
    for (std::int64_t i = count - 1; i >= 0; --i) rest[at(i)] = sum += static_cast<double>(heaviest[at(i)]);
    std::int64_t certain = 0;
    while (certain + 1 < count && static_cast<double>(heaviest[at(certain)]) * static_cast<double>(count - certain) >= rest[at(certain)]) {
      ++certain;
    }
    share = rest[at(certain)] / static_cast<double>(count - certain);
  }
  Training drawn;
  std::vector<std::int64_t> others;  // with weight and without
  double sum = random_unit(seed, drawing_stream, 0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double weight = static_cast<double>(weights[i]);
    const double before = std::floor(sum);
    sum += weight <= 0 ? 0.0 : weight >= share ? 1.0 : weight / share;
    if (std::floor(sum) > before) {
      drawn.rows.push_back(static_cast<std::int64_t>(i));
    } else if (std::ssize(others) < least) {
      others.push_back(static_cast<std::int64_t>(i));
    }
  }
  const std::int64_t missing = std::clamp<std::int64_t>(least - std::ssize(drawn.rows), 0, std::ssize(others));
  std::stable_partition(others.begin(), others.end(), [&](std::int64_t row) { return weights[at(row)] > 0; });
  drawn.rows.insert(drawn.rows.end(), others.begin(), others.begin() + missing);
  std::sort(drawn.rows.begin(), drawn.rows.end());
  for (const std::int64_t row : drawn.rows) {
    const double weight = static_cast<double>(weights[at(row)]);
    drawn.weights.push_back(weight > 0 ? static_cast<float>(std::max(weight, share)) : 0.0f);
  }
  return drawn;
}

void require_kmeans(MatrixRef rows, const KMeansParams& params, const RunOptions& run) {
  require(holds_vectors(rows.dtype) && rows.cols >= 1, Fault::unsupported,
          "k-means takes f32, f16, bf16, u8 or i8 rows of 1 column or more, got ", rows.cols, " of ", name_of(rows.dtype));
  require(params.metric == Metric::l2 || params.metric == Metric::cosine, Fault::unsupported,
          "k-means takes metric l2 or cosine, whose centroids are means, not ", name_of(params.metric));
  require(params.clusters >= 1 && params.clusters <= rows.rows, Fault::invalid_argument, "clusters must be in [1, ", rows.rows,
          "], the rows to cluster, got ", params.clusters);
  require(params.iterations >= 0, Fault::invalid_argument, "iterations must be >= 0, got ", params.iterations);
  require(params.most_rows_a_cluster >= 0, Fault::invalid_argument, "rows a cluster must be >= 0, got ", params.most_rows_a_cluster);
  require(params.weights.empty() || std::ssize(params.weights) == rows.rows, Fault::invalid_argument, params.weights.size(),
          " weights for ", rows.rows, " rows");
  double sum = 0;
  for (std::size_t i = 0; i < params.weights.size(); ++i) {
    require(std::isfinite(params.weights[i]) && params.weights[i] >= 0, Fault::invalid_argument, "weight ", i,
            " must be finite and >= 0, got ", params.weights[i]);
    sum += static_cast<double>(params.weights[i]);
  }
  const auto out = params.left_out;
  require(out.empty() || (params.weights.empty() && std::ssize(out) <= rows.rows - params.clusters && out.front() >= 0 &&
                          out.back() < rows.rows && std::adjacent_find(out.begin(), out.end(), std::greater_equal<>()) == out.end()),
          Fault::invalid_argument, "rows that are left out must ascend below ", rows.rows, ", leave ", params.clusters,
          " and have no weights");
  require(params.weights.empty() || sum > 0, Fault::invalid_argument, "all weights are 0");
  require(sum <= static_cast<double>(std::numeric_limits<float>::max()), Fault::invalid_argument, "the weights add up to ", sum,
          ", more than a float32 holds; scale them down");
  require_usable_values(rows, params.metric, params.allow_nonfinite, "the rows", run);
}

void make_unit(Matrix& rows) {
  const std::int64_t cols = rows.cols();
  for (std::int64_t i = 0; i < rows.rows(); ++i) {
    float* const row = rows.row<float>(i);
    const double norm = std::sqrt(squared_norm_of(rows, i));
    for (std::int64_t j = 0; j < cols && norm > 0; ++j) row[j] = static_cast<float>(row[j] / norm);
  }
}

// Centroids that began at a row with NaN or infinity, and found none to begin anew at.
void clear_nonfinite(Matrix& centroids) {
  for (std::int64_t i = 0; i < centroids.rows(); ++i) {
    float* const row = centroids.row<float>(i);
    if (!std::all_of(row, row + centroids.cols(), [](float x) { return std::isfinite(x); })) std::fill_n(row, centroids.cols(), 0.0F);
  }
}

using OnRound = std::function<void(int, const KMeansRound&)>;

// All rows compared with all centroids.
KMeans fit_one_level(const Ops& ops, MatrixRef rows, std::span<const float> weights, std::int64_t clusters, const KMeansParams& params,
                     const OnRound& on_round, const RunOptions& run) {
  const bool unit = params.metric == Metric::cosine;
  const bool looks_at_all = params.iterations > 0 || params.start == KMeansStart::plus_plus;
  const KeptRows kept = looks_at_all ? ops.keep_rows(rows, params.metric, DType::f32, clusters, run) : KeptRows{rows};
  RunOptions beside = run;
  if (run.device_memory_bytes > 0) beside.device_memory_bytes -= kept.bytes;
  const std::vector<std::int64_t> first =
      starting_rows(ops, rows, kept.rows, params.metric, weights, clusters, params.start, params.seed, beside);
  Matrix centroids = as_floats(gather_rows(rows, first));
  if (unit) make_unit(centroids);
  Lloyd lloyd(ops, rows, std::move(centroids),
              {.metric = params.metric, .kept = kept.rows, .unit_means = unit, .weights = weights, .seed = params.seed}, beside);
  KMeans result;
  result.trained_rows = rows.rows;
  const auto balancing_rounds = static_cast<int>(params.balanced ? balancing_share * params.iterations : 0);
  for (int i = 0; i < params.iterations; ++i) {
    const bool goes_on = lloyd.round(beside, i < balancing_rounds);
    result.rounds.push_back(lloyd.last_round());
    if (on_round) on_round(i, result.rounds.back());
    if (!goes_on && i >= balancing_rounds) break;
  }
  result.centroids = lloyd.take_centroids();
  if (params.allow_nonfinite) clear_nonfinite(result.centroids);
  return result;
}

// The rows of each region, and what they weigh.
struct Regions {
  std::vector<std::vector<std::int64_t>> members;
  std::vector<double> masses;
};

// Clusters for each region in proportion to the weight of its rows: at least one where there are rows, at most as many as rows.
std::vector<std::int64_t> shares_of(const Regions& regions, std::int64_t clusters) {
  std::int64_t usable = 0;
  for (const auto& rows : regions.members) usable += std::ssize(rows);
  require(clusters <= usable, Fault::invalid_argument, "clusters must be at most ", usable,
          ", the training rows at finite distances (cosine: that are not zero), got ", clusters);
  const double mass = std::accumulate(regions.masses.begin(), regions.masses.end(), 0.0);
  std::vector<std::int64_t> shares;
  std::priority_queue<std::pair<double, std::size_t>> wanting;  // how far each is below its due; the last of equal ones first
  std::int64_t left = clusters;
  const auto want = [&](std::size_t r) {
    const double due = mass > 0 ? static_cast<double>(clusters) * regions.masses[r] / mass : 0;
    if (shares[r] < std::ssize(regions.members[r])) wanting.emplace(due - static_cast<double>(shares[r]), r);
  };
  for (std::size_t r = 0; r < regions.members.size(); ++r) {
    shares.push_back(std::min<std::int64_t>(std::ssize(regions.members[r]), 1));
    left -= shares.back();
    want(r);
  }
  for (; left > 0; --left) {
    const std::size_t r = wanting.top().second;
    wanting.pop();
    ++shares[r];
    want(r);
  }
  return shares;
}

KMeans fit_two_levels(const Ops& ops, MatrixRef rows, std::span<const float> weights, const KMeansParams& params, const RunOptions& run) {
  const auto regions = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(params.clusters))));
  const auto weights_of = [&](const std::vector<std::int64_t>& some) {
    std::vector<float> chosen;
    for (const std::int64_t row : some) {
      if (!weights.empty()) chosen.push_back(weights[at(row)]);
    }
    return chosen;
  };
  KMeansParams simple = params;
  simple.balanced = false;
  Matrix coarse;
  {
    const std::int64_t few = std::min(rows.rows, rows_a_region * regions);
    const Training some = weights.empty() ? Training{sample_rows(rows.rows, few, params.seed + 1), {}}
                                          : draw_by_weight(weights, few, regions, params.seed + 1);
    coarse = fit_one_level(ops, gather_rows(rows, some.rows, run), some.weights, regions, simple, nullptr, run).centroids;
  }
  Regions found{std::vector<std::vector<std::int64_t>>(at(regions)), std::vector<double>(at(regions))};
  {
    std::vector<RowId> labels(at(rows.rows));
    std::vector<float> distances(labels.size());
    ops.start_assignment(rows, params.metric, DType::f32, regions, run)->assign(coarse, labels.data(), distances.data(), run);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      if (labels[at(i)] == no_row) continue;
      found.members[at(value_of(labels[at(i)]))].push_back(i);
      found.masses[at(value_of(labels[at(i)]))] += weights.empty() ? 1.0 : static_cast<double>(weights[at(i)]);
    }
  }
  const auto& members = found.members;
  const std::vector<std::int64_t> shares = shares_of(found, params.clusters);
  std::vector<std::int64_t> begins = {0};
  for (const std::int64_t share : shares) begins.push_back(begins.back() + share);
  KMeans result;
  result.centroids = Matrix(params.clusters, rows.cols, DType::f32);
  result.trained_rows = rows.rows;
  std::vector<std::vector<KMeansRound>> rounds(at(regions));
  // Regions side by side on a CPU; a GPU takes them one after the other.
  RunOptions outer = run, inner = run;
  (ops.space() == MemorySpace::host ? inner : outer).threads = 1;
  parallel_for(outer, regions, 1, [&](std::int64_t r, std::int64_t, int) {
    if (shares[at(r)] == 0) return;
    const Matrix mine = gather_rows(rows, members[at(r)]);
    KMeans fitted = fit_one_level(ops, mine, weights_of(members[at(r)]), shares[at(r)], params, nullptr, inner);
    std::copy_n(fitted.centroids.row<float>(0), shares[at(r)] * rows.cols, result.centroids.row<float>(begins[at(r)]));
    rounds[at(r)] = std::move(fitted.rounds);
  });
  std::size_t longest = 0;
  for (const auto& mine : rounds) longest = std::max(longest, mine.size());
  for (int i = 0; i < static_cast<int>(longest); ++i) {
    KMeansRound sum{.objective = 0, .imbalance = 0, .moved = 0, .empty = 0};
    double squares = 0, labelled = 0;
    for (std::size_t r = 0; r < rounds.size(); ++r) {
      if (rounds[r].empty()) continue;
      const bool over = at(i) >= rounds[r].size();  // it came to rest
      const KMeansRound& mine = over ? rounds[r].back() : rounds[r][at(i)];
      const double mass = found.masses[r];
      sum.objective += mine.objective;
      sum.moved += over ? 0 : mine.moved;
      sum.empty += mine.empty;
      squares += mine.imbalance * mass * mass / static_cast<double>(shares[r]);
      labelled += mass;
    }
    sum.imbalance = labelled > 0 ? static_cast<double>(params.clusters) * squares / (labelled * labelled) : 1;
    result.rounds.push_back(sum);
    if (params.on_round) params.on_round(i, sum);
  }
  return result;
}

}  // namespace

std::int64_t kmeans_training_rows(std::int64_t all, const KMeansParams& params) {
  const std::int64_t n = all - std::ssize(params.left_out);
  if (params.most_rows_a_cluster == 0 || params.most_rows_a_cluster >= n / params.clusters + 1) return n;
  return std::min(n, params.most_rows_a_cluster * params.clusters);
}

std::vector<std::int64_t> kmeans_sample(std::int64_t n, const KMeansParams& params) {
  return sample_rows_but(n, params.left_out, kmeans_training_rows(n, params), params.seed);
}

std::size_t kmeans_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, const KMeansParams& params, const RunOptions& run) {
  require(n >= 1 && d >= 1 && params.clusters >= 1, Fault::invalid_argument, "k-means needs rows, columns and clusters, got ", n, " x ", d,
          " in ", params.clusters);
  const Ops& ops = ops_of(params.device, params.shards);
  const std::int64_t rows = kmeans_training_rows(n, params);
  const bool sampled = rows < n, two_levels = in_two_levels(params), weighted = !params.weights.empty();
  const std::int64_t copy = d * static_cast<std::int64_t>(size_of(dtype)) + 12;
  // Labels twice, distances, factors, masses; labels that move, by cluster. Two levels: what has one region may be all.
  std::int64_t a_row = (sampled ? copy : 0) + (two_levels ? copy + 40 : 0) + 16 + 4 + 8 + 8 + 8 + 12;
  if (params.start == KMeansStart::plus_plus) a_row += 56;
  return at((sampled && weighted ? n * 4 : 0) + rows * a_row + params.clusters * (d + 2) * 16) +
         ops.assignment_bytes_needed(rows, d, params.metric, params.clusters, threads_of(run)) + ops.copies_to_sum_bytes(rows, d);
}

KMeans fit_kmeans(MatrixRef rows, const KMeansParams& params, const RunOptions& run) {
  const UsualFloats floats;
  const Ops& ops = ops_of(params.device, params.shards);
  require_kmeans(rows, params, run);
  const std::size_t needed = kmeans_bytes_needed(rows.rows, rows.cols, rows.dtype, params, run);
  require(run.memory_bytes == 0 || needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
          " bytes is too small: ", params.clusters, " clusters of ", kmeans_training_rows(rows.rows, params), " rows need ", needed);
  const std::int64_t trained = kmeans_training_rows(rows.rows, params);
  Matrix sample;
  Training training;
  std::span<const float> weights = params.weights;
  if (trained < rows.rows) {
    if (params.weights.empty()) {
      training.rows = kmeans_sample(rows.rows, params);
    } else {
      training = draw_by_weight(params.weights, trained, params.clusters, params.seed);
    }
    sample = gather_rows(rows, training.rows, run);
    rows = sample;
    weights = training.weights;
  }
  if (in_two_levels(params)) {
    const Progress::Quiet quiet(run.progress);
    return fit_two_levels(ops, rows, weights, params, run);
  }
  const auto on_round = [&](int round, const KMeansRound& found) {
    if (params.on_round) params.on_round(round, found);
  };
  return fit_one_level(ops, rows, weights, params.clusters, params, on_round, run);
}

Neighbors nearest_centroids(MatrixRef rows, MatrixRef centroids, Metric metric, const std::string& device, const RunOptions& run,
                            int shards) {
  const UsualFloats floats;
  Neighbors found(rows.rows, 1);
  if (rows.rows == 0) return found;
  require_columns(rows, "the rows");
  require_columns(centroids, "the centroids");
  // Rows that look once need no codes of their own that are kept.
  const auto once = ops_of(device, shards).Ops::start_assignment(rows, metric, DType::f32, centroids.rows, run);
  once->assign(centroids, found.ids.data(), found.distances.data(), run);
  return found;
}

std::size_t nearest_centroids_bytes_needed(std::int64_t n, std::int64_t d, std::int64_t clusters, Metric metric, const std::string& device,
                                           const RunOptions& run, int shards) {
  return at(n) * (sizeof(RowId) + sizeof(float)) +
         ops_of(device, shards).Ops::assignment_bytes_needed(n, d, metric, clusters, threads_of(run));
}

}  // namespace gigaknn
