// Names of devices:
//
//   cpu, cpu:avx2 ...      the host; what follows the colon forces an instruction set, for tests
//   emulated               one emulated GPU; emulated:4 is four of them
//   cuda:0, cuda:0,cuda:1  GPUs by number
#include <gigaknn/device.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/require.hpp"
#include "ops/cpu/cpu_ops.hpp"
#include "ops/gpu/gpu_ops.hpp"
#include "ops/ops.hpp"
#include "ops/several.hpp"

namespace gigaknn {
namespace {

// A number without sign or blanks; -1: it is none.
int number_of(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && text.front() != '-' ? number
                                                                                         : -1;
}

// The numbers of the GPUs that a name means; empty: it means none.
std::vector<int> gpu_numbers(std::string_view name, int count) {
  std::vector<int> numbers;
  if (gpu::emulated()) {
    const int wanted = name == "emulated"              ? 1
                       : name.starts_with("emulated:") ? number_of(name.substr(9))
                                                       : 0;
    for (int i = 0; i < wanted && wanted <= count; ++i) numbers.push_back(i);
    return numbers;
  }
  while (!name.empty()) {
    const std::string_view one = name.substr(0, name.find(','));
    const bool last = one.size() == name.size();
    name.remove_prefix(last ? one.size() : one.size() + 1);
    const int number = one.starts_with("cuda:") ? number_of(one.substr(5)) : -1;
    const bool twice = std::find(numbers.begin(), numbers.end(), number) != numbers.end();
    if (number < 0 || number >= count || twice || (name.empty() && !last)) return {};
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

std::vector<std::string> devices() {
  std::vector<std::string> names = {"cpu"};
  const std::size_t count = gpu::devices().size();
  if (gpu::emulated()) {
    names.push_back("emulated");
  } else {
    for (std::size_t i = 0; i < count; ++i) names.push_back(join_text("cuda:", i));
  }
  return names;
}

std::vector<std::string> cpu_devices() { return cpu::names(); }

std::string isa_of(const std::string& device) {
  return ops_of(device).isa();
}
std::map<std::string, std::int64_t> kernel_launches() {
  return gpu::launches();
}

namespace {

std::string names_of_devices() {
  std::string names;
  for (const std::string& name : cpu_devices()) names += (names.empty() ? "" : ", ") + name;
  for (const std::string& name : devices()) {
    if (name != "cpu") names += ", " + name;
  }
  if (gpu::emulated()) names += join_text(", emulated:2..", gpu::devices().size());
  return names;
}

}  // namespace

std::string share_of_device(const std::string& device, int process, int count) {
  require(process >= 0 && process < count, Fault::invalid_argument, "process must be in [0, ", count, "), got ", process);
  if (cpu::find_ops(device)) return device;  // without a look for GPUs
  const std::vector<int> numbers = gpu_numbers(device, static_cast<int>(gpu::devices().size()));
  if (numbers.size() < 2) return device;  // one, or none
  std::vector<int> mine;
  const std::size_t all = numbers.size(), step = static_cast<std::size_t>(count);
  for (std::size_t i = static_cast<std::size_t>(process) % all; i < all; i += step) mine.push_back(numbers[i]);
  if (gpu::emulated()) return mine.size() == 1 ? "emulated" : join_text("emulated:", mine.size());
  std::string name;
  for (const int number : mine) name += join_text(name.empty() ? "" : ",", "cuda:", number);
  return name;
}

int gpu_number_of(const std::string& device) {
  const std::vector<int> numbers = gpu_numbers(device, static_cast<int>(gpu::devices().size()));
  require(numbers.size() == 1, Fault::device, "'", device, "' is not one GPU: this build has ", names_of_devices());
  return numbers.front();
}

const Ops& ops_of(const std::string& device, int shards) {
  require(shards >= 1, Fault::invalid_argument, "shards must be >= 1, got ", shards);
  if (const Ops* ops = cpu::find_ops(device)) {
    require(shards == 1, Fault::invalid_argument, "shards are for several GPUs, got ", shards,
            " on ", device);
    return *ops;
  }
  const std::vector<const Ops*> gpus = gpu::devices();
  const std::vector<int> numbers = gpu_numbers(device, static_cast<int>(gpus.size()));
  if (numbers.empty()) {
    fail(Fault::device, "no device '", device, "': this build has ", names_of_devices());
  }
  if (numbers.size() == 1 && shards == 1) return *gpus[static_cast<std::size_t>(numbers.front())];
  static std::mutex mutex;
  // Kept: callers hold references.
  static std::map<std::pair<std::vector<int>, int>, std::unique_ptr<Ops>> made;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Ops>& ops = made[{numbers, shards}];
  if (!ops) {
    std::vector<const Ops*> chosen;
    for (const int number : numbers) chosen.push_back(gpus[static_cast<std::size_t>(number)]);
    ops = make_several(std::move(chosen), shards);
  }
  return *ops;
}

}  // namespace gigaknn
