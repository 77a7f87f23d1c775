// Indexes of Faiss as .gknn: lists stay lists, each sorted by id; codes move into blocks; rows are copied one by one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include <gigaknn/faiss.hpp>

#include "core/cancelled.hpp"
#include "core/elements.hpp"
#include "core/require.hpp"
#include "core/usual_floats.hpp"
#include "index/faiss_file.hpp"
#include "index/faiss_rows.hpp"
#include "index/faiss_transform.hpp"
#include "index/ivf_file.hpp"
#include "index/list_centroids.hpp"
#include "index/list_codes.hpp"
#include "index/row_ids.hpp"
#include "io/mapped_file.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Vectors that stand alone, behind a transform or before full ones: one list of an inverted file, which any search looks into.
struct OneList {
  std::vector<std::int64_t> numbers;  // [n]
  std::vector<float> centroid;        // [d] zeros, or, where directions choose lists, of length 1
  FaissIndex index;

  explicit OneList(const FaissIndex& vectors) : numbers(at(vectors.rows)), centroid(at(vectors.cols)) {
    std::iota(numbers.begin(), numbers.end(), 0);
    centroid[0] = vectors.metric == faiss_inner_product ? 1 : 0;
    index.kind = vectors.kind;
    index.offset = vectors.offset;
    index.cols = vectors.cols;
    index.rows = vectors.rows;
    index.metric = vectors.metric;
    FaissIvf ivf{std::make_unique<FaissIndex>(), {}, false, {}};
    ivf.quantizer->kind = "IndexFlat";
    ivf.quantizer->cols = vectors.cols;
    ivf.quantizer->rows = 1;
    ivf.quantizer->metric = vectors.metric;
    ivf.quantizer->what = FaissFlat{FileValues<float>(std::as_bytes(std::span(centroid)))};
    const auto* const scalar = std::get_if<FaissScalarRows>(&vectors.what);
    if (scalar) ivf.codes = scalar->quantizer;
    const std::span<const std::byte> codes = scalar ? scalar->codes
                                                    : std::span(vectors.rows > 0 ? std::get<FaissFlat>(vectors.what).values.at(0) : nullptr,
                                                                at(vectors.rows * vectors.cols) * sizeof(float));
    ivf.lists.push_back({codes, FileValues<std::int64_t>(std::as_bytes(std::span(numbers)))});
    index.what = std::move(ivf);
  }
};

// What of a file is converted.
struct Source {
  const FileBytes& file;
  const FaissIndex& index;  // the inverted file
  const FaissIvf& ivf;
  const FaissIndex* full;  // vectors that re-rank; null: none
  const FaissIdMap* map;   // null: ids are those in the lists
  const FaissPreTransform* chain;  // null: rows are not transformed
  std::shared_ptr<const OneList> one_list = nullptr;  // owns `index`, where that is not the file's
};

template <class... Parts>
[[noreturn]] void refuse(const FileBytes& file, const Parts&... parts) {
  fail(Fault::unsupported, file.name, ": ", parts...);
}

Source source_in(const FileBytes& file, const FaissIndex& root) {
  const FaissIndex* index = &root;
  const auto* const map = std::get_if<FaissIdMap>(&index->what);
  if (map) index = map->index.get();
  const auto* const refine = std::get_if<FaissRefine>(&index->what);
  if (refine) index = refine->base.get();
  const auto* const chain = root.whole ? std::get_if<FaissPreTransform>(&index->what) : nullptr;
  if (chain) index = chain->index.get();
  std::shared_ptr<const OneList> one_list;
  if (root.whole && (chain || refine) &&
      (std::holds_alternative<FaissFlat>(index->what) || std::holds_alternative<FaissScalarRows>(index->what))) {
    one_list = std::make_shared<const OneList>(*index);
    index = &one_list->index;
  }
  const auto* const ivf = std::get_if<FaissIvf>(&index->what);
  if (!ivf || !root.whole) {
    refuse(file, tree_of(root),
           " is not converted, allowed: IndexFlat, IndexScalarQuantizer, IndexIVFFlat, IndexIVFScalarQuantizer, IndexIVFPQ, "
           "IndexPreTransform of these, IndexRefine of "
           "these, IndexIDMap of all these");
  }
  return {file, *index, *ivf, refine ? refine->refine.get() : nullptr, map, chain, one_list};
}

