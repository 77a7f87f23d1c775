// k-means, and the nearest centroid of rows.
#include <gigaknn/kmeans.hpp>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "arrays.hpp"
#include "bind.hpp"
#include "core/require.hpp"
#include "run.hpp"

namespace gigaknn::python {
namespace {

using Weights = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

KMeansStart start_of(const std::string& name) {
  require(name == "random" || name == "plus-plus", Fault::invalid_argument, "start must be random or plus-plus, got '", name, "'");
  return name == "random" ? KMeansStart::random : KMeansStart::plus_plus;
}

KMeansLevels levels_of(std::optional<int> levels) {
  require(!levels || *levels == 1 || *levels == 2, Fault::invalid_argument, "levels must be 1, 2 or None, got ", levels.value_or(0));
  return !levels ? KMeansLevels::automatic : *levels == 1 ? KMeansLevels::one : KMeansLevels::two;
}

}  // namespace

void bind_kmeans(nb::module_& m) {
  m.def(
      "kmeans",
      [](const Rows& rows, std::int64_t clusters, int iterations, const std::string& metric, const std::string& start, std::optional<int> levels, std::int64_t rows_a_cluster,
         bool balanced, const std::optional<Weights>& weights, std::uint64_t seed, const std::string& device, int shards, bool allow_nonfinite, const Run& run) {
        KMeansParams params;
        params.clusters = clusters;
        params.iterations = iterations;
        params.metric = metric_of(metric);
        params.start = start_of(start);
        params.levels = levels_of(levels);
        params.most_rows_a_cluster = rows_a_cluster;
        params.balanced = balanced;
        if (weights) params.weights = {weights->data(), weights->size()};
        params.seed = seed;
        params.device = device;
        params.shards = shards;
        params.allow_nonfinite = allow_nonfinite;
        KMeans found = run_released(run, [&](const RunOptions& options) { return fit_kmeans(rows.matrix(), params, options); });
        nb::list rounds;
        for (const KMeansRound& round : found.rounds) rounds.append(nb::make_tuple(round.objective, round.imbalance, round.moved, round.empty));
        return nb::make_tuple(matrix_array(std::move(found.centroids)), found.trained_rows, rounds);
      },
      nb::arg("rows"), nb::arg("clusters"), nb::arg("iterations"), nb::arg("metric"), nb::arg("start"), nb::arg("levels").none(), nb::arg("rows_a_cluster"), nb::arg("balanced"),
      nb::arg("weights").none(), nb::arg("seed"), nb::arg("device"), nb::arg("shards"), nb::arg("allow_nonfinite"), nb::arg("run"));
  m.def(
      "nearest_centroids",
      [](const Rows& rows, const Rows& centroids, const std::string& metric, const std::string& device, const Run& run) {
        Neighbors nearest =
            run_released(run, [&](const RunOptions& options) { return nearest_centroids(rows.matrix(), centroids.matrix(), metric_of(metric), device, options); });
        const auto n = static_cast<std::size_t>(nearest.queries);
        return nb::make_tuple(array_of<float>(std::move(nearest.distances), {n}), ids_array(std::move(nearest.ids), {n}));
      },
      nb::arg("rows"), nb::arg("centroids"), nb::arg("metric"), nb::arg("device"), nb::arg("run"));
}

}  // namespace gigaknn::python
