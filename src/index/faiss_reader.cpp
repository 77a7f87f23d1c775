#include <algorithm>
#include <array>
#include <utility>

#include "core/require.hpp"
#include "index/faiss_file.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t most_rows = std::int64_t{1} << 48;  // times most_faiss_cols and 8 it still fits 128 bits, and every sum of sizes 64
constexpr int most_levels = 8;

struct Letters {
  std::string_view letters;
  std::string_view kind;
};

// To add a kind: its letters here, its reading in Reader::index, what it becomes in faiss_import.cpp.
constexpr Letters read_kinds[] = {
    {"IxF2", "IndexFlat"}, {"IxFI", "IndexFlat"}, {"IxFl", "IndexFlat"}, {"IxSQ", "IndexScalarQuantizer"}, {"IwFl", "IndexIVFFlat"},
    {"IwSq", "IndexIVFScalarQuantizer"}, {"IwPQ", "IndexIVFPQ"}, {"IxMp", "IndexIDMap"}, {"IxM2", "IndexIDMap2"}, {"IxRF", "IndexRefine"},
    {"IxPT", "IndexPreTransform"},
};
// Those that are only named.
constexpr Letters other_kinds[] = {
    {"IHNf", "IndexHNSWFlat"}, {"IHNs", "IndexHNSWSQ"}, {"IHNp", "IndexHNSWPQ"}, {"IHN2", "IndexHNSW2Level"}, {"IHc2", "IndexHNSWCagra"},
    {"IHfP", "IndexHNSWFlatPanorama"}, {"INSf", "IndexNSGFlat"}, {"INSp", "IndexNSGPQ"}, {"INSs", "IndexNSGSQ"}, {"INNf", "IndexNNDescentFlat"},
    {"IxHe", "IndexLSH"}, {"IxPq", "IndexPQ"}, {"IPfs", "IndexPQFastScan"}, {"IxRq", "IndexResidualQuantizer"}, {"IxLS", "IndexLocalSearchQuantizer"},
    {"IxPR", "IndexProductResidualQuantizer"}, {"Ixrq", "IndexRaBitQ"}, {"Irfn", "IndexRaBitQFastScan"}, {"IxEe", "IndexEDEN"},
    {"Ix2L", "Index2Layer"}, {"Imiq", "MultiIndexQuantizer"}, {"IvFl", "IndexIVFFlat of an early Faiss"},
    {"IvFL", "IndexIVFFlat of an early Faiss"}, {"IvPQ", "IndexIVFPQ of an early Faiss"}, {"IwPf", "IndexIVFPQFastScan"}, {"IwQR", "IndexIVFPQR"},
    {"IwFd", "IndexIVFFlatDedup"}, {"IwP2", "IndexIVFFlatPanorama"}, {"IwSh", "IndexIVFSpectralHash"}, {"IwRQ", "IndexIVFResidualQuantizer"},
    {"IwLS", "IndexIVFLocalSearchQuantizer"}, {"IwPR", "IndexIVFProductResidualQuantizer"}, {"IwPL", "IndexIVFProductLocalSearchQuantizer"},
    {"Ixrr", "IndexRaBitQ of several bits"}, {"Iwrr", "IndexIVFRaBitQ of several bits"}, {"IxPL", "IndexProductLocalSearchQuantizer"},
    {"ILfs", "IndexLocalSearchQuantizerFastScan"}, {"IRfs", "IndexResidualQuantizerFastScan"}, {"IPLf", "IndexProductLocalSearchQuantizerFastScan"},
    {"IPRf", "IndexProductResidualQuantizerFastScan"}, {"IVLf", "IndexIVFLocalSearchQuantizerFastScan"}, {"IVRf", "IndexIVFResidualQuantizerFastScan"},
    {"NPLf", "IndexIVFProductLocalSearchQuantizerFastScan"}, {"NPRf", "IndexIVFProductResidualQuantizerFastScan"}, {"ImRQ", "ResidualCoarseQuantizer"},
    {"IwSQ", "IndexIVFScalarQuantizer of an early Faiss"}, {"IvSQ", "IndexIVFScalarQuantizer of an early Faiss"},
    {"Iwrq", "IndexIVFRaBitQ"}, {"Iwrn", "IndexIVFRaBitQFastScan"}, {"IwEe", "IndexIVFEDEN"}, {"IwIQ", "IndexIVFIndependentQuantizer"},
};
// Those whose header is another still.
constexpr Letters headless_kinds[] = {
    {"IxLa", "IndexLattice"},       {"IRMf", "IndexRowwiseMinMaxFP16"},
    {"IxFP", "IndexFlatL2Panorama"}, {"IxFp", "IndexFlatIPPanorama"},
    {"IxRP", "IndexRefinePanorama"}, {"IHNr", "IndexHNSWRaBitQ"},
    {"IRMh", "IndexRowwiseMinMax"}, {"ISVD", "IndexSVS"},
    {"ISVL", "IndexSVS"},           {"ILVQ", "IndexSVS"},
    {"ISVF", "IndexSVS"},           {"null", "no index"},
};
// Of bits; their header is another.
constexpr Letters binary_kinds[] = {
    {"IBxF", "IndexBinaryFlat"}, {"IBwF", "IndexBinaryIVF"}, {"IBHf", "IndexBinaryHNSW"}, {"IBHh", "IndexBinaryHash"},
    {"IBFf", "IndexBinaryFromFloat"}, {"IBMp", "IndexBinaryIDMap"}, {"IBM2", "IndexBinaryIDMap2"}, {"IBHm", "IndexBinaryMultiHash"},
};