Metric metric_of(const FileBytes& file, const FaissIndex& index) {
  if (index.metric == faiss_l2) return Metric::l2;
  if (index.metric == faiss_inner_product) return Metric::inner_product;
  refuse(file, index.kind, " by ", faiss_metric_name(index.metric), " is not converted, allowed: L2 INNER_PRODUCT");
}

void require_finite(const FileBytes& file, const FaissIndex& index, const Matrix& values, const char* what) {
  const float* const begin = values.row<float>(0);
  const float* const end = begin + values.rows() * values.cols();
  const float* const bad = std::find_if(begin, end, [](float value) { return !std::isfinite(value); });
  require_at(bad == end, file, index.offset, what, " of ", index.kind, " has the value ", bad == end ? 0 : *bad);
}

Matrix matrix_of(FileValues<float> values, std::int64_t rows, std::int64_t cols) {
  Matrix copy(rows, cols, DType::f32);
  if (values.size() > 0) std::memcpy(copy.data(), values.at(0), values.size() * sizeof(float));
  return copy;
}

// Of lists that Faiss and this library choose alike.
Matrix centroids_of(const Source& source, Metric metric) {
  const FaissIndex& quantizer = *source.ivf.quantizer;
  const auto* const flat = std::get_if<FaissFlat>(&quantizer.what);
  if (!flat) refuse(source.file, source.index.kind, " over ", tree_of(quantizer), " is not converted: centroids are to be an IndexFlat");
  if (quantizer.metric != faiss_l2 && quantizer.metric != faiss_inner_product) {
    refuse(source.file, source.index.kind, " whose lists are chosen by ", faiss_metric_name(quantizer.metric),
           " is not converted, allowed: L2 INNER_PRODUCT");
  }
  Matrix centroids = matrix_of(flat->values, quantizer.rows, quantizer.cols);
  require_finite(source.file, quantizer, centroids, "a centroid");
  if (ListCentroids::chosen_by(metric) == Metric::l2 && quantizer.metric == faiss_l2) return centroids;
  if (const auto list = not_of_length_one(centroids)) {
    refuse(source.file, source.index.kind, " whose lists are chosen by ", faiss_metric_name(quantizer.metric),
           " is not converted: the centroid of list ", *list, " is not of length 1, and other lists would be looked into");
  }
  return centroids;
}

// Rows list after list, in each by id.
struct SortedLists {
  std::vector<std::int64_t> begins;  // [lists + 1]
  std::vector<RowId> ids;            // [n]
  std::vector<LocalRow> rows;        // [n] in its list
};

// The ids in lists number what they are looked up in: each number once.
void require_numbers(const Source& source) {
  std::vector<bool> seen(at(source.index.rows));
  for (const FaissList& list : source.ivf.lists) {
    for (std::size_t row = 0; row < list.ids.size(); ++row) {
      const std::int64_t number = list.ids[row];
      const auto offset = static_cast<std::uint64_t>(list.ids.at(row) - source.file.bytes.data());
      require_at(number >= 0 && number < source.index.rows && !seen[at(number)], source.file, offset, "row ", number, ", expected 0 to ",
                 source.index.rows - 1, ", each once");
      seen[at(number)] = true;
    }
  }
}

std::size_t longest_list(const Source& source) {
  std::size_t longest = 0;
  for (const FaissList& list : source.ivf.lists) longest = std::max(longest, list.ids.size());
  return longest;
}

