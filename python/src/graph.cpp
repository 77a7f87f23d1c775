// k-NN graphs: built, changed, walked, written and read.
#include <gigaknn/eval.hpp>
#include <gigaknn/graph.hpp>
#include <gigaknn/index.hpp>
#include <gigaknn/path.hpp>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bind.hpp"
#include "core/require.hpp"
#include "run.hpp"

namespace gigaknn::python {
namespace {

using Labels = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IdLists = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using DistanceLists = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

KnnGraph graph_of(const DistanceLists& distances, const IdLists& ids, const std::string& metric, bool exact, const std::optional<std::string>& only) {
  const WithoutGil released;
  require(ids.shape(0) == distances.shape(0) && ids.shape(1) == distances.shape(1), Fault::invalid_argument, "a graph has one distance for each id, got [", distances.shape(0),
          ", ", distances.shape(1), "] distances and [", ids.shape(0), ", ", ids.shape(1), "] ids");
  require(ids.shape(1) >= 1, Fault::invalid_argument, "a graph has lists of at least 1 row");
  KnnGraph graph;
  graph.metric = metric_of(metric);
  graph.exact = exact;
  if (only) graph.only = *only == "same" ? Only::same : Only::other;
  graph.method = "from arrays";
  graph.lists.queries = static_cast<std::int64_t>(ids.shape(0));
  graph.lists.k = static_cast<std::int64_t>(ids.shape(1));
  graph.lists.distances.assign(distances.data(), distances.data() + distances.size());
  graph.lists.ids.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) graph.lists.ids.push_back(RowId{ids.data()[i]});
  const GraphFaults faults = check_graph(graph, unwatched());
  require(faults.sound(), Fault::invalid_argument, "these lists are no graph: ", faults.out_of_range, " ids are no rows, ", faults.self, " rows name themselves, ", faults.duplicates,
          " ids stand twice in a list, ", faults.unsorted, " lists are out of order");
  return graph;
}

template <class Element, class Kept>
nb::object lists_of(nb::handle self, const LargeVector<Kept>& values) {
  const Neighbors& lists = nb::cast<const KnnGraph&>(self).lists;
  return array_of(reinterpret_cast<const Element*>(values.data()), {static_cast<std::size_t>(lists.queries), static_cast<std::size_t>(lists.k)}, self);
}

MergeParams merge_params(const std::string& method, double recall, std::uint64_t seed, const std::string& device, int shards, bool allow_nonfinite) {
  MergeParams params;
  params.method = method;
  params.recall = recall;
  params.seed = seed;
  params.device = device;
  params.shards = shards;
  params.allow_nonfinite = allow_nonfinite;
  return params;
}

}  // namespace

