#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "io/format.hpp"
#include "io/mapped_file.hpp"
#include "io/results.hpp"

namespace gigaknn {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t header_bytes = 8;

struct TwoCounts {
  std::uint64_t first;
  std::uint64_t second;
};

TwoCounts counts_of(const FileBytes& file) {
  return {value_at<std::uint32_t>(file, 0, "the number of queries"),
          value_at<std::uint32_t>(file, 4, "the second number of the header")};
}

WideSize ids_bytes(TwoCounts counts) {
  return header_bytes + WideSize{counts.first} * counts.second * 4;
}
WideSize truth_bytes(TwoCounts counts) {
  return header_bytes + WideSize{counts.first} * counts.second * 8;
}
WideSize range_bytes(TwoCounts counts) {
  return header_bytes + WideSize{counts.first} * 4 + WideSize{counts.second} * 8;
}

template <class T>
RowId row_id_of(T id) {
  if constexpr (std::is_same_v<T, std::uint32_t>) {
    if (id == std::numeric_limits<std::uint32_t>::max()) return no_row;
  }
  return RowId{static_cast<std::int64_t>(id)};
}

template <class T>
void take_ids(MatrixRef matrix, const std::string& name, std::span<RowId> ids) {
  for (std::int64_t i = 0; i < matrix.rows; ++i) {
    const T* row = matrix.row<T>(i);
    for (std::int64_t j = 0; j < matrix.cols; ++j) {
      if (row[j] < -1) {
        fail(Fault::corrupt_file, name, ": row ", i, ", column ", j, ": id ", row[j],
             ", expected -1 to ", std::numeric_limits<T>::max());
      }
      ids[static_cast<std::size_t>(i * matrix.cols + j)] = row_id_of(row[j]);
    }
  }
}

Neighbors neighbors_of_ids(const VectorRows& rows, const std::string& name) {
  const MatrixRef matrix = rows.matrix;
  require(matrix.dtype == DType::i32 || matrix.dtype == DType::i64, Fault::unsupported, name,
          ": holds ", name_of(matrix.dtype), ", expected ids (i32 or i64)");
  Neighbors result(matrix.rows, matrix.cols);
  result.distances = {};
  if (matrix.dtype == DType::i32) take_ids<std::int32_t>(matrix, name, result.ids);
  if (matrix.dtype == DType::i64) take_ids<std::int64_t>(matrix, name, result.ids);
  return result;
}

void add_distances(Neighbors& result, const std::filesystem::path& path) {
  const VectorRows rows = read_vectors(path);
  const MatrixRef matrix = rows.matrix;
  const std::string name = printable(path.string());
  require(matrix.dtype == DType::f32, Fault::unsupported, name, ": holds ", name_of(matrix.dtype),
          ", expected distances (f32)");
  require(matrix.rows == result.queries && matrix.cols == result.k, Fault::corrupt_file, name,
          ": byte 0: ", matrix.rows, " x ", matrix.cols, " distances do not fit ", result.queries,
          " x ", result.k, " ids");
  result.distances.resize(result.ids.size());
  const std::size_t row_bytes = static_cast<std::size_t>(matrix.cols) * sizeof(float);
  for (std::int64_t i = 0; i < matrix.rows; ++i) {
    std::memcpy(result.distances.data() + i * matrix.cols, matrix.row_bytes(i), row_bytes);
  }
}

// The only tie among files of any size that is left under the name .gtbin: 2 queries with 1 entry.
bool counts_add_up(const FileBytes& file, TwoCounts counts) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < counts.first; ++i) {
    sum += value_at<std::uint32_t>(file, header_bytes + 4 * i, "a count");
  }
  return sum == counts.second;
}

fs::path small_letters(const fs::path& path) {
  std::string name = path.filename().string();
  std::ranges::transform(name, name.begin(), [](char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; });
  return path.parent_path() / name;
}

ResultKind kind_by_size(const FileBytes& file, const std::filesystem::path& name) {
  const bool truth_name = name.extension() == ".gtbin", range_name = name.extension() == ".range";
  const TwoCounts counts = counts_of(file);
  const bool some = counts.first > 0;
  const bool ids = !truth_name && !range_name && some && counts.second > 0 && ids_bytes(counts) == file.size();
  const bool truth = !range_name && some && counts.second > 0 && truth_bytes(counts) == file.size();
  const bool range = some && range_bytes(counts) == file.size() && counts_add_up(file, counts);
  require_at(ids || truth || range, file, 0, truth_name || range_name ? "" : "no format that its name tells, and ",
             "not a results file: ", counts.first, " and ", counts.second, " need ",
             truth_name || range_name ? "" : decimal(ids_bytes(counts)) + " (ids), ",
             range_name ? "" : decimal(truth_bytes(counts)) + " (k-NN truth) or ", decimal(range_bytes(counts)),
             " bytes (range truth), but the file has ", file.size());
  require(ids + truth + range == 1 || truth_name, Fault::unsupported, file.name,
          ": byte 0: its size fits two formats, name it .ibin, .gtbin or .range");
  return truth ? ResultKind::neighbors : range ? ResultKind::radius : ResultKind::ids;
}

}  // namespace

