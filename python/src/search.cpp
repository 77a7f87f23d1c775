// Exact searches of rows: an index that lives for one call.
#include <algorithm>

#include <gigaknn/index.hpp>
#include <nanobind/stl/string.h>

#include "arrays.hpp"
#include "bind.hpp"
#include "run.hpp"

namespace gigaknn::python {
namespace {

// Searches `base` by `search(index, options)`; k = 0: within a radius.
template <class Search>
auto search_rows(MatrixRef base, MatrixRef queries, std::int64_t k, const std::string& metric, const std::string& device, int shards, bool allow_nonfinite, const Run& run,
                 Search&& search) {
  return run_released(run, [&](const RunOptions& options) {
    FlatParams params;
    params.metric = metric_of(metric);
    params.device = device;
    params.shards = shards;
    params.expected_k = std::max<std::int64_t>(1, k);
    params.within_radius = k == 0;
    params.expected_queries = queries.rows;
    params.allow_nonfinite = allow_nonfinite;
    return search(*make_flat_index(base, params, options), options);
  });
}

}  // namespace

void bind_search(nb::module_& m) {
  m.def(
      "knn",
      [](const Rows& queries, const Rows& base, std::int64_t k, const std::string& metric, const std::string& device, int shards, bool allow_nonfinite, const Run& run) {
        return distances_and_ids(search_rows(base.matrix(), queries.matrix(), k, metric, device, shards, allow_nonfinite, run,
                                             [&](const Index& index, const RunOptions& options) { return index.search(queries.matrix(), k, options); }));
      },
      nb::arg("queries"), nb::arg("base"), nb::arg("k"), nb::arg("metric"), nb::arg("device"), nb::arg("shards"), nb::arg("allow_nonfinite"), nb::arg("run"));
  m.def(
      "radius_search",
      [](const Rows& queries, const Rows& base, float radius, const std::string& metric, const std::string& device, int shards, bool allow_nonfinite, const Run& run) {
        return offsets_distances_and_ids(
            search_rows(base.matrix(), queries.matrix(), 0, metric, device, shards, allow_nonfinite, run,
                        [&](const Index& index, const RunOptions& options) { return index.search_radius(queries.matrix(), radius, options); }));
      },
      nb::arg("queries"), nb::arg("base"), nb::arg("radius"), nb::arg("metric"), nb::arg("device"), nb::arg("shards"), nb::arg("allow_nonfinite"), nb::arg("run"));
}

}  // namespace gigaknn::python