void bind_graph(nb::module_& m) {
  nb::class_<Recall>(m, "Recall")
      .def_ro("at", &Recall::at)
      .def_ro("value", &Recall::value)
      .def_ro("low", &Recall::low)
      .def_ro("high", &Recall::high)
      .def_ro("sampled", &Recall::sampled);

  nb::class_<KnnGraph>(m, "KnnGraph")
      .def_static("of", &graph_of, nb::arg("distances"), nb::arg("ids"), nb::arg("metric"), nb::arg("exact"), nb::arg("only").none())
      .def_prop_ro("metric", [](const KnnGraph& graph) { return std::string(name_of(graph.metric)); })
      .def_ro("exact", &KnnGraph::exact)
      .def_prop_ro("only", [](const KnnGraph& graph) -> std::optional<std::string> {
        if (!graph.only) return std::nullopt;
        return graph.only == Only::same ? "same" : "other";
      })
      .def_ro("method", &KnnGraph::method)
      .def_ro("doubts", &KnnGraph::doubts)
      .def_ro("recall", &KnnGraph::recall)
      .def_prop_ro("ids", [](nb::handle self) { return lists_of<std::int64_t>(self, nb::cast<const KnnGraph&>(self).lists.ids); })
      .def_prop_ro("distances", [](nb::handle self) { return lists_of<float>(self, nb::cast<const KnnGraph&>(self).lists.distances); })
      .def("measure",
           [](KnnGraph& graph, const Rows& base, std::int64_t sample, std::uint64_t seed, const Run& run) {
             graph.recall = run_released(run, [&](const RunOptions& options) { return sampled_recall(graph, base.matrix(), sample, seed, options); });
           },
           nb::arg("base"), nb::arg("sample"), nb::arg("seed"), nb::arg("run"))
      .def("shape",
           [](const KnnGraph& graph, const Run& run) {
             auto [shape, faults] = run_released(run, [&](const RunOptions& options) { return std::pair(shape_of(graph, options), check_graph(graph, options)); });
             const std::size_t rows = shape.in_degree.size();
             return nb::make_tuple(shape.components, shape.largest_component, array_of<std::int64_t>(std::move(shape.in_degree), {rows}), faults.missing);
           },
           nb::arg("run"))
      .def("paths",
           [](const KnnGraph& graph, std::int64_t from, std::int64_t to, std::int64_t count, bool directed, const Run& run) {
             std::vector<Path> paths = run_released(run, [&](const RunOptions& options) { return smooth_paths(graph, RowId{from}, RowId{to}, count, directed, options); });
             nb::list result;
             for (Path& path : paths) {
               if (path.rows.empty()) continue;
               const std::size_t rows = path.rows.size(), steps = path.steps.size();
               result.append(nb::make_tuple(ids_array(std::move(path.rows), {rows}), array_of<float>(std::move(path.steps), {steps}), path.largest_step));
             }
             return result;
           },
           nb::arg("from_row"), nb::arg("to_row"), nb::arg("count"), nb::arg("directed"), nb::arg("run"))
      .def("merge",
           [](const KnnGraph& a, const Rows& base_a, const KnnGraph& b, const Rows& base_b, const std::string& method, double recall, std::uint64_t seed, const std::string& device,
              int shards, bool allow_nonfinite, const Run& run) {
             return run_released(run, [&](const RunOptions& options) {
               return merge_graphs(a, base_a.matrix(), b, base_b.matrix(), merge_params(method, recall, seed, device, shards, allow_nonfinite), options).graph;
             });
           },
           nb::arg("base"), nb::arg("other"), nb::arg("other_base"), nb::arg("method"), nb::arg("recall"), nb::arg("seed"), nb::arg("device"), nb::arg("shards"),
           nb::arg("allow_nonfinite"), nb::arg("run"))
      .def("extend",
           [](const KnnGraph& graph, const Rows& base, const Rows& added, const std::string& method, double recall, std::uint64_t seed, const std::string& device, int shards,
              bool allow_nonfinite, const Run& run) {
             return run_released(run, [&](const RunOptions& options) {
               return extend_graph(graph, base.matrix(), added.matrix(), merge_params(method, recall, seed, device, shards, allow_nonfinite), options).graph;
             });
           },
           nb::arg("base"), nb::arg("added"), nb::arg("method"), nb::arg("recall"), nb::arg("seed"), nb::arg("device"), nb::arg("shards"), nb::arg("allow_nonfinite"), nb::arg("run"))
      .def("remove",
           [](const KnnGraph& graph, const Rows& base, const Ids& removed, const std::string& device, int shards, bool allow_nonfinite, const Run& run) {
             ReducedGraph reduced = run_released(run, [&](const RunOptions& options) {
               return remove_rows(graph, base.matrix(), row_ids_of(removed), merge_params("auto", 1, 0, device, shards, allow_nonfinite), options);
             });
             const std::size_t rows = reduced.new_id.size();
             return nb::make_tuple(std::move(reduced.graph), ids_array(std::move(reduced.new_id), {rows}));
           },
           nb::arg("base"), nb::arg("ids"), nb::arg("device"), nb::arg("shards"), nb::arg("allow_nonfinite"), nb::arg("run"))
      .def("save",
           [](const KnnGraph& graph, const std::filesystem::path& path, const Run& run) {
             run_released(run, [&](const RunOptions& options) { save_graph(graph, path, options); });
           },
           nb::arg("path"), nb::arg("run"))
      .def_static("load",
                  [](const std::filesystem::path& path, const Run& run) {
                    return run_released(run, [&](const RunOptions& options) { return load_graph(path, options); });
                  },
                  nb::arg("path"), nb::arg("run"));

  m.def(
      "build_graph",
      [](const Rows& base, std::int64_t k, const std::string& metric, const std::string& method, double recall, std::uint64_t seed, const std::string& device, int shards,
         bool allow_nonfinite, const std::optional<Labels>& labels, bool same_label, const Run& run) {
        GraphParams params;
        params.k = k;
        params.metric = metric_of(metric);
        params.method = method;
        params.recall = recall;
        params.seed = seed;
        params.device = device;
        params.shards = shards;
        params.allow_nonfinite = allow_nonfinite;
        return run_released(run, [&](const RunOptions& options) {
          if (!labels) return build_graph(base.matrix(), params, options);
          return build_grouped_graph(base.matrix(), {labels->data(), labels->data() + labels->size()}, same_label ? Only::same : Only::other, params, options);
        });
      },
      nb::arg("base"), nb::arg("k"), nb::arg("metric"), nb::arg("method"), nb::arg("recall"), nb::arg("seed"), nb::arg("device"), nb::arg("shards"), nb::arg("allow_nonfinite"),
      nb::arg("labels").none(), nb::arg("same_label"), nb::arg("run"));
  m.def(
      "search_graph",
      [](const Rows& base, std::int64_t k, const std::string& recipe, std::int64_t nprobe, std::int64_t refine, const std::string& metric, std::uint64_t seed,
         const std::string& device, bool allow_nonfinite, const Run& run) {
        IndexParams params;
        params.recipe = recipe;
        params.metric = metric_of(metric);
        params.seed = seed;
        params.device = device;
        params.allow_nonfinite = allow_nonfinite;
        SearchParams search;
        search.nprobe = nprobe;
        search.refine = refine;
        return run_released(run, [&](const RunOptions& options) {
          KnnGraph graph = search_graph(base.matrix(), k, params, search, options);
          graph.doubts = data_doubts(graph, base.matrix(), options);
          return graph;
        });
      },
      nb::arg("base"), nb::arg("k"), nb::arg("recipe"), nb::arg("nprobe"), nb::arg("refine"), nb::arg("metric"), nb::arg("seed"), nb::arg("device"), nb::arg("allow_nonfinite"),
      nb::arg("run"));
  m.def(
      "radius_graph",
      [](const Rows& base, float radius, const std::string& metric, const std::string& device, int shards, bool allow_nonfinite, const Run& run) {
        const RadiusGraphParams params{metric_of(metric), device, shards, allow_nonfinite};
        return offsets_distances_and_ids(run_released(run, [&](const RunOptions& options) { return radius_graph(base.matrix(), radius, params, options); }));
      },
      nb::arg("base"), nb::arg("radius"), nb::arg("metric"), nb::arg("device"), nb::arg("shards"), nb::arg("allow_nonfinite"), nb::arg("run"));
  m.def(
      "duplicates",
      [](const Rows& base, float radius, const std::string& metric, const std::string& device, int shards, bool allow_nonfinite, const Run& run) {
        const DuplicateParams params{metric_of(metric), device, shards, allow_nonfinite};
        DuplicateGroups groups = run_released(run, [&](const RunOptions& options) { return find_duplicates(base.matrix(), radius, params, options); });
        const std::size_t rows = groups.first.size();
        return ids_array(std::move(groups.first), {rows});
      },
      nb::arg("base"), nb::arg("radius"), nb::arg("metric"), nb::arg("device"), nb::arg("shards"), nb::arg("allow_nonfinite"), nb::arg("run"));
}

}  // namespace gigaknn::python