std::string_view kind_of(std::span<const Letters> kinds, std::string_view letters) {
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Letters& kind) { return kind.letters == letters; });
  return found == kinds.end() ? std::string_view() : found->kind;
}

// Of a row of `cols` dimensions.
std::uint64_t code_bytes_of(FaissScalarType type, std::uint64_t cols) {
  switch (type) {
    case FaissScalarType::bits4:
    case FaissScalarType::bits4_uniform: return (cols + 1) / 2;
    case FaissScalarType::bits6: return (cols * 6 + 7) / 8;
    case FaissScalarType::fp16:
    case FaissScalarType::bf16: return cols * 2;
    default: return cols;
  }
}

std::uint64_t trained_values_of(FaissScalarType type, std::uint64_t cols) {
  switch (type) {
    case FaissScalarType::bits8:
    case FaissScalarType::bits4:
    case FaissScalarType::bits6: return 2 * cols;
    case FaissScalarType::bits8_uniform:
    case FaissScalarType::bits4_uniform: return 2;
    default: return 0;
  }
}

class Reader {
 public:
  explicit Reader(const FileBytes& file) : file_(file) {}

  FaissIndex whole() {
    FaissIndex index = read(1);
    require_at(stopped_ || place_ == file_.size(), file_, place_, file_.size() - place_, " bytes behind the index");
    return index;
  }

 private:
  template <class T>
  T value(std::string_view what) {
    const T read = value_at<T>(file_, place_, what);
    place_ += sizeof(T);
    return read;
  }
  std::string letters(std::string_view what) {
    const auto four = value<std::array<char, 4>>(what);
    return {four.data(), four.size()};
  }
  bool flag(std::string_view what) {
    const auto byte = value<std::uint8_t>(what);
    require_at(byte <= 1, file_, place_ - 1, what, " is ", int{byte}, ", expected 0 or 1");
    return byte == 1;
  }
  std::span<const std::byte> bytes(WideSize count, std::string_view what) {
    const std::uint64_t left = file_.size() - place_;
    require_at(count <= left, file_, place_, what, " needs ", decimal(count), " bytes, but ", left, " are left");
    const auto found = file_.bytes.subspan(place_, static_cast<std::size_t>(count));
    place_ += found.size();
    return found;
  }
  template <class T>
  FileValues<T> array(std::string_view what) {
    const auto count = value<std::uint64_t>(what);
    return FileValues<T>(bytes(WideSize{count} * sizeof(T), what));
  }
  // Of so many values, no more and no fewer.
  template <class T>
  FileValues<T> array(WideSize expected, std::string_view what) {
    const std::uint64_t from = place_;
    const FileValues<T> values = array<T>(what);
    require_at(values.size() == expected, file_, from, what, " has ", values.size(), " values, expected ", decimal(expected));
    return values;
  }

  FaissIndex read(int level);
  void read_header(FaissIndex& index);
  void read_contents(FaissIndex& index, std::string_view four, int level);
  // Of an index within `outer`, of as many dimensions. Where the reading stopped in it, so does that of what is around.
  FaissPart part_of(const FaissIndex& outer, std::int64_t cols, int level);
  void require_like(const FaissIndex& outer, const FaissIndex& inner) const;
  void stop(FaissIndex& index, std::string kind) {
    index.kind = std::move(kind);
    stopped_ = true;
  }