SortedLists sorted_lists(const Source& source) {
  if (source.map || source.full) require_numbers(source);
  SortedLists sorted;
  sorted.begins.push_back(0);
  sorted.ids.reserve(at(source.index.rows));
  sorted.rows.reserve(at(source.index.rows));
  std::vector<std::pair<RowId, LocalRow>> rows;
  rows.reserve(longest_list(source));
  for (const FaissList& list : source.ivf.lists) {
    rows.clear();
    for (std::size_t row = 0; row < list.ids.size(); ++row) {
      rows.emplace_back(RowId{source.map ? source.map->ids[at(list.ids[row])] : list.ids[row]}, static_cast<LocalRow>(row));
    }
    std::sort(rows.begin(), rows.end());
    for (const auto& [id, row] : rows) {
      sorted.ids.push_back(id);
      sorted.rows.push_back(row);
    }
    sorted.begins.push_back(std::ssize(sorted.ids));
  }
  rows = {};
  if (!sorted.ids.empty()) RowIds(sorted.ids, nullptr, source.file.name).require_sound();
  return sorted;
}

// That changes nothing: what lists hold stands for full vectors as other transformed rows do.
constexpr std::int64_t most_unchanged_dims = 4096;
LinearTransform no_change(const Source& source) {
  const std::int64_t d = source.index.cols;
  if (d > most_unchanged_dims) {
    refuse(source.file, "full vectors behind ", source.index.kind, " of ", d, " dimensions are not converted, allowed: up to ",
           most_unchanged_dims);
  }
  LinearTransform same;
  same.matrix = Matrix(d, d, DType::f32);
  for (std::int64_t i = 0; i < d; ++i) {
    std::fill_n(same.matrix.row<float>(i), d, 0.0F);
    same.matrix.row<float>(i)[i] = 1;
  }
  return same;
}

// `form`: how lists hold rows, without what comes before; `refines`: before full vectors.
IvfFacts facts_of(const Source& source, Metric metric, const SortedLists& sorted, DType dtype, const RunOptions& run, RowForm form = {},
                  bool refines = false) {
  const std::int64_t next_id = sorted.ids.empty() ? 0 : value_of(*std::max_element(sorted.ids.begin(), sorted.ids.end())) + 1;
  IvfFacts facts{metric, dtype, source.index.cols, next_id, false};
  if (!source.chain && !form.quantizes() && !refines) return facts;
  if (source.chain) {
    const std::span<const FaissTransform> chain = source.chain->chain;
    form.linear = form.quantizes() ? composed_for_codes(source.file, chain, run) : composed(source.file, chain, run);
    if (!chain.empty()) facts.cols = chain.front().cols_in;
  } else if (!form.quantizes()) {
    form.linear = no_change(source);
  }
  const bool moves = !form.linear.bias.empty() || !form.linear.mean.empty();
  facts.form = std::make_shared<const RowForm>(std::move(form));
  if (metric == Metric::inner_product && moves) {
    refuse(source.file,
           "an IndexPreTransform by INNER_PRODUCT that moves rows is not converted: products with them have another order than those of "
           "rows");
  }
  return facts;
}

void require_trained(const FileBytes& file, const FaissIndex& index, const FaissScalar& quantizer) {
  require_at(std::all_of(quantizer.trained.begin(), quantizer.trained.end(), [](float value) { return std::isfinite(value); }), file,
             index.offset, "scalar codes of ", index.kind, " stand for no finite rows");
}

std::string note_of(const std::string& kind, const FaissScalar& quantizer, bool by_residual) {
  return join_text(kind, " of ", name_of(quantizer.type), by_residual ? " by residual" : "",
                   ": its codes became the f32 rows that they stand for");
}

// Rows that stand list after list.
RowReader list_reader(const Source& source, FaissRows& rows, const Matrix& centroids, const SortedLists& sorted) {
  return [&source, &rows, &centroids, &sorted, list = std::int64_t{0}](std::int64_t place, std::byte* out) mutable {
    while (sorted.begins[at(list + 1)] <= place) ++list;
    const std::byte* const code = source.ivf.lists[at(list)].codes.data() + sorted.rows[at(place)] * rows.code_bytes();
    const bool finite = rows.read(code, source.ivf.by_residual ? centroids.row<float>(list) : nullptr, out);
    require(finite, Fault::invalid_data, source.file.name, ": byte ", code - source.file.bytes.data(), ": the row of id ",
            value_of(sorted.ids[at(place)]), " has NaN or infinity");
  };
}