Neighbors parse_ground_truth(const FileBytes& file) {
  const TwoCounts counts = counts_of(file);
  require_at(counts.first >= 1 && counts.second >= 1, file, 0, "truth of ", counts.first,
             " queries and ", counts.second, " neighbours, expected at least 1 of each");
  require_at(truth_bytes(counts) == file.size(), file, 0, counts.first, " queries with ",
             counts.second, " neighbours need ", decimal(truth_bytes(counts)),
             " bytes, but the file has ", file.size(), " bytes");
  Neighbors truth(static_cast<std::int64_t>(counts.first),
                  static_cast<std::int64_t>(counts.second));
  const std::byte* ids = file.bytes.data() + header_bytes;
  for (std::size_t i = 0; i < truth.ids.size(); ++i) {
    std::uint32_t id;
    std::memcpy(&id, ids + 4 * i, sizeof id);
    truth.ids[i] = row_id_of(id);
  }
  std::memcpy(truth.distances.data(), ids + 4 * truth.ids.size(), 4 * truth.ids.size());
  return truth;
}

Neighbors read_ground_truth(const std::filesystem::path& path) {
  return parse_ground_truth(map_file(path));
}

RadiusNeighbors parse_range_truth(const FileBytes& file) {
  const TwoCounts counts = counts_of(file);
  constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();
  require_at(counts.first >= 1 && counts.first <= most, file, 0, "range truth of ", counts.first,
             " queries, expected 1 to ", most);
  require_at(range_bytes(counts) == file.size(), file, 0, counts.first, " queries with ",
             counts.second, " results need ", decimal(range_bytes(counts)),
             " bytes, but the file has ", file.size(), " bytes");
  require_at(counts.second <= most, file, 4, "range truth of ", counts.second,
             " results, expected 0 to ", most);
  RadiusNeighbors truth;
  truth.offsets.resize(counts.first + 1);
  for (std::uint64_t i = 0; i < counts.first; ++i) {
    const std::uint64_t at = header_bytes + 4 * i;
    const auto count = value_at<std::int32_t>(file, at, "a count");
    const auto left = static_cast<std::int64_t>(counts.second) - truth.offsets[i];
    require_at(count >= 0 && count <= left, file, at, "query ", i, " has ", count,
               " results, expected 0 to ", left);
    truth.offsets[i + 1] = truth.offsets[i] + count;
  }
  require_at(truth.offsets.back() == static_cast<std::int64_t>(counts.second), file, 4,
             "the counts add up to ", truth.offsets.back(), ", expected ", counts.second);
  truth.ids.resize(counts.second);
  truth.distances.resize(counts.second);
  const std::uint64_t first_id = header_bytes + 4 * counts.first;
  for (std::uint64_t i = 0; i < counts.second; ++i) {
    const auto id = value_at<std::int32_t>(file, first_id + 4 * i, "an id");
    require_at(id >= 0, file, first_id + 4 * i, "id ", id, ", expected 0 to ", most);
    truth.ids[i] = RowId{id};
    truth.distances[i] = value_at<float>(file, first_id + 4 * (counts.second + i), "a distance");
  }
  return truth;
}

RadiusNeighbors read_range_truth(const std::filesystem::path& path) {
  return parse_range_truth(map_file(path));
}

ResultKind kind_of_results(const std::filesystem::path& path) {
  const VectorFormat* format = find_format(path);
  if (format == nullptr) {
    const fs::path small = small_letters(path);
    require(small == path || find_format(small) == nullptr, Fault::unsupported, printable(path.string()),
            ": formats are told by small letters, as ", printable(small.filename().string()));
    return kind_by_size(map_file(path), path);
  }
  require(format->any_dtype || format->dtype == DType::i32, Fault::unsupported,
          printable(path.string()), ": ", format->suffix,
          " files hold vectors, expected ids (.ibin .ivecs .npy .gtbin)");
  return ResultKind::ids;
}

Neighbors read_neighbors(const std::filesystem::path& ids,
                         const std::optional<std::filesystem::path>& distances) {
  Neighbors result;
  switch (kind_of_results(ids)) {
    case ResultKind::neighbors:
      result = read_ground_truth(ids);
      break;
    case ResultKind::radius:
      fail(Fault::unsupported, printable(ids.string()),
           ": holds range results, expected k neighbours a query");
    case ResultKind::ids: {
      const FileBytes file = map_file(ids);
      const VectorFormat& format = find_format(ids) ? *find_format(ids) : format_of("results.ibin");
      result = neighbors_of_ids(read_vectors(file, format), file.name);
    }
  }
  if (distances) add_distances(result, *distances);
  return result;
}

}  // namespace gigaknn