  FaissFlat flat(const FaissIndex& index) {
    return {array<float>(WideSize(index.rows) * static_cast<std::uint64_t>(index.cols), "the rows")};
  }
  std::optional<FaissScalar> scalar_quantizer(FaissIndex& index);
  FaissProduct product_quantizer(const FaissIndex& index);
  void read_scalar_rows(FaissIndex& index);
  void read_inverted_file(FaissIndex& index, std::string_view four, int level);
  void read_codes(FaissIndex& index, FaissIvf& ivf, std::string_view four, std::uint64_t& code_bytes);
  void read_lists(FaissIndex& index, FaissIvf& ivf, std::uint64_t code_bytes);
  std::vector<std::uint64_t> list_sizes(std::uint64_t lists);
  void read_pre_transform(FaissIndex& index, int level);
  FaissTransform transform();

  const FileBytes& file_;
  std::uint64_t place_ = 0;
  bool stopped_ = false;  // at what is not read: nobody knows where it ends
};

FaissIndex Reader::read(int level) {
  require_at(level <= most_levels, file_, place_, "more than ", most_levels, " indexes in one another");
  FaissIndex index;
  index.offset = place_;
  const std::string four = letters("the letters of an index");
  if (const auto binary = kind_of(binary_kinds, four); !binary.empty()) {
    index.metric = no_faiss_metric;
    index.cols = value<std::int32_t>("dimensions");
    bytes(4, "bytes of a row");
    index.rows = value<std::int64_t>("rows");
    stop(index, std::string(binary));
    index.whole = false;
    return index;
  }
  if (const auto headless = kind_of(headless_kinds, four); !headless.empty()) {
    index.metric = no_faiss_metric;
    stop(index, std::string(headless));
    index.whole = false;
    return index;
  }
  const std::string_view known = kind_of(read_kinds, four);
  index.kind = known.empty() ? kind_of(other_kinds, four) : known;
  require_at(!index.kind.empty(), file_, index.offset, "'", printable(four), "' begins no index of Faiss");
  read_header(index);
  if (known.empty()) stopped_ = true;
  if (!stopped_) read_contents(index, four, level);
  index.whole = !stopped_;
  return index;
}

void Reader::read_header(FaissIndex& index) {
  const std::uint64_t from = place_;
  index.cols = value<std::int32_t>("dimensions");
  require_at(index.cols >= 1 && index.cols <= most_faiss_cols, file_, from, index.cols, " dimensions, expected 1 to ", most_faiss_cols);
  index.rows = value<std::int64_t>("rows");
  require_at(index.rows >= 0 && index.rows <= most_rows, file_, from + 4, index.rows, " rows, expected 0 to ", most_rows);
  bytes(16, "what a header leaves free");
  const bool trained = flag("whether the index is trained");
  index.metric = value<std::int32_t>("the metric");
  require_at(!faiss_metric_name(index.metric).empty(), file_, place_ - 4, "metric ", index.metric, " is none of Faiss's");
  if (index.metric > faiss_l2) value<float>("the metric's argument");
  // Of an IndexIDMap that flag means nothing: what is in it may have been trained by itself.
  if (!trained && !index.kind.starts_with("IndexIDMap")) stop(index, index.kind + " that is not trained");
}

void Reader::read_contents(FaissIndex& index, std::string_view four, int level) {
  if (four == "IxSQ") {
    read_scalar_rows(index);
  } else if (four.starts_with("IxF")) {
    index.what = flat(index);
  } else if (four.starts_with("Iw")) {
    read_inverted_file(index, four, level);
  } else if (four.starts_with("IxM")) {
    FaissIdMap map{part_of(index, index.cols, level), {}};
    if (!stopped_) require_like(index, *map.index);
    if (!stopped_) map.ids = array<std::int64_t>(WideSize(index.rows), "the ids");
    index.what = std::move(map);
  } else if (four == "IxRF") {
    FaissRefine refine{part_of(index, index.cols, level), nullptr, 0};
    if (!stopped_) {
      require_like(index, *refine.base);
      refine.refine = part_of(index, index.cols, level);
    }
    if (!stopped_) {
      require_like(index, *refine.refine);
      refine.k_factor = value<float>("the factor of k");
    }
    if (refine.refine && refine.refine->kind == "IndexFlat") index.kind = "IndexRefineFlat";
    index.what = std::move(refine);
  } else {
    read_pre_transform(index, level);
  }
}

