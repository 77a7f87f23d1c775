#include "graph/stored_cells.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "io/container_values.hpp"

namespace gigaknn {
namespace {

constexpr std::string_view quantizer_schema = "gk-cells";
constexpr std::string_view shard_schema = "gk-shard";
constexpr std::uint32_t schema_version = 2;
constexpr std::int64_t cells_at_once = 16;  // that one thread looks at
constexpr std::size_t encoded_bytes = std::size_t{1} << 22;  // of rows that are encoded at once

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Container open_container(const std::filesystem::path& path, std::string_view schema) {
  Container file = Container::open(path);
  require_schema(file, schema, schema_version);
  return file;
}

Matrix copy_of(MatrixRef rows) {
  std::vector<std::int64_t> all(at(rows.rows));
  std::iota(all.begin(), all.end(), 0);
  return gather_rows(rows, all);
}

void write_levels(ContainerWriter& writer, std::string_view name, const ByteRows& bytes) {
  const double levels[4] = {bytes.low, bytes.inverse_step, static_cast<double>(bytes.most), static_cast<double>(bytes.form)};
  writer.add_section(name, Element::f64, 1, 4, levels);
}

ByteRows read_levels(const Container& file, std::string_view name) {
  const auto levels = values_in<double>(file, name, Element::f64);
  require_at(levels.size() == 4 && levels[2] >= 1 && levels[2] <= 255 && levels[3] >= 0 &&
                 levels[3] <= static_cast<double>(ByteRows::Form::roots),
             file.file(), 0, "does not say how rows become bytes");
  return {static_cast<ByteRows::Form>(levels[3]), levels[0], levels[1], static_cast<std::uint8_t>(levels[2])};
}

}  // namespace

void write_quantizer(const CoarseQuantizer& quantizer, const std::optional<CandidateRows>& candidates, const std::filesystem::path& path) {
  ContainerWriter writer(path, quantizer_schema, schema_version);
  const double steps[2] = {quantizer.bytes ? quantizer.bytes->low : 0, quantizer.bytes ? quantizer.bytes->inverse_step : 0};
  const std::uint8_t kind[3] = {quantizer.bytes.has_value(),
                                static_cast<std::uint8_t>(quantizer.bytes ? quantizer.bytes->form : ByteRows::Form{}),
                                static_cast<std::uint8_t>(quantizer.metric)};
  writer.add_section("kind", Element::u8, 1, 3, kind);
  writer.add_section("steps", Element::f64, 1, 2, steps);
  writer.add_section("begins", Element::i64, 1, quantizer.begins.size(), quantizer.begins.data());
  add_matrix(writer, "regions", quantizer.regions);
  add_matrix(writer, "centroids", quantizer.centroids);
  if (candidates) {
    const std::uint8_t has[2] = {candidates->bytes.has_value(), candidates->reduced.has_value()};
    writer.add_section("candidates", Element::u8, 1, 2, has);
    if (candidates->bytes) write_levels(writer, "bytes", *candidates->bytes);
    if (candidates->reduced) {
      add_matrix(writer, "directions", candidates->reduced->directions);
      writer.add_section("means", Element::f32, 1, candidates->reduced->means.size(), candidates->reduced->means.data());
      write_levels(writer, "levels", candidates->reduced->levels);
    }
  }
  writer.finish();
}

CoarseQuantizer read_quantizer(const std::filesystem::path& path) {
  const Container file = open_container(path, quantizer_schema);
  file.verify();
  CoarseQuantizer quantizer;
  const auto kind = values_in<std::uint8_t>(file, "kind", Element::u8);
  const auto steps = values_in<double>(file, "steps", Element::f64);
  const auto begins = values_in<std::int64_t>(file, "begins", Element::i64);
  quantizer.regions = copy_of(matrix_in(file, "regions"));
  quantizer.centroids = copy_of(matrix_in(file, "centroids"));
  quantizer.begins.assign(begins.begin(), begins.end());
  require_at(kind.size() == 3 && steps.size() == 2 && std::ssize(begins) == quantizer.regions.rows() + 1 &&
                 quantizer.begins.front() == 0 && quantizer.begins.back() == quantizer.centroids.rows() &&
                 std::is_sorted(begins.begin(), begins.end()) && quantizer.regions.cols() == quantizer.centroids.cols() &&
                 kind[1] <= static_cast<std::uint8_t>(ByteRows::Form::roots) && kind[2] < all_metrics().size(),
             file.file(), 0, "holds no quantizer");
  if (kind[0]) quantizer.bytes = {static_cast<ByteRows::Form>(kind[1]), steps[0], steps[1]};
  quantizer.metric = static_cast<Metric>(kind[2]);
  return quantizer;
}

std::optional<CandidateRows> read_candidate_rows(const std::filesystem::path& path, std::int64_t cols) {
  const Container file = open_container(path, quantizer_schema);
  if (!file.find_section("candidates")) return {};
  file.verify();
  const auto has = values_in<std::uint8_t>(file, "candidates", Element::u8);
  require_at(has.size() == 2 && (has[0] || has[1]), file.file(), 0, "does not say as what rows have candidates");
  CandidateRows found;
  if (has[0]) found.bytes = read_levels(file, "bytes");
  if (has[1]) {
    const auto means = values_in<float>(file, "means", Element::f32);
    found.reduced = {copy_of(matrix_in(file, "directions")), {means.begin(), means.end()}, read_levels(file, "levels")};
    const MatrixRef directions = found.reduced->directions;
    require_at(directions.dtype == DType::i8 && directions.rows == std::ssize(means) && directions.cols == cols, file.file(), 0,
               "holds no directions of rows");
  }
  return found;
}

void write_shard(const Ops& ops, MatrixRef rows, std::int64_t first, const std::vector<std::uint32_t>& cells, std::int64_t cell_count,
                 const std::optional<CandidateRows>& candidates, const std::filesystem::path& path, const RunOptions& run) {
  std::vector<std::uint32_t> begins(at(cell_count + 1)), ids(cells.size());
  for (const std::uint32_t cell : cells) ++begins[cell + 1];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<std::uint32_t> next(begins.begin(), begins.end() - 1);
  for (std::size_t i = 0; i < cells.size(); ++i) ids[next[cells[i]]++] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(i);

  ContainerWriter writer(path, shard_schema, schema_version);
  const std::int64_t first_of_all = first;
  writer.add_section("first", Element::i64, 1, 1, &first_of_all);
  writer.add_section("begins", Element::u32, 1, begins.size(), begins.data());
  writer.add_section("ids", Element::u32, ids.size(), 1, ids.data());
  writer.begin_section("rows", element_of(rows.dtype), ids.size(), static_cast<std::uint64_t>(rows.cols));
  const std::size_t row_bytes = at(rows.cols) * size_of(rows.dtype);
  for (const std::uint32_t id : ids) writer.append(rows.row_bytes(std::int64_t{id} - first), row_bytes);
  if (candidates) {
    const std::int64_t dims = candidates->reduced ? candidates->reduced->dims() : rows.cols;
    writer.begin_section("candidates", Element::u8, ids.size(), static_cast<std::uint64_t>(dims));
    const std::size_t at_once = std::max<std::size_t>(16, encoded_bytes / row_bytes);
    std::vector<std::int64_t> some;
    for (std::size_t begin = 0; begin < ids.size(); begin += at_once) {
      check_cancelled(run);
      some.clear();
      for (std::size_t i = begin; i < std::min(ids.size(), begin + at_once); ++i) some.push_back(std::int64_t{ids[i]} - first);
      const Matrix encoded = candidates->encode(ops, gather_rows(rows, some, run), run);
      writer.append(encoded.row<std::byte>(0), some.size() * at(dims));
    }
  }
  writer.finish();
}

StoredCells::StoredCells(const std::vector<std::filesystem::path>& shards, MatrixRef base, std::int64_t most_rows_of_a_cell) {
  for (const auto& path : shards) open(path);
  const Shard& last = shards_.back();
  require_at(last.first + last.rows.rows == base.rows && last.rows.cols == base.cols && last.rows.dtype == base.dtype, last.file.file(), 0,
             "holds no shard of this base");
  split(most_rows_of_a_cell);
}

void StoredCells::open(const std::filesystem::path& path) {
  Container file = open_container(path, shard_schema);
  const auto first = values_in<std::int64_t>(file, "first", Element::i64);
  const auto ids = values_in<std::uint32_t>(file, "ids", Element::u32);
  const auto begins = values_in<std::uint32_t>(file, "begins", Element::u32);
  const MatrixRef rows = matrix_in(file, "rows");
  std::optional<MatrixRef> encoded;
  if (file.find_section("candidates")) encoded = matrix_in(file, "candidates");
  const bool fits = (!encoded || (encoded->rows == rows.rows && encoded->dtype == DType::u8)) &&
                    first.size() == 1 && std::ssize(ids) == rows.rows && begins.size() > 1 && begins.back() == ids.size() &&
                    std::is_sorted(begins.begin(), begins.end()) &&
                    (shards_.empty() || (begins.size() == shards_.front().begins.size() && rows.cols == shards_.front().rows.cols &&
                                         first[0] == shards_.back().first + shards_.back().rows.rows));
  require_at(fits, file.file(), 0, "holds no shard of these cells");
  shards_.push_back({file, rows, encoded, ids.data(), first[0], {begins.begin(), begins.end()}});
  release(shards_.back());
}

void StoredCells::split(std::int64_t most_rows) {
  const std::size_t fitted = shards_.front().begins.size() - 1;
  std::vector<std::vector<std::uint32_t>> begins(shards_.size(), {0});
  begins_ = {0};
  for (std::size_t cell = 0; cell < fitted; ++cell) {
    std::int64_t rows = 0;
    for (const Shard& shard : shards_) rows += shard.begins[cell + 1] - shard.begins[cell];
    const std::int64_t pieces = std::max<std::int64_t>(1, (rows + most_rows - 1) / most_rows);
    copies_.push_back(pieces);
    const std::int64_t begin = begins_.back();
    for (std::int64_t piece = 1; piece <= pieces; ++piece) {
      const std::int64_t end = rows * piece / pieces;
      begins_.push_back(begin + end);
      std::int64_t before = 0;  // rows of the cell in shards before
      for (std::size_t s = 0; s < shards_.size(); ++s) {
        const std::int64_t mine = shards_[s].begins[cell + 1] - shards_[s].begins[cell];
        begins[s].push_back(shards_[s].begins[cell] + static_cast<std::uint32_t>(std::clamp<std::int64_t>(end - before, 0, mine)));
        before += mine;
      }
    }
  }
  for (std::size_t s = 0; s < shards_.size(); ++s) shards_[s].begins = std::move(begins[s]);
}

bool StoredCells::have(RowForm form) const {
  return form == RowForm::of_base || std::all_of(shards_.begin(), shards_.end(), [&](const Shard& shard) {
           return shard.encoded && shard.encoded->cols == shards_.front().encoded->cols;
         });
}

std::vector<std::vector<std::int64_t>> StoredCells::chunks(const std::vector<std::uint8_t>& wanted, std::int64_t most_rows,
                                                           std::int64_t most_cells) const {
  std::vector<std::vector<std::int64_t>> all;
  std::int64_t rows = 0;  // of the last
  for (std::int64_t cell = 0; cell < cells(); ++cell) {
    if (!wanted[at(cell)]) continue;
    const std::int64_t more = begins_[at(cell + 1)] - begins_[at(cell)];
    if (all.empty() || rows + more > most_rows || std::ssize(all.back()) == most_cells) {
      all.emplace_back();
      rows = 0;
    }
    all.back().push_back(cell);
    rows += more;
  }
  return all;
}

void StoredCells::release(const Shard& shard) const {
  const std::span<const std::byte> bytes = shard.file.file().bytes;
  release_mapped(bytes.data(), bytes.size());
}

Stretches StoredCells::stretches(const Shard& shard, std::span<const std::int64_t> cells, RowForm form) const {
  Stretches found;
  const auto add_each = [&](const std::byte* data, std::size_t bytes_a_row) {
    for (const std::int64_t cell : cells) {
      const std::size_t begin = shard.begins[at(cell)], end = shard.begins[at(cell + 1)];
      if (begin < end) add_stretch(found, {data + begin * bytes_a_row, (end - begin) * bytes_a_row});
    }
  };
  add_each(reinterpret_cast<const std::byte*>(shard.ids), sizeof shard.ids[0]);
  add_each(shard.in(form).row_bytes(0), at(shard.in(form).stride_bytes));
  return found;
}

void StoredCells::read_ahead(std::span<const std::int64_t> cells, RowForm form, ReadAhead& reader) const {
  Stretches all;
  for (const Shard& shard : shards_) {
    const Stretches more = stretches(shard, cells, form);
    all.insert(all.end(), more.begin(), more.end());
  }
  reader.begin(std::move(all));
}

std::vector<RowId> StoredCells::rows_at(std::span<const RowId> places) const {
  std::vector<RowId> rows;
  for (const RowId id : places) {
    const std::int64_t place = value_of(id);
    const auto cell = at(std::upper_bound(begins_.begin(), begins_.end(), place) - begins_.begin() - 1);
    std::int64_t left = place - begins_[cell];
    for (const Shard& shard : shards_) {
      const std::int64_t mine = shard.begins[cell + 1] - shard.begins[cell];
      if (left < mine) {
        rows.push_back(RowId{shard.ids[shard.begins[cell] + left]});
        break;
      }
      left -= mine;
    }
  }
  for (const Shard& shard : shards_) release(shard);
  return rows;
}

std::vector<RowId> StoredCells::cells_of(std::span<const RowId> rows, const RunOptions& run) const {
  std::vector<RowId> found(rows.size(), no_row);
  for (const Shard& shard : shards_) {
    std::vector<std::uint32_t> cell_of(at(shard.rows.rows));
    await_mapped({std::as_bytes(std::span(shard.ids, cell_of.size()))});
    parallel_for(run, cells(), cells_at_once, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t cell = begin; cell < end; ++cell) {
        for (const std::uint32_t id : shard.ids_of(cell)) cell_of[shard.place_of(id)] = static_cast<std::uint32_t>(cell);
      }
    });
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t row = value_of(rows[i]) - shard.first;
      if (row >= 0 && row < shard.rows.rows) found[i] = RowId{cell_of[at(row)]};
    }
    release(shard);
  }
  return found;
}

