#include "results.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>

#include <gigaknn/graph.hpp>

#include "core/require.hpp"
#include "graph/knng.hpp"
#include "hdf5.hpp"
#include "inputs.hpp"
#include "io/file_bytes.hpp"
#include "io/format.hpp"
#include "io/results.hpp"

namespace gigaknn::cli {
namespace {

constexpr std::int64_t most_signed = std::numeric_limits<std::int32_t>::max() - 1;  // so that the number of rows fits, too
constexpr std::array<std::string_view, 6> id_suffixes = {".ibin",  ".npy", ".ivecs",
                                                         ".gtbin", ".h5",  ".hdf5"};
constexpr std::array<std::string_view, 3> distance_suffixes = {".fbin", ".npy", ".fvecs"};

template <std::size_t count>
void require_suffix(const std::filesystem::path& path,
                    const std::array<std::string_view, count>& allowed, std::string_view what) {
  const std::string suffix = path.extension().string();
  std::string list;
  for (const std::string_view name : allowed) list += ' ' + std::string(name);
  require(std::find(allowed.begin(), allowed.end(), suffix) != allowed.end(),
          Fault::invalid_argument, path.string(), ": no format for ", what, "; allowed:", list);
}

std::optional<std::filesystem::path> given(const std::filesystem::path& path) {
  return path.empty() ? std::nullopt : std::optional(path);
}

}  // namespace

std::size_t bytes_of_entries(std::int64_t rows, std::int64_t each, std::size_t entry_bytes) {
  constexpr auto most = WideSize{1} << 62;
  const WideSize bytes = static_cast<WideSize>(rows) * static_cast<WideSize>(each) * entry_bytes;
  return static_cast<std::size_t>(std::min(bytes, most));
}

std::size_t graph_file_bytes(std::int64_t n, std::int64_t k) {
  const std::size_t id_bytes = n < no_row_of_u32 ? sizeof(std::uint32_t) : sizeof(std::int64_t);
  return bytes_of_entries(n, k, id_bytes + sizeof(float)) + 4096;
}

void check_result_names(const ResultFiles& files, bool radius) {
  if (radius) {
    require(files.distances.empty(), Fault::invalid_argument,
            "--radius writes ids and distances into one file: no --distances");
    constexpr std::string_view others[] = {".knng", ".gknn", ".h5", ".hdf5", ".json", ".html", ".csv", ".gtbin", ".faiss", ".txt", ".list"};
    const std::string suffix = files.ids.extension().string();
    require(std::ranges::find(others, suffix) == std::end(others) && !find_format(files.ids), Fault::invalid_argument,
            files.ids.string(), ": what is within a radius is not in the format that ", suffix, " names; a name that fits: ",
            std::filesystem::path(files.ids).replace_extension(".range").string());
    return;
  }
  require_suffix(files.ids, id_suffixes, "ids");
  if (is_hdf5(files.ids)) require_hdf5(files.ids);
  if (files.distances.empty()) return;
  require_suffix(files.distances, distance_suffixes, "distances");
  require(!is_hdf5(files.ids), Fault::invalid_argument, files.ids.string(),
          ": a HDF5 file holds the distances itself: no --distances");
}

void check_ids_name(const std::filesystem::path& path) {
  require(!is_hdf5(path) && path.extension() != ".gtbin", Fault::invalid_argument, path.string(),
          ": such a file holds distances too, and there are none; ids alone go to .npy, .ibin or .ivecs");
  require_suffix(path, std::array<std::string_view, 3>{".ibin", ".npy", ".ivecs"}, "ids");
}

bool ids_fit(const ResultFiles& files, std::int64_t n, bool radius) {
  const bool wide = files.ids.extension() == ".npy" || is_hdf5(files.ids);
  const bool unsigned_ids = files.ids.extension() == ".gtbin" && n - 1 < std::numeric_limits<std::uint32_t>::max();
  return n - 1 <= most_signed || (!radius && (wide || unsigned_ids));
}

void check_ids_fit(const ResultFiles& files, std::int64_t n, bool radius) {
  const bool fit = ids_fit(files, n, radius);
  require(fit || !radius, Fault::unsupported, files.ids.string(), ": ids up to ", n - 1,
          " do not fit the format of what is within a radius, whose ids have 31 bits");
  require(fit, Fault::unsupported, files.ids.string(), ": ids up to ", n - 1, " do not fit 32 bits; allowed here: .npy or .h5 (up to ",
          most_signed, " also .ibin)");
}

std::size_t ids_file_bytes(const ResultFiles& files, std::int64_t queries, std::int64_t k) {
  constexpr std::size_t header_bytes = 4096;  // of any format
  const bool wide =
      files.ids.extension() == ".npy" || is_hdf5(files.ids) || files.ids.extension() == ".gtbin";
  return bytes_of_entries(queries, k, wide ? 8 : 4) + header_bytes +
         (is_hdf5(files.ids) ? bytes_of_entries(queries, k, sizeof(float)) : 0);
}

std::size_t distances_file_bytes(const ResultFiles& files, std::int64_t queries, std::int64_t k) {
  return files.distances.empty() ? 0 : bytes_of_entries(queries, k, sizeof(float)) + 4096;
}

void write_results(const ResultFiles& files, const Neighbors& results) {
  if (is_hdf5(files.ids)) {
    write_hdf5_neighbors(results, files.ids);
  } else {
    write_neighbors(results, files.ids, given(files.distances));
  }
}

bool is_truth(const std::filesystem::path& path) {
  return std::filesystem::is_regular_file(path) && !find_format(path) &&
         path.extension() != ".txt" && path.extension() != ".list";
}

Neighbors read_results(const std::filesystem::path& path, const std::filesystem::path& distances) {
  if (path.extension() == ".knng" || is_hdf5(path)) {
    require(distances.empty(), Fault::invalid_argument, path.string(), " holds distances itself: ", distances.string(), " is not looked at");
    return is_hdf5(path) ? read_hdf5_neighbors(path) : load_graph(path).lists;
  }
  return read_neighbors(path, given(distances));
}

LargeVector<RowId> read_ids(const std::filesystem::path& path) {
  require(path.extension() != ".knng" && path.extension() != ".gtbin" && !is_hdf5(path), Fault::invalid_argument, path.string(),
          ": such a file holds lists of neighbours; ids of rows are in .npy, .ibin or .ivecs");
  Neighbors ids = read_results(path, {});
  require(ids.queries <= 1 || ids.k <= 1, Fault::invalid_argument, path.string(), ": holds ", ids.queries, " lists of ", ids.k,
          " ids, expected one list, or one id a row");
  return std::move(ids.ids);
}

}  // namespace gigaknn::cli
