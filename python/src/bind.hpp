// What the module `gigaknn._core` is made of: a file a subject. The public names, with their documents, are in python/gigaknn.
#pragma once

#include <nanobind/nanobind.h>

namespace gigaknn::python {

void bind_errors(nanobind::module_& m);
void bind_run(nanobind::module_& m);
void bind_arrays(nanobind::module_& m);
void bind_device(nanobind::module_& m);
void bind_search(nanobind::module_& m);
void bind_graph(nanobind::module_& m);
void bind_index(nanobind::module_& m);
void bind_kmeans(nanobind::module_& m);
void bind_eval(nanobind::module_& m);

}  // namespace gigaknn::python