FaissPart Reader::part_of(const FaissIndex& outer, std::int64_t cols, int level) {
  auto part = std::make_unique<FaissIndex>(read(level + 1));
  require_at(stopped_ || part->cols == cols, file_, part->offset, part->kind, " of ", part->cols, " dimensions in ", outer.kind,
             ", which needs ", cols);
  return part;
}

void Reader::require_like(const FaissIndex& outer, const FaissIndex& inner) const {
  require_at(inner.rows == outer.rows && inner.metric == outer.metric, file_, inner.offset, inner.kind, " of ", inner.rows, " rows by ",
             faiss_metric_name(inner.metric), " in ", outer.kind, " of ", outer.rows, " by ", faiss_metric_name(outer.metric));
}

std::optional<FaissScalar> Reader::scalar_quantizer(FaissIndex& index) {
  const std::uint64_t from = place_;
  const auto type = value<std::int32_t>("the type of scalar codes");
  constexpr std::int32_t types_of_faiss = 27;
  require_at(type >= 0 && type < types_of_faiss, file_, from, "scalar codes of type ", type, ", expected 0 to ", types_of_faiss - 1);
  if (type > static_cast<std::int32_t>(FaissScalarType::direct_signed)) {
    stop(index, join_text(index.kind, " of type ", type));
    return std::nullopt;
  }
  FaissScalar quantizer{static_cast<FaissScalarType>(type), 0, {}};
  bytes(8, "how scalar codes were trained");
  const auto cols = static_cast<std::uint64_t>(index.cols);
  const auto quantizer_cols = value<std::uint64_t>("dimensions of scalar codes");
  require_at(quantizer_cols == cols, file_, place_ - 8, "scalar codes of ", quantizer_cols, " dimensions, expected ", cols);
  quantizer.code_bytes = value<std::uint64_t>("bytes of a scalar code");
  require_at(quantizer.code_bytes == code_bytes_of(quantizer.type, cols), file_, place_ - 8, "scalar codes of ", quantizer.code_bytes,
             " bytes, expected ", code_bytes_of(quantizer.type, cols));
  const auto trained = array<float>(trained_values_of(quantizer.type, cols), "what scalar codes were trained to");
  for (std::size_t i = 0; i < trained.size(); ++i) quantizer.trained.push_back(trained[i]);
  return quantizer;
}

FaissProduct Reader::product_quantizer(const FaissIndex& index) {
  const auto cols = value<std::uint64_t>("dimensions of product codes");
  require_at(cols == static_cast<std::uint64_t>(index.cols), file_, place_ - 8, "product codes of ", cols, " dimensions, expected ",
             index.cols);
  const auto m = value<std::uint64_t>("parts of product codes");
  require_at(m >= 1 && m <= cols && cols % m == 0, file_, place_ - 8, "product codes of ", m, " parts, expected a divisor of ", cols);
  const auto bits = value<std::uint64_t>("bits of a part");
  require_at(bits >= 1 && bits <= 24, file_, place_ - 8, "parts of ", bits, " bits, expected 1 to 24");
  return {static_cast<std::int64_t>(m), static_cast<std::int64_t>(bits), array<float>(WideSize{cols} << bits, "the codewords")};
}

void Reader::read_scalar_rows(FaissIndex& index) {
  auto quantizer = scalar_quantizer(index);
  if (!quantizer) return;
  const std::uint64_t from = place_;
  const auto count = value<std::uint64_t>("the codes");
  const WideSize expected = WideSize(index.rows) * quantizer->code_bytes;
  require_at(count == expected, file_, from, count, " bytes of codes, expected ", decimal(expected));
  index.what = FaissScalarRows{std::move(*quantizer), bytes(count, "the codes")};
}

