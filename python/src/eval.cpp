// Recall of results.
#include <gigaknn/eval.hpp>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "arrays.hpp"
#include "bind.hpp"
#include "core/require.hpp"
#include "gil.hpp"

namespace gigaknn::python {
namespace {

using IdLists = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using DistanceLists = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Without distances these are left empty: then hits are by id alone.
Neighbors neighbors_of(const IdLists& ids, const std::optional<DistanceLists>& distances, const char* what) {
  Neighbors result;
  result.queries = static_cast<std::int64_t>(ids.shape(0));
  result.k = static_cast<std::int64_t>(ids.shape(1));
  result.ids.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) result.ids.push_back(RowId{ids.data()[i]});
  if (distances) {
    require(distances->shape(0) == ids.shape(0) && distances->shape(1) == ids.shape(1), Fault::invalid_argument, "the distances of the ", what, " must be [", ids.shape(0), ", ",
            ids.shape(1), "] as its ids are, got [", distances->shape(0), ", ", distances->shape(1), "]");
    result.distances.assign(distances->data(), distances->data() + distances->size());
  }
  return result;
}

}  // namespace

void bind_eval(nb::module_& m) {
  m.def(
      "recall_at",
      [](const IdLists& ids, const std::optional<DistanceLists>& distances, const IdLists& truth, const std::optional<DistanceLists>& truth_distances, std::int64_t at,
         const std::string& metric) {
        const WithoutGil released;
        return recall_at(neighbors_of(ids, distances, "result"), neighbors_of(truth, truth_distances, "truth"), at, metric_of(metric));
      },
      nb::arg("ids"), nb::arg("distances").none(), nb::arg("truth"), nb::arg("truth_distances").none(), nb::arg("at"), nb::arg("metric"));
}

}  // namespace gigaknn::python
