#include "inputs.hpp"

#include <algorithm>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "hdf5.hpp"
#include "io/mapped_file.hpp"
#include "io/validate.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

Dataset open_dataset(const std::filesystem::path& path, const std::string& part, std::size_t memory_bytes) {
  return is_hdf5(path) ? Dataset::from(read_hdf5_matrix(path, part, memory_bytes)) : Dataset::open(path, memory_bytes);
}

}  // namespace

bool is_hdf5(const std::filesystem::path& path) {
  return path.extension() == ".h5" || path.extension() == ".hdf5";
}

Vectors open_vectors(const std::filesystem::path& path, const std::string& part, std::size_t memory_bytes) {
  const bool of_faiss = path.extension() == ".faiss";
  require(!of_faiss && path.extension() != ".gknn", Fault::unsupported, path.string(), ": is an index, no vectors",
          of_faiss ? "; gigaknn convert makes a .gknn of it, which can be searched" : "");
  Vectors vectors{path.string(), open_dataset(path, part, memory_bytes)};
  if (!is_mapped(vectors.matrix().data)) {
    vectors.held_bytes = static_cast<std::size_t>(vectors.matrix().rows * vectors.matrix().stride_bytes);
  }
  require(holds_vectors(vectors.matrix().dtype), Fault::unsupported, vectors.name, ": holds ",
          name_of(vectors.matrix().dtype), ", no vectors; allowed: f32 f16 bf16 u8 i8");
  require(vectors.matrix().rows >= 1 && vectors.matrix().cols >= 1, Fault::corrupt_file,
          vectors.name, ": is empty: ", vectors.matrix().rows, " rows of ", vectors.matrix().cols,
          " values");
  return vectors;
}

Vectors open_vectors(const std::filesystem::path& path, const std::string& part, const Session& session) {
  const std::size_t all = session.options.memory_bytes();
  return open_vectors(path, part, all == 0 ? 0 : all - std::min(all - 1, session.held_bytes()));
}

void check_metric(const Vectors& vectors, Metric metric) {
  require(!on_bits(metric) || vectors.matrix().dtype == DType::u8, Fault::unsupported, vectors.name,
          ": metric ", name_of(metric), " needs packed bits in u8, the rows are ",
          name_of(vectors.matrix().dtype));
}

void check_metric(const Vectors& vectors, const std::filesystem::path& path, Session& session) {
  check_metric(vectors, metric_of(session.options.metric));
  const auto said = is_hdf5(path) ? read_hdf5_distance(path) : std::nullopt;
  if (!said || session.options.metric_given) return;
  const bool angular = *said == "angular" || *said == "cosine", other = *said != "euclidean" && *said != "l2";
  if (!other) return;
  session.note(join_text(path.string(), " says that its distance is ", *said, "; this is by ", session.options.metric, " all the same",
                         angular ? ", which --metric cosine changes" : ""));
}

void check_same_rows(const Vectors& base, const Vectors& queries) {
  const MatrixRef a = base.matrix(), b = queries.matrix();
  require(a.cols == b.cols, Fault::invalid_argument, queries.name, ": rows of ", b.cols,
          " values, those of the base ", base.name, " have ", a.cols);
  require(a.dtype == b.dtype, Fault::invalid_argument, queries.name, ": rows of ", name_of(b.dtype),
          ", those of the base ", base.name, " are ", name_of(a.dtype));
}

namespace {

constexpr std::string_view option_takes_them = "--allow-nonfinite takes them as farthest";

void check_values(const Vectors& vectors, Metric metric, bool allow_nonfinite, std::string_view advice, Session& session) {
  const ValueFaults faults = find_value_faults(vectors.matrix(), metric, session.run());
  if (const auto& place = faults.first_nonfinite) {
    require(allow_nonfinite, Fault::invalid_data, vectors.name, ": row ",
            place->row, ", column ", place->col, " is ", place->value, "; allowed: finite values (",
            faults.nonfinite_rows, faults.nonfinite_rows == 1 ? " row has" : " rows have",
            " others; ", advice, ")");
    session.note(vectors.name + ": " + format_count(faults.nonfinite_rows) +
                 " rows with NaN or infinity count as farthest");
  }
  session.record.more["nonfinite_rows"][vectors.name] = faults.nonfinite_rows;
  if (const auto& place = faults.first_negative) {
    fail(Fault::invalid_data, vectors.name, ": row ", place->row, ", column ", place->col, " is ",
         place->value, "; allowed under ", name_of(metric), ": values >= 0");
  }
  if (const auto& row = faults.first_zero_row) {
    session.note(vectors.name + ": " + format_count(faults.zero_rows) +
                 " zero rows, the first is row " + std::to_string(*row) +
                 ": under cosine they count as farthest");
    session.record.more["zero_rows"][vectors.name] = faults.zero_rows;
  }
}

}  // namespace

void check_values(const Vectors& vectors, Metric metric, Session& session) {
  check_values(vectors, metric, session.options.allow_nonfinite, option_takes_them, session);
}

void check_rows_for(const Index& index, const std::filesystem::path& path, const Vectors& rows, Session& session) {
  const MatrixRef matrix = rows.matrix();
  require(matrix.cols == index.cols() && matrix.dtype == index.dtype(), Fault::invalid_argument, rows.name, " is ", matrix.cols, " x ",
          name_of(matrix.dtype), ", ", path.string(), " ", index.cols(), " x ", name_of(index.dtype()));
  if (index.takes_nonfinite()) return check_values(rows, index.metric(), session);
  check_values(rows, index.metric(), false, path.string() + " was built without --allow-nonfinite", session);
}

ImageSize image_size(const std::string& option, const Vectors& vectors) {
  ImageSize image{vectors.data.image_height(), vectors.data.image_width()};
  if (option.empty()) return image;
  std::tie(image.height, image.width) = parse_image_size(option);
  require(std::int64_t{image.height} * image.width == vectors.matrix().cols,
          Fault::invalid_argument, "--image ", option, " needs rows of ",
          std::int64_t{image.height} * image.width, " values, those of ", vectors.name, " have ",
          vectors.matrix().cols);
  return image;
}

}  // namespace gigaknn::cli
