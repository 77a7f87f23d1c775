// Devices by name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gigaknn/matrix.hpp>

namespace gigaknn {

/// Names of the devices that this build can open, the default first: "cpu", then "emulated", a GPU that executes its kernels
/// on the CPU and is there for tests ("emulated:4": four of them), or "cuda:0" and its kind ("cuda:0,cuda:1": both).
std::vector<std::string> devices();

/// What a device computes with: of "cpu" the instruction set ("avx512vnni", "avx2" or "generic"; the environment variable
/// GIGAKNN_ISA lowers it, for tests), of a GPU its name. Throws Error: device.
std::string isa_of(const std::string& device);
/// Of several GPUs those of one of `count` processes that work side by side: each `count`-th, or one that others have too where there are
/// fewer GPUs than processes. Of one GPU, the CPU, or what is no device `device` itself. Throws Error: invalid_argument.
std::string share_of_device(const std::string& device, int process, int count);

/// How often each GPU kernel was launched since the process began.
std::map<std::string, std::int64_t> kernel_launches();

/// An owning, dense matrix in the memory of one GPU. Exact searches (make_flat_index) and exact graphs (build_graph) take such rows where
/// they are; everything else takes the host's. Values are unspecified until written.
class DeviceMatrix {
 public:
  /// `device`: "cuda:1", "emulated". Throws Error: device (it is not one GPU), invalid_argument (a size below 0), out_of_memory.
  DeviceMatrix(const std::string& device, std::int64_t rows, std::int64_t cols, DType dtype);
  DeviceMatrix(DeviceMatrix&&) noexcept;
  DeviceMatrix& operator=(DeviceMatrix&&) noexcept;
  /// Waits for all work of the device: some of it may read this.
  ~DeviceMatrix();

  MatrixRef ref() const { return ref_; }
  operator MatrixRef() const { return ref_; }
  const std::string& device() const;
  int number() const;  ///< of the GPU

  /// From and to dense values [rows, cols] of the host, finished on return.
  void upload(const void* values);
  void download(void* values) const;

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
  MatrixRef ref_;
};

/// A copy in the host's memory of rows in that of a GPU. Throws Error: device (they are not), out_of_memory.
Matrix copy_to_host(MatrixRef rows);

/// Waits for the work of a stream of the caller's on GPU `number`, by the number that CUDA knows the stream by (0: the default one): rows
/// that it writes may then be searched. Throws Error: device, invalid_argument (the emulated GPU has the default stream alone).
void wait_for_stream(int number, std::uintptr_t stream);

/// Threads that the affinity mask and the quotas of the cgroup, and of those above it, allowed this process when it was first asked.
int available_threads();

}  // namespace gigaknn
