// The one exception type of gigaknn, and what its caller can do about it.
#pragma once

#include <stdexcept>
#include <string>

namespace gigaknn {

/// What went wrong, named by what the caller can do about it.
enum class Fault {
  invalid_argument,  ///< the call is wrong: change the arguments
  corrupt_file,      ///< a file does not hold what its format promises
  invalid_data,      ///< the file is well formed, its values are not usable (NaN, a zero row, ...)
  io,                ///< the operating system refused: missing file, disk full, no permission
  out_of_memory,     ///< the budget is too small; the message says what would do
  device,            ///< the device is missing or failed
  unsupported,       ///< a valid request that this build or device cannot serve
  cancelled,         ///< `Progress::cancel` was called
};

/// Thrown by every public call that fails. Outputs are then unspecified but valid to destroy.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message) : std::runtime_error(message), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

}  // namespace gigaknn