// What lists hold as product codes: their own, or scalar codes of what centroids leave, a part a dimension, where these fill their bytes:
// others had no way back.
std::optional<CodeShape> shape_of_codes(const Source& source) {
  const std::int64_t d = source.index.cols;
  if (const auto* const product = std::get_if<FaissProduct>(&source.ivf.codes)) {
    return CodeShape{d, product->m, d / product->m, static_cast<int>(product->bits)};
  }
  const auto* const scalar = std::get_if<FaissScalar>(&source.ivf.codes);
  const int bits = scalar && source.ivf.by_residual ? step_bits_of(scalar->type) : 0;
  if (bits == 0 || d % parts_together(bits) != 0 || d > most_code_parts) return std::nullopt;
  return CodeShape{d, d, 1, bits};
}

std::vector<std::uint8_t> block_codes(const Source& source, std::int64_t code_bytes, const SortedLists& sorted) {
  std::int64_t blocks = 0;
  for (const FaissList& list : source.ivf.lists) blocks += ProductCodes::blocks_of(std::ssize(list.ids));
  std::vector<std::uint8_t> codes(at(blocks * code_bytes * code_block_rows));
  std::int64_t begin = 0;  // block of the list
  for (std::size_t list = 0; list < source.ivf.lists.size(); ++list) {
    const std::int64_t first = sorted.begins[list], count = sorted.begins[list + 1] - first;
    for (std::int64_t row = 0; row < count; ++row) {
      const std::byte* const code = source.ivf.lists[list].codes.data() + std::int64_t{sorted.rows[at(first + row)]} * code_bytes;
      for (std::int64_t byte = 0; byte < code_bytes; ++byte) {
        codes[at(ProductCodes::place(begin + row / code_block_rows, code_bytes, byte, row % code_block_rows))] =
            std::to_integer<std::uint8_t>(code[byte]);
      }
    }
    begin += ProductCodes::blocks_of(count);
  }
  return codes;
}