void Reader::read_inverted_file(FaissIndex& index, std::string_view four, int level) {
  const std::uint64_t from = place_;
  const auto lists = value<std::uint64_t>("the number of lists");
  const auto nprobe = value<std::uint64_t>("nprobe");
  FaissIvf ivf{part_of(index, index.cols, level), {}, false, {}, nprobe};
  std::uint64_t code_bytes = static_cast<std::uint64_t>(index.cols) * sizeof(float);
  if (ivf.quantizer->kind != "IndexFlat") stopped_ = true;
  if (!stopped_) {
    // So many centroids, of floats, are in the file: what is allocated for lists is bounded by it.
    require_at(lists >= 1 && lists == static_cast<std::uint64_t>(ivf.quantizer->rows), file_, from, lists, " lists, but ",
               ivf.quantizer->rows, " centroids");
    const auto map_type = value<std::uint8_t>("the type of the direct map");
    require_at(map_type <= 2, file_, place_ - 1, "a direct map of type ", int{map_type}, ", expected 0, 1 or 2");
    array<std::int64_t>("the direct map");
    if (map_type == 2) array<std::array<std::int64_t, 2>>("the direct map");
    read_codes(index, ivf, four, code_bytes);
  }
  if (!stopped_) {
    read_lists(index, ivf, code_bytes);
  } else if (ivf.quantizer->kind != "IndexFlat") {
    index.kind += " over " + ivf.quantizer->kind;
  }
  index.what = std::move(ivf);
}

void Reader::read_codes(FaissIndex& index, FaissIvf& ivf, std::string_view four, std::uint64_t& code_bytes) {
  if (four == "IwFl") return;
  const auto read_code_bytes = [&] { code_bytes = value<std::uint64_t>("bytes of a code"); };
  std::uint64_t expected = 0;
  if (four == "IwSq") {
    auto quantizer = scalar_quantizer(index);
    if (!quantizer) return;
    expected = quantizer->code_bytes;
    read_code_bytes();
    ivf.by_residual = flag("whether codes are of residuals");
    ivf.codes = std::move(*quantizer);
  } else {
    ivf.by_residual = flag("whether codes are of residuals");
    read_code_bytes();
    const FaissProduct product = product_quantizer(index);
    expected = static_cast<std::uint64_t>(product.m * product.bits + 7) / 8;
    ivf.codes = product;
  }
  require_at(code_bytes == expected, file_, place_, "codes of ", code_bytes, " bytes, expected ", expected);
}

std::vector<std::uint64_t> Reader::list_sizes(std::uint64_t lists) {
  const std::uint64_t from = place_;
  const std::string how = letters("how list sizes are written");
  std::vector<std::uint64_t> sizes(lists);
  if (how == "full") {
    const auto all = array<std::uint64_t>(WideSize{lists}, "the sizes of lists");
    for (std::size_t list = 0; list < sizes.size(); ++list) sizes[list] = all[list];
    return sizes;
  }
  require_at(how == "sprs", file_, from, "sizes of lists begin with '", printable(how), "', expected 'full' or 'sprs'");
  const auto pairs = array<std::uint64_t>("the sizes of lists");
  require_at(pairs.size() % 2 == 0, file_, from + 4, "the sizes of lists are ", pairs.size(), " values, expected pairs");
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    require_at(pairs[i] < lists && (i == 0 || pairs[i - 2] < pairs[i]), file_, from + 12 + i * 8, "list ", pairs[i],
               ", expected numbers that ascend to ", lists - 1);
    sizes[pairs[i]] = pairs[i + 1];
  }
  return sizes;
}

void Reader::read_lists(FaissIndex& index, FaissIvf& ivf, std::uint64_t code_bytes) {
  const std::uint64_t from = place_;
  const std::string four = letters("the letters of inverted lists");
  if (four == "il00" || four == "ilod") return stop(index, index.kind + " whose lists are in another file");
  require_at(four == "ilar", file_, from, "'", printable(four), "' begins no inverted lists");
  const auto lists = value<std::uint64_t>("the number of lists");
  require_at(lists == static_cast<std::uint64_t>(ivf.quantizer->rows), file_, from + 4, lists, " lists, expected ", ivf.quantizer->rows);
  const auto bytes_of_code = value<std::uint64_t>("bytes of a code");
  require_at(bytes_of_code == code_bytes, file_, from + 12, "codes of ", bytes_of_code, " bytes, expected ", code_bytes);
  const std::vector<std::uint64_t> sizes = list_sizes(lists);
  WideSize rows = 0;
  for (const std::uint64_t size : sizes) rows += size;
  require_at(rows == static_cast<std::uint64_t>(index.rows), file_, from, "lists of ", decimal(rows), " rows, expected ", index.rows);
  ivf.lists.reserve(sizes.size());
  for (const std::uint64_t size : sizes) {
    const auto codes = bytes(WideSize{size} * code_bytes, "the codes of a list");
    ivf.lists.push_back({codes, FileValues<std::int64_t>(bytes(WideSize{size} * sizeof(std::int64_t), "the ids of a list"))});
  }
}

