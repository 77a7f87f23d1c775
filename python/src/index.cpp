// Indexes: made, searched, changed, written and opened, with the recall that they reach.
#include <gigaknn/faiss.hpp>
#include <gigaknn/index.hpp>
#include <gigaknn/tune.hpp>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bind.hpp"
#include "core/require.hpp"
#include "index/recipe.hpp"
#include "run.hpp"

namespace gigaknn::python {
namespace {

// An index, and the rows that it may have borrowed.
struct HeldIndex {
  nb::object rows;
  std::unique_ptr<Index> index;
};

// What several calls see alike.
struct HeldMoment {
  std::shared_ptr<const Moment> moment;
};

std::vector<RowId> ids_of_rows(const std::optional<Ids>& ids, std::int64_t rows) {
  if (!ids) return {};
  std::vector<RowId> row_ids = row_ids_of(*ids);
  require(std::ssize(row_ids) == rows, Fault::invalid_argument, row_ids.size(), " ids are not those of ", rows, " rows");
  return row_ids;
}

// Of what an index says of itself: it may wait for a change of another thread, which may wait for the GIL.
template <class Question>
auto ask(Question question) {
  return [question](const HeldIndex& held) {
    WithoutGil released;
    return question(*held.index);
  };
}

std::optional<IdSet> id_set_of(const std::optional<Ids>& only, const std::optional<Ids>& exclude) {
  if (only) return IdSet::of_ids(row_ids_of(*only));
  if (exclude) return IdSet::all_but(row_ids_of(*exclude));
  return std::nullopt;
}

SearchParams search_params(std::optional<std::int64_t> nprobe, std::optional<std::int64_t> refine, const std::optional<IdSet>& only, const HeldMoment& held) {
  SearchParams params;
  params.moment = held.moment;
  if (nprobe) params.nprobe = *nprobe;
  if (refine) params.refine = *refine;
  params.only = only ? &*only : nullptr;
  return params;
}

IndexParams index_params(const std::string& recipe, const std::string& metric, int iterations, std::uint64_t seed, std::int64_t held_out, const std::vector<RowId>& ids,
                         const std::string& device, bool allow_nonfinite, std::int64_t k) {
  IndexParams params;
  params.recipe = recipe;
  params.metric = metric_of(metric);
  params.iterations = iterations;
  params.seed = seed;
  params.held_out = held_out;
  params.ids = ids;
  params.device = device;
  params.allow_nonfinite = allow_nonfinite;
  params.expected_k = k;
  return params;
}

// Packed bits have no index but this one, which does not change.
std::unique_ptr<Index> make(MatrixRef base, const IndexParams& params, const RunOptions& options) {
  if (!on_bits(params.metric) || params.recipe != "Flat") return make_index(base, params, options);
  require(params.ids.empty(), Fault::unsupported, "an index of packed bits calls rows by their numbers: it takes keys, and no ids");
  FlatParams flat;
  flat.metric = params.metric;
  flat.device = params.device;
  flat.expected_k = params.expected_k;
  return make_flat_index(base, flat, options);
}

void bind_curve(nb::module_& m) {
  nb::class_<OperatingPoint>(m, "OperatingPoint")
      .def_ro("nprobe", &OperatingPoint::nprobe)
      .def_ro("refine", &OperatingPoint::refine)
      .def_ro("recall", &OperatingPoint::recall)
      .def_ro("seconds", &OperatingPoint::seconds);
  nb::class_<RecallCurve>(m, "RecallCurve")
      .def_ro("k", &RecallCurve::k)
      .def_ro("queries", &RecallCurve::queries)
      .def_ro("held_out", &RecallCurve::held_out)
      .def_ro("rows", &RecallCurve::rows)
      .def_ro("threads", &RecallCurve::threads)
      .def_ro("points", &RecallCurve::points)
      .def("point_for", nb::overload_cast<double, std::int64_t>(&RecallCurve::point_for, nb::const_), nb::arg("recall"), nb::arg("of"));
}

// Files of Faiss.
void bind_faiss(nb::module_& m) {
  nb::class_<FaissFacts>(m, "FaissFacts")
      .def_ro("kind", &FaissFacts::kind)
      .def_ro("metric", &FaissFacts::metric)
      .def_ro("rows", &FaissFacts::rows)
      .def_ro("cols", &FaissFacts::cols)
      .def_ro("lists", &FaissFacts::lists)
      .def_ro("nprobe", &FaissFacts::nprobe)
      .def_ro("k_factor", &FaissFacts::k_factor);
  nb::enum_<FaissMap>(m, "FaissMap").value("where_needed", FaissMap::where_needed).value("id_map", FaissMap::id_map).value("id_map2", FaissMap::id_map2);
  m.def("describe_faiss", &describe_faiss, nb::arg("path"), nb::call_guard<WithoutGil>());
  m.def(
      "import_faiss",
      [](const std::filesystem::path& from, const std::filesystem::path& to, const Run& run) {
        return run_released(run, [&](const RunOptions& options) { return import_faiss(from, to, options); });
      },
      nb::arg("from_"), nb::arg("to"), nb::arg("run"));
  m.def(
      "export_faiss",
      [](const std::filesystem::path& from, const std::filesystem::path& to, std::int64_t nprobe, float k_factor, FaissMap map, const Run& run) {
        run_released(run, [&](const RunOptions& options) { export_faiss(from, to, options, {.nprobe = nprobe, .k_factor = k_factor, .map = map}); });
      },
      nb::arg("from_"), nb::arg("to"), nb::arg("nprobe"), nb::arg("k_factor"), nb::arg("map"), nb::arg("run"));
}

}  // namespace

void bind_index(nb::module_& m) {
  bind_curve(m);
  nb::class_<HeldMoment>(m, "Moment").def_prop_ro("version", [](const HeldMoment& held) { return held.moment ? held.moment->version : 0; });
  nb::class_<HeldIndex>(m, "Index")
      .def_prop_ro("rows", ask([](const Index& index) { return index.rows(); }))
      .def_prop_ro("cols", ask([](const Index& index) { return index.cols(); }))
      .def_prop_ro("dtype", ask([](const Index& index) { return std::string(name_of(index.dtype())); }))
      .def_prop_ro("metric", ask([](const Index& index) { return std::string(name_of(index.metric())); }))
      .def_prop_ro("lists", ask([](const Index& index) { return index.lists(); }))
      .def_prop_ro("kind", ask([](const Index& index) { return std::string(index.kind()); }))
      .def_prop_ro("keeps_rows", ask([](const Index& index) { return index.keeps_rows(); }))
      .def_prop_ro("refines", ask([](const Index& index) { return index.refines(); }))
      .def_prop_ro("next_id", ask([](const Index& index) { return index.next_id(); }))
      .def_prop_ro("description", ask([](const Index& index) { return index.description(); }))
      .def("search",
           [](const HeldIndex& held, const Rows& queries, std::int64_t k, std::optional<std::int64_t> nprobe, std::optional<std::int64_t> refine, const std::optional<Ids>& only,
              const std::optional<Ids>& exclude, const HeldMoment& moment, const Run& run) {
             return distances_and_ids(run_released(run, [&](const RunOptions& options) {
               const std::optional<IdSet> set = id_set_of(only, exclude);
               return held.index->search(queries.matrix(), k, search_params(nprobe, refine, set, moment), options);
             }));
           },
           nb::arg("queries"), nb::arg("k"), nb::arg("nprobe").none(), nb::arg("refine").none(), nb::arg("only").none(), nb::arg("exclude").none(), nb::arg("moment"), nb::arg("run"))
      .def("search_radius",
           [](const HeldIndex& held, const Rows& queries, float radius, std::optional<std::int64_t> nprobe, std::optional<std::int64_t> refine, const std::optional<Ids>& only,
              const std::optional<Ids>& exclude, const HeldMoment& moment, const Run& run) {
             return offsets_distances_and_ids(run_released(run, [&](const RunOptions& options) {
               const std::optional<IdSet> set = id_set_of(only, exclude);
               return held.index->search_radius(queries.matrix(), radius, search_params(nprobe, refine, set, moment), options);
             }));
           },
           nb::arg("queries"), nb::arg("radius"), nb::arg("nprobe").none(), nb::arg("refine").none(), nb::arg("only").none(), nb::arg("exclude").none(), nb::arg("moment"), nb::arg("run"))
      .def("search_all",
           [](const HeldIndex& held, const Rows& queries, std::int64_t k, const std::optional<Ids>& only, const std::optional<Ids>& exclude, const HeldMoment& moment, const Run& run) {
             return distances_and_ids(run_released(run, [&](const RunOptions& options) {
               const std::optional<IdSet> set = id_set_of(only, exclude);
               return held.index->search_all(queries.matrix(), k, search_params({}, {}, set, moment), options);
             }));
           },
           nb::arg("queries"), nb::arg("k"), nb::arg("only").none(), nb::arg("exclude").none(), nb::arg("moment"), nb::arg("run"))
      .def("moment", ask([](const Index& index) { return HeldMoment{index.moment()}; }))
      .def("add",
           [](HeldIndex& held, const Rows& rows, const std::optional<Ids>& ids, bool replace, const Run& run) {
             run_released(run, [&](const RunOptions& options) {
               const std::vector<RowId> row_ids = ids_of_rows(ids, rows.matrix().rows);
               replace ? held.index->update(rows.matrix(), row_ids, options) : held.index->add(rows.matrix(), row_ids, options);
             });
           },
           nb::arg("rows"), nb::arg("ids").none(), nb::arg("replace"), nb::arg("run"))
      .def("remove",
           [](HeldIndex& held, const Ids& ids) {
             const WithoutGil released;
             held.index->remove(row_ids_of(ids));
           },
           nb::arg("ids"))
      .def("reconstruct",
           [](const HeldIndex& held, const Ids& ids) {
             Matrix rows;
             {
               const WithoutGil released;
               rows = held.index->reconstruct(row_ids_of(ids));
             }
             return matrix_array(std::move(rows));
           },
           nb::arg("ids"))
      .def("ids",
           [](const HeldIndex& held, const HeldMoment& moment) {
             std::vector<RowId> ids = ask([&](const Index& index) { return index.ids_at(moment.moment); })(held);
             const std::size_t count = ids.size();
             return ids_array(std::move(ids), {count});
           },
           nb::arg("moment"))
      .def("held_out",
           [](const HeldIndex& held) {
             std::vector<RowId> ids = ask([](const Index& index) { return index.held_out(); })(held);
             const std::size_t count = ids.size();
             return ids_array(std::move(ids), {count});
           })
      .def("save", [](const HeldIndex& held, const std::filesystem::path& path, const Run& run) {
             run_released(run, [&](const RunOptions& options) { held.index->save(path, options); });
           },
           nb::arg("path"), nb::arg("run"))
      .def("measure",
           [](const HeldIndex& held, const std::optional<Rows>& queries, std::int64_t k, double until, double seconds, std::uint64_t seed, const Run& run) {
             CurveParams params;
             params.k = k;
             params.until = until;
             params.seconds = seconds;
             params.seed = seed;
             return run_released(run, [&](const RunOptions& options) {
               return queries ? measure_curve(*held.index, queries->matrix(), params, options) : measure_curve_by_own_rows(*held.index, params, options);
             });
           },
           nb::arg("queries").none(), nb::arg("k"), nb::arg("until"), nb::arg("seconds"), nb::arg("seed"), nb::arg("run"));

  bind_faiss(m);
  m.def("check_recipe", [](const std::string& recipe) { parse_recipe(recipe); }, nb::arg("recipe"));
  m.def("recipe_keeps_rows", [](const std::string& recipe) { return parse_recipe(recipe).keeps_rows(); }, nb::arg("recipe"));
  m.def("rows_to_hold_out", &rows_to_hold_out, nb::arg("n"));
  m.def(
      "make_index",
      [](nb::handle base, const std::string& recipe, const std::string& metric, const std::optional<Ids>& ids, int iterations, std::uint64_t seed, std::int64_t held_out,
         std::int64_t k, const std::string& device, bool allow_nonfinite, const Run& run) {
        const MatrixRef rows = nb::cast<const Rows&>(base).matrix();
        auto index = run_released(run, [&](const RunOptions& options) {
          const std::vector<RowId> row_ids = ids_of_rows(ids, rows.rows);
          return make(rows, index_params(recipe, metric, iterations, seed, held_out, row_ids, device, allow_nonfinite, k), options);
        });
        return HeldIndex{nb::borrow(base), std::move(index)};
      },
      nb::arg("base"), nb::arg("recipe"), nb::arg("metric"), nb::arg("ids").none(), nb::arg("iterations"), nb::arg("seed"), nb::arg("held_out"), nb::arg("k"), nb::arg("device"),
      nb::arg("allow_nonfinite"), nb::arg("run"));
  m.def(
      "choose_index",
      [](const Rows& base, double recall, std::int64_t k, bool memory_first, const std::string& metric, int iterations, std::uint64_t seed, const std::string& device,
         bool allow_nonfinite, const Run& run) {
        ChoiceParams params;
        params.recall = recall;
        params.k = k;
        params.memory_first = memory_first;
        params.index = index_params(params.index.recipe, metric, iterations, seed, 0, {}, device, allow_nonfinite, k);
        return run_released(run, [&](const RunOptions& options) { return choose_index(base.matrix(), params, options).recipe; });
      },
      nb::arg("base"), nb::arg("recall"), nb::arg("k"), nb::arg("memory_first"), nb::arg("metric"), nb::arg("iterations"), nb::arg("seed"), nb::arg("device"),
      nb::arg("allow_nonfinite"), nb::arg("run"));
  m.def(
      "open_index",
      [](const std::filesystem::path& path, const std::string& device, int shards, std::int64_t k, bool map, const Run& run) {
        OpenParams params;
        params.device = device;
        params.shards = shards;
        params.expected_k = k;
        params.map = map;
        return HeldIndex{nb::none(), run_released(run, [&](const RunOptions& options) { return open_index(path, params, options); })};
      },
      nb::arg("path"), nb::arg("device"), nb::arg("shards"), nb::arg("k"), nb::arg("map"), nb::arg("run"));
  m.def("stored_curve", &stored_curve, nb::arg("path"), nb::call_guard<WithoutGil>());
  m.def(
      "store_curve",
      [](const std::filesystem::path& path, const RecallCurve& curve, const Run& run) {
        run_released(run, [&](const RunOptions& options) { store_curve(path, curve, options); });
      },
      nb::arg("path"), nb::arg("curve"), nb::arg("run"));
}

}  // namespace gigaknn::python
