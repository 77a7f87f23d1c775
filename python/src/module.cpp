#include "bind.hpp"

#include <gigaknn/gigaknn.hpp>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

NB_MODULE(_core, m) {
  using namespace gigaknn;
  // The child of a fork leaves what its parent's threads hold.
  nb::set_leak_warnings(false);
  m.def("version", [] { return version(); });
  m.def("commit", [] { return commit(); });
  m.def("devices", &devices);
  m.def("isa_of", &isa_of, nb::arg("device"));
  m.def("available_threads", &available_threads);
  m.def("metrics", [] {
    std::vector<std::string> names;
    for (const Metric metric : all_metrics()) names.emplace_back(name_of(metric));
    return names;
  });
  python::bind_errors(m);
  python::bind_run(m);
  python::bind_arrays(m);
  python::bind_device(m);
  python::bind_search(m);
  python::bind_graph(m);
  python::bind_index(m);
  python::bind_kmeans(m);
  python::bind_eval(m);
}