std::vector<std::uint32_t> StoredCells::ids_in(std::int64_t begin, std::int64_t end) const {
  std::vector<std::uint32_t> ids;
  ids.reserve(at(begins_[at(end)] - begins_[at(begin)]));
  for (std::int64_t cell = begin; cell < end; ++cell) {
    for (const Shard& shard : shards_) {
      const auto mine = shard.ids_of(cell);
      ids.insert(ids.end(), mine.begin(), mine.end());
    }
  }
  for (const Shard& shard : shards_) release(shard);
  return ids;
}

Matrix StoredCells::rows_in(std::int64_t begin, std::int64_t end, RowForm form, const RunOptions& run) const {
  const MatrixRef like = shards_.front().in(form);
  Matrix rows(begins_[at(end)] - begins_[at(begin)], like.cols, like.dtype);
  const auto row_bytes = at(rows.ref().stride_bytes);
  std::vector<std::int64_t> cells(at(end - begin));
  std::iota(cells.begin(), cells.end(), begin);
  for (const Shard& shard : shards_) await_mapped(stretches(shard, cells, form));
  parallel_for(run, end - begin, cells_at_once, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t cell = begin + first; cell < begin + last; ++cell) {
      std::byte* to = rows.row<std::byte>(begins_[at(cell)] - begins_[at(begin)]);
      for (const Shard& shard : shards_) {
        const std::size_t bytes = shard.ids_of(cell).size() * row_bytes;
        if (bytes > 0) std::memcpy(to, shard.in(form).row_bytes(shard.begins[at(cell)]), bytes);
        to += bytes;
      }
    }
  });
  for (const Shard& shard : shards_) release(shard);
  return rows;
}