void Reader::read_pre_transform(FaissIndex& index, int level) {
  const auto count = value<std::int32_t>("the number of transforms");
  constexpr std::int32_t most_transforms = 64;
  require_at(count >= 0 && count <= most_transforms, file_, place_ - 4, count, " transforms, expected 0 to ", most_transforms);
  FaissPreTransform chain;
  std::int64_t cols = index.cols;
  for (std::int32_t i = 0; i < count && !stopped_; ++i) {
    const std::uint64_t from = place_;
    chain.chain.push_back(transform());
    if (stopped_) break;
    require_at(chain.chain.back().cols_in == cols, file_, from, chain.chain.back().kind, " of ", chain.chain.back().cols_in,
               " dimensions, expected ", cols);
    cols = chain.chain.back().cols_out;
  }
  if (!stopped_) chain.index = part_of(index, cols, level);
  if (!stopped_) require_like(index, *chain.index);
  index.what = std::move(chain);
}

FaissTransform Reader::transform() {
  const std::uint64_t from = place_;
  const std::string four = letters("the letters of a transform");
  FaissTransform found;
  found.offset = from;
  const auto read_matrix = [&] {
    const bool has_bias = flag("whether a transform has a bias");
    found.matrix = array<float>("the matrix of a transform");
    found.bias = array<float>("the bias of a transform");
    if (!has_bias) found.bias = {};  // one that was made may be switched off
  };
  if (four == "LTra" || four == "rrot") {
    found.kind = four == "LTra" ? "LinearTransform" : "RandomRotationMatrix";
    read_matrix();
  } else if (four == "Pcam") {
    found.kind = "PCAMatrix";
    bytes(13, "how a PCA was made");
    for (const char* what : {"the mean of a PCA", "its eigenvalues", "its eigenvectors"}) array<float>(what);
    read_matrix();
  } else if (four == "VNrm") {
    found.kind = "NormalizationTransform";
    value<float>("the norm of a transform");
  } else if (four == "VCnt") {
    found.kind = "CenteringTransform";
    found.mean = array<float>("the mean of a transform");
  } else if (four == "RmDT") {
    found.kind = "RemapDimensionsTransform";
    found.from = array<std::int32_t>("the dimensions of a transform");
  } else if (four == "HRot") {
    found.kind = "HadamardRotation";
    value<std::int32_t>("the seed of a transform");
  } else {
    require_at(four == "Viqt" || four == "Viqm", file_, from, "'", printable(four), "' begins no transform");
    stopped_ = true;
    found.kind = "ITQTransform";
    return found;
  }
  found.cols_in = value<std::int32_t>("dimensions that a transform takes");
  found.cols_out = value<std::int32_t>("dimensions that a transform makes");
  require_at(found.cols_in >= 1 && found.cols_in <= most_faiss_cols && found.cols_out >= 1 && found.cols_out <= most_faiss_cols, file_,
             place_ - 8, found.kind, " of ", found.cols_in, " to ", found.cols_out, " dimensions, expected 1 to ", most_faiss_cols);
  flag("whether a transform is trained");
  const auto rows = static_cast<std::size_t>(found.cols_out), values = rows * static_cast<std::size_t>(found.cols_in);
  const std::size_t matrix = found.matrix.size(), bias = found.bias.size();
  require_at(matrix == 0 || (matrix == values && (bias == 0 || bias == rows)), file_, from, "a matrix of ", matrix,
             " values and a bias of ", bias, ", expected ", found.cols_out, " x ", found.cols_in);
  return found;
}

}  // namespace

FaissIndex read_faiss(const FileBytes& file) { return Reader(file).whole(); }

bool begins_faiss(const FileBytes& file) {
  if (file.size() < 4) return false;
  const std::string_view four(reinterpret_cast<const char*>(file.bytes.data()), 4);
  return !kind_of(read_kinds, four).empty() || !kind_of(other_kinds, four).empty() || !kind_of(binary_kinds, four).empty() ||
         !kind_of(headless_kinds, four).empty();
}

}  // namespace gigaknn