// The number of each full vector, in the order of their ids; empty where that is their own.
std::vector<std::int64_t> numbers_by_id(const Source& source) {
  if (!source.map) return {};
  std::vector<std::int64_t> numbers(at(source.index.rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  std::sort(numbers.begin(), numbers.end(),
            [&](std::int64_t a, std::int64_t b) { return source.map->ids[at(a)] < source.map->ids[at(b)]; });
  return numbers;
}

// What parts of an inverted file of product codes show.
struct OwnedCodes {
  Matrix codewords;
  std::vector<std::uint8_t> codes;
};

// The steps of each dimension are its codewords.
Matrix codewords_of(const FaissScalar& quantizer, const CodeShape& shape) {
  Matrix codewords(shape.codewords(), 1, DType::f32);
  for (std::int64_t i = 0; i < codewords.rows(); ++i) {
    *codewords.row<float>(i) = in_steps(quantizer, shape.d, i / shape.words(), static_cast<unsigned>(i % shape.words()));
  }
  return codewords;
}

OwnedCodes codes_of(const Source& source, const CodeShape& shape, const SortedLists& sorted) {
  if (const auto* const scalar = std::get_if<FaissScalar>(&source.ivf.codes)) {
    require_trained(source.file, source.index, *scalar);
    OwnedCodes owned{codewords_of(*scalar, shape), block_codes(source, shape.code_bytes(), sorted)};
    require_finite(source.file, source.index, owned.codewords, "a step");
    return owned;
  }
  const FaissProduct& product = std::get<FaissProduct>(source.ivf.codes);
  const std::string& kind = source.index.kind;
  if (!source.ivf.by_residual) refuse(source.file, kind, " whose codes are not of residuals is not converted");
  const auto bits = static_cast<int>(product.bits);
  if (!is_part_bits(bits)) refuse(source.file, kind, " of ", bits, " bits a part is not converted, allowed: 4 6 8");
  if (const std::int64_t together = parts_together(bits); product.m % together != 0) {
    refuse(source.file, kind, " of ", bits, " bits a part is converted with a multiple of ", together, " parts alone, got ", product.m);
  }
  if (product.m > most_code_parts) refuse(source.file, kind, " of ", product.m, " parts is not converted, allowed: 1 to ", most_code_parts);
  OwnedCodes owned{matrix_of(product.codewords, product.m << bits, source.index.cols / product.m),
                   block_codes(source, shape.code_bytes(), sorted)};
  require_finite(source.file, source.index, owned.codewords, "a codeword");
  return owned;
}

// Vectors that re-rank, in the order of their ids; without a reader: none.
struct FullVectors {
  DType dtype = DType::f32;
  RowReader read;
  std::string note;
};

FullVectors full_vectors_of(const Source& source) {
  if (!source.full) return {};
  const auto* const flat = std::get_if<FaissFlat>(&source.full->what);
  const auto* const scalar = std::get_if<FaissScalarRows>(&source.full->what);
  if (!flat && !scalar) {
    refuse(source.file, "full vectors in ", tree_of(*source.full), " are not converted, allowed: IndexFlat, IndexScalarQuantizer");
  }
  if (scalar) require_trained(source.file, *source.full, scalar->quantizer);
  const auto rows = std::make_shared<FaissRows>(source.full->cols, scalar ? &scalar->quantizer : nullptr, false);
  const std::byte* const first = scalar ? scalar->codes.data() : flat->values.at(0);
  const auto read = [&source, rows, first, numbers = numbers_by_id(source)](std::int64_t rank, std::byte* out) {
    const std::byte* const code = first + at(numbers.empty() ? rank : numbers[at(rank)]) * rows->code_bytes();
    require(rows->read(code, nullptr, out), Fault::invalid_data, source.file.name, ": byte ", code - source.file.bytes.data(),
            ": a row has NaN or infinity");
  };
  return {rows->dtype(), read, rows->decodes() ? note_of(source.full->kind, scalar->quantizer, false) : std::string()};
}

std::string import_codes(const Source& source, const CodeShape& shape, Metric metric, const Matrix& centroids, const SortedLists& sorted,
                         const std::filesystem::path& to, const RunOptions& run) {
  const OwnedCodes owned = codes_of(source, shape, sorted);
  const FullVectors full = full_vectors_of(source);
  const ProductCodes fit{source.index.cols, shape.m, owned.codewords, centroids, {}, {}, shape.bits};
  const LiveRows all[] = {
      {std::make_shared<ListCodes>(fit, owned.codes, sorted.begins, RowIds(sorted.ids, nullptr), nullptr), nullptr, source.index.rows}};
  write_ivf_pq(facts_of(source, metric, sorted, full.dtype, run), fit, all, full.read, to, run);
  return full.note;
}

// Centroids of bytes: what times the step is `y`, where float32 has such a number, so that the way back leads there.
Matrix divided(const Source& source, const Matrix& centroids, double step) {
  Matrix out(centroids.rows(), centroids.cols(), DType::f32);
  const auto quotient = [&](float y) {
    constexpr double most = std::numeric_limits<float>::max();
    require_at(std::abs(static_cast<double>(y) / step) <= most, source.file, source.index.offset, "a centroid of ", source.index.kind,
               " has the value ", y, ", too large for steps of ", step);
    const auto nearest = static_cast<float>(static_cast<double>(y) / step);
    for (const float x : {nearest, std::nextafter(nearest, -INFINITY), std::nextafter(nearest, INFINITY)}) {
      if (static_cast<float>(static_cast<double>(x) * step) == y) return x;
    }
    return nearest;
  };
  std::transform(centroids.row<float>(0), centroids.row<float>(0) + centroids.rows() * centroids.cols(), out.row<float>(0), quotient);
  return out;
}

// Whether full vectors say what lists hold already.
bool hold_the_same(const Source& source, FaissRows& rows, const FullVectors& full, const SortedLists& sorted, const RunOptions& run) {
  Matrix own(1, source.index.cols, rows.dtype()), other(1, source.index.cols, full.dtype);
  const RowReader read = list_reader(source, rows, Matrix(), sorted);
  const RowIds ids(sorted.ids, nullptr);
  const auto ranks = ids.ranks();
  for (std::int64_t row = 0; row < std::ssize(sorted.ids); ++row) {
    if (row % 4096 == 0) check_cancelled(run);
    read(row, own.row<std::byte>(0));
    full.read(ranks.empty() ? row : ranks[at(row)], other.row<std::byte>(0));
    for (std::int64_t j = 0; j < source.index.cols; ++j) {
      if (element_of(own, 0, j) != element_of(other, 0, j)) return false;
    }
  }
  return true;
}

std::string import_flat(const Source& source, Metric metric, const Matrix& centroids, const SortedLists& sorted,
                        const std::filesystem::path& to, const RunOptions& run) {
  const auto* const quantizer = std::get_if<FaissScalar>(&source.ivf.codes);
  if (quantizer) require_trained(source.file, source.index, *quantizer);
  const double step = quantizer && !source.ivf.by_residual ? step_of(*quantizer).value_or(0) : 0;
  const bool as_bytes = step > 0;
  FaissRows rows(source.index.cols, quantizer, source.ivf.by_residual, as_bytes);
  FullVectors full = full_vectors_of(source);
  std::string note = full.note;
  if (full.read && !source.chain && !as_bytes && !rows.decodes() && hold_the_same(source, rows, full, sorted, run)) {
    full = {};
    note = join_text(source.index.kind, " has its rows in lists, and once more behind them: they are kept once");
  }
  const bool formed = source.chain || full.read;
  RowForm form{.dtype = as_bytes || formed ? rows.dtype() : DType::f32, .step = as_bytes ? step : 1};
  if (formed && !as_bytes && !is_floating(rows.dtype())) {
    refuse(source.file, source.index.kind, " of ", name_of(quantizer->type),
           source.chain ? " behind IndexPreTransform" : " before full vectors that differ from it",
           " is not converted: transformed rows are f32, or quantized");
  }
  const bool refines = static_cast<bool>(full.read);
  const IvfFacts facts = facts_of(source, metric, sorted, formed || as_bytes ? full.dtype : rows.dtype(), run, std::move(form), refines);
  const Matrix in_steps = as_bytes && ListCentroids::chosen_by(metric) == Metric::l2 ? divided(source, centroids, step) : Matrix();
  write_ivf_flat(facts, in_steps.rows() > 0 ? in_steps : centroids, sorted.begins, sorted.ids, list_reader(source, rows, centroids, sorted),
                 full.read, to, run);
  if (!rows.decodes()) return note;
  return note_of(source.index.kind, *quantizer, source.ivf.by_residual) + (note.empty() ? "" : "; " + note);
}

// Ids, sorted, with ranks and what sorts them; their places; centroids; product codes.
std::size_t held_bytes(const Source& source) {
  std::size_t bytes = at(source.index.rows) * (3 * sizeof(RowId) + 3 * sizeof(LocalRow)) +
                      at(source.ivf.quantizer->rows * source.index.cols) * sizeof(float);
  const auto codes = shape_of_codes(source);
  if (codes) {
    bytes += at(codes->code_bytes()) * at(source.index.rows + std::ssize(source.ivf.lists) * (code_block_rows - 1)) +
             at(codes->codewords() * codes->part_dims) * sizeof(float);
  }
  if (source.one_list) bytes += at(source.index.rows) * sizeof(std::int64_t);
  if (source.full && !source.chain && !codes && source.index.cols <= most_unchanged_dims) {
    bytes += at(source.index.cols * source.index.cols) * sizeof(float);
  }
  // In float64: what comes before, what comes next, and both.
  for (std::size_t i = 0; source.chain && i < source.chain->chain.size(); ++i) {
    bytes +=
        3 * sizeof(double) * at(source.chain->chain[i].cols_out) * at(source.chain->chain.front().cols_in + source.chain->chain[i].cols_in);
  }
  return bytes + longest_list(source) * sizeof(std::pair<RowId, LocalRow>) +
         source.ivf.lists.size() * (sizeof(FaissList) + 3 * sizeof(std::int64_t));
}

std::size_t writing_bytes(const Source& source) {
  const auto codes = shape_of_codes(source);
  return codes ? least_writing_bytes(source.index.rows, writing_bytes_of_code(codes->code_bytes())) : container_block_bytes;
}

void require_fewer_rows(const FileBytes& file, std::int64_t rows) {
  require(rows < std::int64_t{0xFFFFFFFF}, Fault::unsupported, file.name, ": an index has at most 4294967294 rows, got ", rows);
}

// All rows without lists.
std::string import_vectors(const FileBytes& file, const FaissIndex& root, const FaissIndex& index, const std::filesystem::path& to,
                           const RunOptions& run) {
  require_fewer_rows(file, index.rows);
  const auto* const map = std::get_if<FaissIdMap>(&root.what);
  const Metric metric = metric_of(file, index);
  const std::size_t needed = at(index.rows) * (2 * sizeof(RowId) + sizeof(std::pair<RowId, std::int64_t>)) + container_block_bytes;  // ids, and sorted once more
  require(run.memory_bytes == 0 || needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
          " bytes is too small: the conversion of ", file.name, " needs ", needed);
  const auto* const scalar = std::get_if<FaissScalarRows>(&index.what);
  if (scalar) require_trained(file, index, scalar->quantizer);
  FaissRows rows(index.cols, scalar ? &scalar->quantizer : nullptr, false);
  const std::byte* const first = index.rows == 0 ? nullptr : scalar ? scalar->codes.data() : std::get<FaissFlat>(index.what).values.at(0);
  std::vector<std::pair<RowId, std::int64_t>> sorted;
  sorted.reserve(at(index.rows));
  for (std::int64_t row = 0; row < index.rows; ++row) sorted.emplace_back(RowId{map ? map->ids[at(row)] : row}, row);
  std::sort(sorted.begin(), sorted.end());
  std::vector<RowId> ids;
  ids.reserve(at(index.rows));
  for (const auto& [id, row] : sorted) ids.push_back(id);
  if (map && !ids.empty()) RowIds(ids, nullptr, file.name).require_sound();
  const IvfFacts facts{metric, rows.dtype(), index.cols, ids.empty() ? 0 : value_of(ids.back()) + 1, false};
  const auto read = [&](std::int64_t place, std::byte* out) {
    const std::byte* const code = first + at(sorted[at(place)].second) * rows.code_bytes();
    require(rows.read(code, nullptr, out), Fault::invalid_data, file.name, ": byte ", code - file.bytes.data(), ": the row of id ",
            value_of(ids[at(place)]), " has NaN or infinity");
  };
  write_flat(facts, ids, read, to, run);
  return rows.decodes() ? note_of(index.kind, scalar->quantizer, false) : std::string();
}

}  // namespace

std::string import_faiss(const std::filesystem::path& from, const std::filesystem::path& to, const RunOptions& run) {
  const UsualFloats floats;
  const FileBytes file = map_file(from);
  const FaissIndex root = read_faiss(file);
  if (const FaissIndex* const vectors = vectors_alone(root)) return import_vectors(file, root, *vectors, to, run);
  const Source source = source_in(file, root);
  require_fewer_rows(file, source.index.rows);
  const std::size_t held = held_bytes(source), needed = held + writing_bytes(source);
  require(run.memory_bytes == 0 || needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
          " bytes is too small: the conversion of ", file.name, " needs ", needed);
  const Metric metric = metric_of(file, source.index);
  const Matrix centroids = centroids_of(source, metric);
  const SortedLists sorted = sorted_lists(source);
  check_cancelled(run);
  const auto codes = shape_of_codes(source);
  RunOptions writing = run;
  if (run.memory_bytes > 0) writing.memory_bytes -= held;
  return codes ? import_codes(source, *codes, metric, centroids, sorted, to, writing)
               : import_flat(source, metric, centroids, sorted, to, run);
}

}  // namespace gigaknn
