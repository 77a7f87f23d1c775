#include <gigaknn/device.hpp>

#include <string>

#include "core/require.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

std::vector<std::string> devices() { return {"cpu"}; }

std::string cpu_isa() { return ops_of("cpu").isa(); }

const Ops& ops_of(const std::string& device) {
  // "cpu:avx2" and its kind force an instruction set; tests and benchmarks use them.
  if (const Ops* ops = cpu::find_ops(device)) return *ops;
  fail(Fault::device, "no device '", device, "': this build has ", cpu::list_of_names());
}

}  // namespace gigaknn