LoadedCells StoredCells::load(std::span<const std::int64_t> cells, RowForm form, const RunOptions& run) const {
  LoadedCells loaded;
  loaded.begins = {0};
  for (const std::int64_t cell : cells) loaded.begins.push_back(loaded.begins.back() + begins_[at(cell + 1)] - begins_[at(cell)]);
  const MatrixRef like = shards_.front().in(form);
  loaded.rows = Matrix(loaded.begins.back(), like.cols, like.dtype);
  loaded.ids.resize(at(loaded.begins.back()));
  loaded.order.resize(loaded.ids.size());
  const auto row_bytes = at(loaded.rows.ref().stride_bytes);

  std::vector<std::int64_t> next(loaded.begins.begin(), loaded.begins.end() - 1);  // place in the order, of each cell
  std::uint32_t before = 0;                                                        // rows of shards before
  for (const Shard& shard : shards_) {
    check_cancelled(run);
    if (std::all_of(cells.begin(), cells.end(), [&](std::int64_t cell) { return shard.ids_of(cell).empty(); })) continue;
    await_mapped(stretches(shard, cells, form));
    // A bit for each row that is loaded, and how many are before those of each word.
    std::vector<std::uint64_t> bits(at((shard.rows.rows + 63) / 64));
    std::vector<std::uint32_t> before_word;
    const auto for_each_cell = [&](auto&& visit) {
      parallel_for(run, std::ssize(cells), cells_at_once, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) visit(at(i), shard.ids_of(cells[at(i)]));
      });
    };
    for_each_cell([&](std::size_t, std::span<const std::uint32_t> ids) {
      for (const std::uint32_t id : ids) {
        const std::size_t place = shard.place_of(id);
        std::atomic_ref(bits[place / 64]).fetch_or(std::uint64_t{1} << place % 64, std::memory_order_relaxed);
      }
    });
    for (const std::uint64_t word : bits) {
      before_word.push_back(before);
      before += static_cast<std::uint32_t>(std::popcount(word));
    }
    for_each_cell([&](std::size_t i, std::span<const std::uint32_t> ids) {
      const std::byte* row = shard.in(form).row_bytes(shard.begins[at(cells[i])]);
      for (const std::uint32_t id : ids) {
        const std::size_t place = shard.place_of(id);
        const std::uint64_t below = bits[place / 64] & ((std::uint64_t{1} << place % 64) - 1);
        const std::uint32_t local = before_word[place / 64] + static_cast<std::uint32_t>(std::popcount(below));
        loaded.ids[local] = id;
        loaded.order[at(next[i]++)] = local;
        std::memcpy(loaded.rows.row<std::byte>(local), row, row_bytes);
        row += row_bytes;
      }
    });
    release(shard);
  }
  return loaded;
}

}  // namespace gigaknn
