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
  m.def("devices", &devices,
        "What `device=` may name: \"cpu\", then \"emulated\", a GPU for tests, or \"cuda:0\" and its kind.\n\nReturns\n-------\nlist of str\n    The default first.\n\n"
        "Examples\n--------\n>>> import gigaknn\n>>> gigaknn.devices()[0]\n'cpu'");
  m.def("isa_of", &isa_of, nb::arg("device"),
        "What a device computes with.\n\nParameters\n----------\ndevice : str\n    As of `devices`.\n\nReturns\n-------\nstr\n"
        "    Of \"cpu\" the instruction set: \"avx512vnni\", \"avx2\" or \"generic\"; of a GPU its name.");
  m.def("available_threads", &available_threads, "How many threads a call has by default.\n\nReturns\n-------\nint\n    What the affinity mask and the cgroup allow this process.");
  m.def(
      "metrics",
      [] {
        std::vector<std::string> names;
        for (const Metric metric : all_metrics()) names.emplace_back(name_of(metric));
        return names;
      },
      "What `metric=` may name.\n\nReturns\n-------\nlist of str");
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
