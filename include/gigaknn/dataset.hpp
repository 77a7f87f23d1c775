// Vector files, opened as one matrix.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include <gigaknn/matrix.hpp>

namespace gigaknn {

/// A read-only set of vectors from one file, or from a directory of shards of one format in name order.
///
/// Formats by extension: .fvecs .bvecs .ivecs; .fbin .hbin .bf16bin .u8bin .i8bin .ibin; .npy; IDX (also .gz).
/// Dense formats are memory-mapped and never copied; IDX.gz is unpacked, *vecs are viewed with a stride;
/// shards that cannot be viewed as one matrix are gathered into memory.
/// Copies share the mapping, which lives as long as any of them.
class Dataset {
 public:
  /// Throws Error: io (missing, unreadable), corrupt_file (with file, offset and reason), unsupported, out_of_memory (shards that are gathered
  /// take more than `memory_bytes`; 0: as much as there is).
  static Dataset open(const std::filesystem::path& path, std::size_t memory_bytes = 0);
  /// These files, one behind the other, of the same columns and type; each as `open` takes it. Throws as `open`, and Error:
  /// invalid_argument (no file).
  static Dataset open_shards(const std::vector<std::filesystem::path>& paths, std::size_t memory_bytes = 0);
  /// Takes ownership of vectors made in memory.
  static Dataset from(Matrix matrix);

  MatrixRef matrix() const { return matrix_; }
  operator MatrixRef() const { return matrix_; }
  /// Height and width, where the file says that rows are images (IDX of rank 3); else 0, 0.
  int image_height() const { return image_height_; }
  int image_width() const { return image_width_; }

 private:
  friend class DatasetReader;
  std::shared_ptr<const void> owner_;
  MatrixRef matrix_;
  int image_height_ = 0;
  int image_width_ = 0;
};

}  // namespace gigaknn
