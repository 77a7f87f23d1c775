// The text header of a .npy file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/file_bytes.hpp"

namespace gigaknn {

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
  std::uint64_t data_offset = 0;
};

/// Reads magic, version and dictionary. Throws Error: corrupt_file, unsupported (version,
/// structured type).
NpyHeader read_npy_header(const FileBytes& file);

}  // namespace gigaknn
