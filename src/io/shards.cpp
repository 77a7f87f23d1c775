#include "io/shards.hpp"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "core/cancelled.hpp"
#include "io/format.hpp"
#include "io/mapped_file.hpp"

namespace gigaknn {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with('.');
    std::error_code unreadable;
    if (hidden || !find_format(entry->path()) || entry->is_directory(unreadable)) continue;
    // Rows behind one that is left out would be called by other numbers.
    const bool is_file = entry->is_regular_file(unreadable);
    if (unreadable && unreadable != std::errc::no_such_file_or_directory) fail_system(entry->path(), "cannot look at it", unreadable.value());
    require(is_file, Fault::corrupt_file, printable(entry->path().string()), ": a link to what is not there, or no file");
    files.push_back(entry->path());
  }
  if (error) fail_system(folder, "cannot read the directory", error.value());
  require(!files.empty(), Fault::corrupt_file, printable(folder.string()),
          ": the directory has no vector file");
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> files_listed_in(const fs::path& list) {
  const FileBytes file = map_file(list);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.size());
  std::vector<fs::path> files;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty() && line.front() != '#') {
      require_at(find_format(fs::path(line)) != nullptr, file, begin, "'",
                 printable(line.substr(0, 200)), "' is not the name of a vector file");
      files.push_back(list.parent_path() / fs::path(line));
    }
    begin = end + 1;
  }
  require_at(!files.empty(), file, 0, "the list names no file");
  return files;
}

}  // namespace

std::vector<fs::path> shards_of(const fs::path& path) {
  std::error_code missing;
  std::vector<fs::path> files = {path};
  const fs::path extension = path.extension();
  if (fs::is_directory(path, missing)) {
    files = files_in(path);
  } else if (extension == ".txt" || extension == ".list") {
    files = files_listed_in(path);
  }
  const VectorFormat& format = format_of(files.front());
  for (const fs::path& file : files) {
    require(format_of(file).suffix == format.suffix, Fault::unsupported, printable(file.string()),
            ": a shard of another format than ", printable(files.front().filename().string()));
  }
  return files;
}

void require_same_kind(MatrixRef first, MatrixRef shard, const fs::path& path) {
  require(shard.cols == first.cols, Fault::corrupt_file, printable(path.string()),
          ": byte 0: this shard has ", shard.cols, " columns, the first one has ", first.cols);
  require(shard.dtype == first.dtype, Fault::corrupt_file, printable(path.string()),
          ": byte 0: this shard holds ", name_of(shard.dtype), ", the first one ",
          name_of(first.dtype));
}

ShardsShape shape_of_shards(const std::vector<fs::path>& shards, const RunOptions& run) {
  ShardsShape shape;
  MatrixRef first;
  for (const fs::path& shard : shards) {
    check_cancelled(run);
    const VectorRows rows = read_vectors(shard);
    if (shape.rows == 0) {
      first = rows.matrix;
      shape = {0, first.cols, first.dtype, rows.image_height, rows.image_width};
    }
    require_same_kind(first, rows.matrix, shard);
    shape.rows += rows.matrix.rows;
  }
  return shape;
}

}  // namespace gigaknn
