// Unpacks a gzip file piece by piece.
#pragma once

#include <cstddef>
#include <memory>

#include "io/file_bytes.hpp"

namespace gigaknn {

class Gunzip {
 public:
  explicit Gunzip(const FileBytes& file);  ///< `file` must outlive this
  ~Gunzip();

  /// Unpacks the next `bytes` into `target`; returns fewer only at the end of the file, once its
  /// checksums have been found right. Throws Error: corrupt_file (damaged, truncated, bytes after
  /// the end).
  std::size_t read(void* target, std::size_t bytes);

 private:
  struct State;
  void unpack_some();
  void start_next_member();

  const FileBytes& file_;
  std::unique_ptr<State> state_;
  std::uint64_t consumed_ = 0;  ///< bytes of the file
  bool finished_ = false;
};

}  // namespace gigaknn
