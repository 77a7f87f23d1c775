#include <gigaknn/device.hpp>

#include <string>

#include "core/require.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/gpu/gpu_ops.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

std::vector<std::string> devices() {
  std::vector<std::string> names = gpu::names();
  names.insert(names.begin(), "cpu");
  return names;
}

std::string cpu_isa() { return ops_of("cpu").isa(); }

const Ops& ops_of(const std::string& device) {
  // "cpu:avx2" and its kind force an instruction set; tests and benchmarks use them.
  if (const Ops* ops = cpu::find_ops(device)) return *ops;
  if (const Ops* ops = gpu::find_ops(device)) return *ops;
  std::string names = cpu::list_of_names();
  for (const std::string& name : gpu::names()) names += ", " + name;
  fail(Fault::device, "no device '", device, "': this build has ", names);
}

}  // namespace gigaknn
