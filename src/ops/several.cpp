#include "ops/several.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <thread>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/join_cells.hpp"
#include "ops/label_runs.hpp"
#include "ops/merge_lists.hpp"
#include "ops/part_sums.hpp"
#include "ops/requests.hpp"

namespace gigaknn {
namespace {

// Device r * shards + s has shard s, for the queries of group r.
class SeveralRows : public PreparedRows {
 public:
  SeveralRows(MatrixRef base, Metric metric, std::vector<std::int64_t> begins)
      : base(base), metric_(metric), begins(std::move(begins)) {}

  std::int64_t rows() const override { return base.rows; }
  std::int64_t cols() const override { return base.cols; }
  DType dtype() const override { return base.dtype; }
  Metric metric() const override { return metric_; }
  MemorySpace space() const override { return MemorySpace::device; }
  std::size_t bytes() const override {
    std::size_t sum = 0;
    for (const auto& part : parts) sum += part ? part->bytes() : 0;
    return sum;
  }
  std::string description() const override {
    const std::size_t shards = begins.size() - 1;
    return join_text(parts.front()->description(), "; ", parts.size(), " devices",
                     shards > 1 ? join_text(", ", shards, " shards") : "");
  }

  MatrixRef base;
  Metric metric_;
  std::vector<std::int64_t> begins;  // [shards + 1]
  std::vector<std::unique_ptr<PreparedRows>> parts;  // null: a shard without rows
};

// The same of a base in cells: a shard has its rows of every cell.
class SeveralCells : public PreparedCells {
 public:
  SeveralCells(MatrixRef base, Metric metric, std::int64_t cells, std::vector<std::int64_t> begins)
      : base(base), metric_(metric), cells_(cells), begins(std::move(begins)) {}

  std::int64_t rows() const override { return base.rows; }
  std::int64_t cols() const override { return base.cols; }
  DType dtype() const override { return base.dtype; }
  Metric metric() const override { return metric_; }
  std::int64_t cells() const override { return cells_; }
  std::size_t bytes() const override {
    std::size_t sum = 0;
    for (const auto& part : parts) sum += part ? part->bytes() : 0;
    return sum;
  }
  std::string description() const override {
    return join_text(parts.front()->description(), "; ", parts.size(), " devices");
  }

  MatrixRef base;
  Metric metric_;
  std::int64_t cells_;
  std::vector<std::int64_t> begins;  // [shards + 1]
  Matrix by_name;                    // the base, where shards are not ranges of its rows
  std::vector<std::unique_ptr<PreparedCells>> parts;  // null: a shard without rows
};

// Product codes: a shard's rows of every cell, in blocks of their own.
struct ShardCodes {
  std::vector<std::uint8_t> blocks;
  std::vector<std::int64_t> begins = {0};
  std::vector<LocalRow> names;  // from 0 on

  ShardCodes() = default;
  // Those rows whose names are in [first_name, end_name).
  ShardCodes(const ProductCodes& codes, std::int64_t first_name, std::int64_t end_name) {
    std::vector<std::int64_t> rows;  // of all
    for (std::int64_t cell = 0; cell < codes.cells.count(); ++cell) {
      for (std::int64_t row = codes.cells.begins[static_cast<std::size_t>(cell)];
           row < codes.cells.begins[static_cast<std::size_t>(cell) + 1]; ++row) {
        const std::int64_t name = codes.cells.names.empty() ? row : std::int64_t{codes.cells.names[static_cast<std::size_t>(row)]};
        if (name < first_name || name >= end_name) continue;
        rows.push_back(row);
        names.push_back(static_cast<LocalRow>(name - first_name));
      }
      begins.push_back(std::ssize(rows));
    }
    const std::vector<std::int64_t> to_blocks = of(codes).block_begins(), from_blocks = codes.block_begins();
    const std::int64_t bytes = codes.code_bytes();
    blocks.resize(static_cast<std::size_t>(to_blocks.back() * bytes * code_block_rows));
    for (std::size_t cell = 0; cell + 1 < begins.size(); ++cell) {
      for (std::int64_t to = begins[cell]; to < begins[cell + 1]; ++to) {
        const std::int64_t to_row = to - begins[cell], from_row = rows[static_cast<std::size_t>(to)] - codes.cells.begins[cell];
        for (std::int64_t byte = 0; byte < bytes; ++byte) {
          blocks[static_cast<std::size_t>(
              ProductCodes::place(to_blocks[cell] + to_row / code_block_rows, bytes, byte, to_row % code_block_rows))] =
              codes.codes[static_cast<std::size_t>(
                  ProductCodes::place(from_blocks[cell] + from_row / code_block_rows, bytes, byte, from_row % code_block_rows))];
        }
      }
    }
  }

  // Of codewords and centroids that are those of all.
  ProductCodes of(ProductCodes codes) const {
    codes.codes = blocks;
    codes.cells = {{}, begins, names};
    return codes;
  }
  std::size_t bytes() const { return blocks.size() + begins.size() * sizeof(std::int64_t) + names.size() * sizeof(LocalRow); }
  static std::size_t bytes_needed(std::int64_t rows, std::int64_t code_bytes, std::int64_t cells) {
    const std::int64_t padded = rows + std::min(rows, cells) * (code_block_rows - 1);
    return static_cast<std::size_t>(padded * code_bytes) +
           static_cast<std::size_t>(2 * rows) * (sizeof(std::int64_t) + sizeof(LocalRow)) +  // twice as they grow
           static_cast<std::size_t>(4 * (cells + 1)) * sizeof(std::int64_t);
  }
};

class SeveralCodes : public PreparedCodes {
 public:
  SeveralCodes(std::int64_t d, std::int64_t cells, Metric metric, std::vector<std::int64_t> begins)
      : d_(d), cells_(cells), metric_(metric), begins(std::move(begins)) {}

  std::int64_t rows() const override { return begins.back(); }
  std::int64_t cols() const override { return d_; }
  std::int64_t cells() const override { return cells_; }
  Metric metric() const override { return metric_; }
  std::size_t bytes() const override {
    std::size_t sum = 0;
    for (const auto& part : parts) sum += part ? part->bytes() : 0;
    for (const ShardCodes& shard : shards) sum += shard.bytes();
    return sum;
  }
  std::string description() const override {
    return join_text(parts.front()->description(), "; ", parts.size(), " devices");
  }

  std::int64_t d_;
  std::int64_t cells_;
  Metric metric_;
  std::vector<std::int64_t> begins;  // [shards + 1] names
  std::vector<ShardCodes> shards;    // where there are several; a device may borrow them
  std::vector<std::unique_ptr<PreparedCodes>> parts;  // null: a shard without rows
};

class Several : public Ops {
 public:
  Several(std::vector<const Ops*> devices, int shards)
      : devices_(std::move(devices)), shards_(static_cast<std::size_t>(shards)) {}

  std::string name() const override {
    std::string names;
    for (const Ops* device : devices_) {
      if (!names.empty()) names += ',';
      names += device->name();
    }
    return names;
  }
  std::string isa() const override {
    return join_text(devices_.size(), " x ", devices_.front()->isa());
  }

  std::unique_ptr<PreparedRows> prepare(MatrixRef base, Metric metric, const PrepareHints& hints,
                                        const RunOptions& run) const override {
    require_base(base, metric);
    const std::vector<std::int64_t> begins = shard_begins(base.rows);
    auto rows = std::make_unique<SeveralRows>(base, metric, begins);
    rows->parts.resize(devices_.size());
    on_each(run, [&](std::size_t i, const RunOptions& own) {
      const std::size_t s = i % shards_;
      if (begins[s] == begins[s + 1]) return;
      rows->parts[i] =
          devices_[i]->prepare(base.slice(begins[s], begins[s + 1]), metric, hints, own);
    });
    return rows;
  }

  std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric,
                           const PrepareHints& hints, int threads) const override {
    const std::size_t a_device =
        devices_.front()->bytes_needed(shard_rows(n), d, dtype, metric, hints, threads);
    const std::int64_t lists = hints.self ? n : hints.batch;
    if (shards_ == 1) return a_device * devices_.size();
    return (a_device + merge_part_bytes) * devices_.size() +
           shards_ * list_bytes(lists, std::min(hints.k, n));
  }
  std::size_t device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric,
                                  const PrepareHints& hints) const override {
    return devices_.front()->device_bytes_needed(shard_rows(n), d, dtype, metric, hints);
  }

  MemorySpace space() const override { return devices_.front()->space(); }
  UnusableRows unusable_rows(MatrixRef rows) const override { return devices_.front()->unusable_rows(rows); }
  std::size_t device_memory() const override {
    std::size_t least = devices_.front()->device_memory();
    for (const Ops* device : devices_) least = std::min(least, device->device_memory());
    return least;
  }

  void nearest_rows(const PreparedRows& prepared, MatrixRef queries, std::int64_t k,
                    NeighborsOut out, const RunOptions& run,
                    std::int64_t first_self) const override {
    require_queries(prepared, queries, k);
    const auto& base = static_cast<const SeveralRows&>(prepared);
    std::vector<Neighbors> found(devices_.size());
    on_each(run, [&](std::size_t i, const RunOptions& own) {
      const auto [begin, end] = queries_of(i, queries.rows);
      if (begin == end) return;
      const std::int64_t self = first_self < 0 ? -1 : first_self + begin;
      if (shards_ == 1) {
        devices_[i]->nearest_rows(*base.parts[i], queries.slice(begin, end), k,
                                  lists_of(out, begin, end), own, self);
        return;
      }
      found[i] = Neighbors(end - begin, k);
      clear_lists(NeighborsOut(found[i]), base.metric());
      if (!base.parts[i]) return;
      merge_nearest(*devices_[i], *base.parts[i], base.begins[i % shards_],
                    queries.slice(begin, end), k, NeighborsOut(found[i]), own, self);
    });
    if (shards_ == 1) return;
    clear_lists(out, base.metric());
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const auto [begin, end] = queries_of(i, queries.rows);
      merge_lists(lists_of(out, begin, end), found[i], 0, base.metric(), run);
    }
  }

  void self_nearest(const PreparedRows& prepared, std::int64_t k, NeighborsOut out,
                    const RunOptions& run) const override {
    nearest_rows(prepared, static_cast<const SeveralRows&>(prepared).base, k, out, run, 0);
  }

  RadiusNeighbors within_radius(const PreparedRows& prepared, MatrixRef queries, float radius,
                                const RunOptions& run) const override {
    require_queries(prepared, queries, 1);
    const auto& base = static_cast<const SeveralRows&>(prepared);
    std::vector<RadiusNeighbors> found(devices_.size());
    on_each(run, [&](std::size_t i, const RunOptions& own) {
      const auto [begin, end] = queries_of(i, queries.rows);
      found[i].offsets.assign(static_cast<std::size_t>(end - begin + 1), 0);
      if (!base.parts[i]) return;
      found[i] = devices_[i]->within_radius(*base.parts[i], queries.slice(begin, end), radius, own);
    });
    const std::vector<std::int64_t> begins(base.begins.begin(), base.begins.end() - 1);
    RadiusNeighbors all;
    all.offsets.push_back(0);
    for (std::size_t group = 0; group < devices_.size(); group += shards_) {
      const auto [begin, end] = queries_of(group, queries.rows);
      const auto first = found.begin() + static_cast<std::ptrdiff_t>(group);
      const RadiusNeighbors part =
          merge_within({first, first + static_cast<std::ptrdiff_t>(shards_)}, begins, end - begin,
                       base.metric());
      for (std::size_t q = 1; q < part.offsets.size(); ++q) {
        all.offsets.push_back(static_cast<std::int64_t>(all.ids.size()) + part.offsets[q]);
      }
      all.ids.insert(all.ids.end(), part.ids.begin(), part.ids.end());
      all.distances.insert(all.distances.end(), part.distances.begin(), part.distances.end());
    }
    return all;
  }

  // One graph grows on one device.
  std::unique_ptr<GrowingGraph> grow_graph(MatrixRef rows, Metric metric, const GrowthParams& params,
                                           const RunOptions& run) const override {
    return devices_.front()->grow_graph(rows, metric, params, run);
  }
  std::size_t growth_bytes_needed(std::int64_t n, std::int64_t d, const GrowthParams& params, int threads) const override {
    return devices_.front()->growth_bytes_needed(n, d, params, threads);
  }
  std::size_t growth_device_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, const GrowthParams& params) const override {
    return devices_.front()->growth_device_bytes_needed(n, d, dtype, params);
  }
  std::int64_t most_growing_list() const override { return devices_.front()->most_growing_list(); }

  void pair_distances(MatrixRef queries, MatrixRef base, Metric metric, const RowId* ids, std::int64_t width,
                      float* out, const RunOptions& run) const override {
    require_pairs(queries, base, metric, width);
    on_shares(queries.rows, run, [&](const Ops& ops, std::int64_t begin, std::int64_t end, const RunOptions& own) {
      ops.pair_distances(queries.slice(begin, end), base, metric, ids + begin * width, width, out + begin * width, own);
    });
  }
  void products(MatrixRef rows, MatrixRef directions, float* out, const RunOptions& run) const override {
    require_products(rows, directions);
    on_shares(rows.rows, run, [&](const Ops& ops, std::int64_t begin, std::int64_t end, const RunOptions& own) {
      ops.products(rows.slice(begin, end), directions, out + begin * directions.rows, own);
    });
  }

  void sum_by_label(MatrixRef rows, const double* weights, const RowId* labels, std::int64_t label_count, double* sums,
                    std::int64_t* counts, const RunOptions& run) const override {
    require_labelled(rows, label_count);
    const LabelRuns all(labels, rows.rows, label_count);
    for (std::int64_t label = 0; label < label_count; ++label) counts[label] = all.count(label);
    std::fill_n(sums, label_count * rows.cols, 0.0);
    const auto devices = std::ssize(devices_);
    const std::int64_t share = std::min(PartSums::most_rows(rows.cols), (std::ssize(all.rows) + devices - 1) / devices);
    // Each device takes the next runs, whole ones, of that many rows; then their sums are added in the order of runs.
    for (std::int64_t next = 0; next < all.runs();) {
      check_cancelled(run);
      std::vector<std::int64_t> begins = {next};
      for (std::int64_t i = 0; i < devices; ++i) {
        begins.push_back(next = PartSums::end_of_part(all, next, share));
      }
      std::vector<PartSums> parts(devices_.size());
      on_each(run, [&](std::size_t i, const RunOptions& own) {
        if (begins[i] < begins[i + 1]) parts[i] = PartSums(*devices_[i], rows, weights, all, begins[i], begins[i + 1], own);
      });
      for (const PartSums& part : parts) part.add_to(sums);
    }
  }
  std::size_t copies_to_sum_bytes(std::int64_t n, std::int64_t d) const override {
    return devices_.size() * (PartSums::bytes_needed(n, d) + devices_.front()->copies_to_sum_bytes(n, d));
  }

  void select_k(MatrixRef values, std::int64_t k, NeighborsOut out, const RunOptions& run) const override {
    require_values(values, k);
    const auto count = static_cast<std::int64_t>(devices_.size());
    on_each(run, [&](std::size_t i, const RunOptions& own) {
      const std::int64_t begin = values.rows * static_cast<std::int64_t>(i) / count;
      const std::int64_t end = values.rows * (static_cast<std::int64_t>(i) + 1) / count;
      devices_[i]->select_k(values.slice(begin, end), k, lists_of(out, begin, end), own);
    });
  }

  std::unique_ptr<PreparedCells> prepare_cells(MatrixRef base, const CellRows& cells, Metric metric, const PrepareHints& hints,
                                               const RunOptions& run) const override {
    require_base(base, metric);
    require_cells(base, cells);
    const std::vector<std::int64_t> begins = shard_begins(base.rows);
    auto rows = std::make_unique<SeveralCells>(base, metric, cells.count(), begins);
    rows->parts.resize(devices_.size());
    if (shards_ == 1) {
      on_each(run,
              [&](std::size_t i, const RunOptions& own) { rows->parts[i] = devices_[i]->prepare_cells(base, cells, metric, hints, own); });
      return rows;
    }
    // A shard is a range of names.
    if (!cells.names.empty()) {
      std::vector<LocalRow> row_of(cells.names.size());
      for (std::size_t row = 0; row < cells.names.size(); ++row) row_of[cells.names[row]] = static_cast<LocalRow>(row);
      rows->by_name = gather_rows(base, row_of, run);
      base = rows->by_name;
    }
    const auto name_at = [&](std::int64_t place) {
      const std::size_t row = cells.order.empty() ? static_cast<std::size_t>(place) : cells.order[static_cast<std::size_t>(place)];
      return cells.names.empty() ? static_cast<std::int64_t>(row) : std::int64_t{cells.names[row]};
    };
    on_each(run, [&](std::size_t i, const RunOptions& own) {
      const std::int64_t begin = begins[i % shards_];
      const std::int64_t end = begins[i % shards_ + 1];
      if (begin == end) return;
      std::vector<LocalRow> mine;
      std::vector<std::int64_t> mine_begins = {0};
      for (std::size_t c = 0; c + 1 < cells.begins.size(); ++c) {
        for (std::int64_t place = cells.begins[c]; place < cells.begins[c + 1]; ++place) {
          const std::int64_t row = name_at(place);
          if (row >= begin && row < end) mine.push_back(static_cast<LocalRow>(row - begin));
        }
        mine_begins.push_back(std::ssize(mine));
      }
      rows->parts[i] = devices_[i]->prepare_cells(base.slice(begin, end), {mine, mine_begins}, metric, hints, own);
    });
    return rows;
  }
  std::size_t cell_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric,
                                std::int64_t cells, const PrepareHints& hints, int threads) const override {
    const std::size_t a_device =
        devices_.front()->cell_bytes_needed(shard_rows(n), d, dtype, metric, cells, hints, threads);
    const std::size_t own_order = static_cast<std::size_t>(2 * shard_rows(n)) * sizeof(LocalRow) +  // twice as it grows
                                  static_cast<std::size_t>(2 * cells) * sizeof(std::int64_t);
    const std::size_t own_queries = static_cast<std::size_t>(hints.batch) * sizeof(RowId);
    return (a_device + own_order + own_queries) * devices_.size() + (hints.self ? join_bytes(hints.batch, d, dtype, hints.k) : 0) +
           (shards_ == 1 ? 0 : shards_ * list_bytes(hints.batch, std::min(hints.k, n)));
  }

  void nearest_in_cells(const PreparedCells& prepared, MatrixRef queries, const RowId* probes,
                        std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run,
                        const RowId* self, RowMask allowed) const override {
    require_probing(prepared, queries, probes, width, k, allowed, run);
    const auto& base = static_cast<const SeveralCells&>(prepared);
    search_shards(base, queries.rows, out, run,
                  [&](std::size_t i, std::int64_t begin, std::int64_t end, NeighborsOut to, const RunOptions& own) {
                    // A shard numbers its rows from 0.
                    const std::int64_t first_row = base.begins[i % shards_];
                    const std::int64_t end_row = base.begins[i % shards_ + 1];
                    std::vector<RowId> mine;
                    for (std::int64_t q = begin; self && q < end; ++q) {
                      const std::int64_t row = value_of(self[q]);
                      mine.push_back(row >= first_row && row < end_row ? RowId{row - first_row} : no_row);
                    }
                    const std::vector<std::uint64_t> own_bits =
                        shards_ == 1 ? std::vector<std::uint64_t>() : bits_of(allowed, first_row, end_row);
                    devices_[i]->nearest_in_cells(*base.parts[i], queries.slice(begin, end), probes + begin * width, width, k, to, own,
                                                  self ? mine.data() : nullptr, shards_ == 1 ? allowed : RowMask{own_bits});
                  });
  }

  void encode_products(MatrixRef rows, MatrixRef codewords, std::uint8_t* codes, const RunOptions& run) const override {
    require_encoding(rows, codewords);
    on_shares(rows.rows, run, [&](const Ops& ops, std::int64_t begin, std::int64_t end, const RunOptions& own) {
      ops.encode_products(rows.slice(begin, end), codewords, codes + begin * (rows.cols / codewords.cols), own);
    });
  }

  std::unique_ptr<PreparedCodes> prepare_codes(const ProductCodes& codes, Metric metric, const PrepareHints& hints,
                                               const RunOptions& run) const override {
    require_codes(codes, metric);
    auto prepared = std::make_unique<SeveralCodes>(codes.d, codes.cells.count(), metric, shard_begins(codes.cells.begins.back()));
    const std::vector<std::int64_t>& begins = prepared->begins;
    prepared->parts.resize(devices_.size());
    std::vector<ShardCodes>& shards = prepared->shards;
    shards.resize(shards_ > 1 ? shards_ : 0);
    on_each(run, [&](std::size_t i, const RunOptions&) {
      if (i < shards.size()) shards[i] = ShardCodes(codes, begins[i], begins[i + 1]);
    });
    on_each(run, [&](std::size_t i, const RunOptions& own) {
      const std::size_t s = i % shards_;
      if (begins[s] == begins[s + 1]) return;
      prepared->parts[i] = devices_[i]->prepare_codes(shards_ > 1 ? shards[s].of(codes) : codes, metric, hints, own);
    });
    return prepared;
  }
  std::size_t code_bytes_needed(std::int64_t n, const CodeShape& shape, Metric metric, std::int64_t cells, const PrepareHints& hints,
                                int threads) const override {
    const std::size_t a_device = devices_.front()->code_bytes_needed(shard_rows(n), shape, metric, cells, hints, threads);
    if (shards_ == 1) return a_device * devices_.size();
    return a_device * devices_.size() +
           shards_ * (ShardCodes::bytes_needed(shard_rows(n), shape.code_bytes(), cells) + list_bytes(hints.batch, std::min(hints.k, n)));
  }

  void nearest_in_codes(const PreparedCodes& prepared, MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k,
                        NeighborsOut out, const RunOptions& run, RowMask allowed, ListOrder order) const override {
    require_code_probing(prepared, queries, probes, width, k, allowed, run);
    const auto& base = static_cast<const SeveralCodes&>(prepared);
    search_shards(base, queries.rows, out, run, [&](std::size_t i, std::int64_t begin, std::int64_t end, NeighborsOut to, const RunOptions& own) {
      const std::vector<std::uint64_t> own_bits =
          shards_ == 1 ? std::vector<std::uint64_t>() : bits_of(allowed, base.begins[i % shards_], base.begins[i % shards_ + 1]);
      devices_[i]->nearest_in_codes(*base.parts[i], queries.slice(begin, end), probes + begin * width, width, k, to, own,
                                    shards_ == 1 ? allowed : RowMask{own_bits}, shards_ == 1 ? order : ListOrder::by_distance);
    });
    if (shards_ > 1 && order == ListOrder::by_id) sort_by_id(out);
  }

  void join_cells(const PreparedCells& prepared, std::span<const RowId> rows, const RowId* own, const RowId* probes,
                  std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run) const override {
    require_joining(prepared, rows, own, probes, width, k, run);
    const auto& base = static_cast<const SeveralCells&>(prepared);
    std::size_t held = 0;
    for (const auto& part : base.parts) held = std::max(held, part ? part->bytes() : 0);
    join_by_search(*this, base, held, base.base, rows, own, probes, width, k, out, run);
  }

 private:
  // Rounded up: where there are fewer rows than shards, the last have none.
  std::vector<std::int64_t> shard_begins(std::int64_t rows) const {
    std::vector<std::int64_t> begins;
    for (std::int64_t s = 0; s <= shards(); ++s) begins.push_back((rows * s + shards() - 1) / shards());
    return begins;
  }
  std::int64_t shards() const { return static_cast<std::int64_t>(shards_); }
  std::int64_t shard_rows(std::int64_t n) const { return (n + shards() - 1) / shards(); }

  // Queries [first, second) are those of device i's group.
  std::pair<std::int64_t, std::int64_t> queries_of(std::size_t i, std::int64_t queries) const {
    const auto groups = static_cast<std::int64_t>(devices_.size() / shards_);
    const auto group = static_cast<std::int64_t>(i / shards_);
    return {queries * group / groups, queries * (group + 1) / groups};
  }
  // Those of rows [begin, end), the first as bit 0.
  static std::vector<std::uint64_t> bits_of(RowMask mask, std::int64_t begin, std::int64_t end) {
    if (mask.words.empty()) return {};
    std::vector<std::uint64_t> bits(RowMask::words_for(end - begin));
    for (std::int64_t row = begin; row < end; ++row) {
      bits[static_cast<std::size_t>((row - begin) / 64)] |= std::uint64_t{mask.has(row)} << ((row - begin) % 64);
    }
    return bits;
  }
  static NeighborsOut lists_of(NeighborsOut out, std::int64_t begin, std::int64_t end) {
    out.ids += begin * out.k;
    out.distances += begin * out.k;
    out.rows = end - begin;
    return out;
  }

  // Calls search(i, begin, end, lists, run) for every device whose shard has rows, of the queries [begin, end) that are its own, and merges
  // what shards find.
  template <class Base>
  void search_shards(const Base& base, std::int64_t queries, NeighborsOut out, const RunOptions& run,
                     const std::function<void(std::size_t, std::int64_t, std::int64_t, NeighborsOut, const RunOptions&)>& search) const {
    std::vector<Neighbors> found(devices_.size());
    on_each(run, [&](std::size_t i, const RunOptions& own) {
      const auto [begin, end] = queries_of(i, queries);
      if (begin == end) return;
      NeighborsOut to = lists_of(out, begin, end);
      if (shards_ > 1) {
        found[i] = Neighbors(end - begin, out.k);
        to = NeighborsOut(found[i]);
        clear_lists(to, base.metric());
      }
      if (base.parts[i]) search(i, begin, end, to, own);
    });
    if (shards_ == 1) return;
    clear_lists(out, base.metric());
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const auto [begin, end] = queries_of(i, queries);
      merge_lists(lists_of(out, begin, end), found[i], base.begins[i % shards_], base.metric(), run);
    }
  }

  // Calls work(i, run) for every device at once, each from a thread of its own. The first error is
  // thrown.
  void on_each(const RunOptions& run,
               const std::function<void(std::size_t, const RunOptions&)>& work) const {
    RunOptions own = run;
    own.threads = std::max(1, threads_of(run) / static_cast<int>(devices_.size()));
    std::vector<std::exception_ptr> errors(devices_.size());
    std::vector<std::jthread> threads;  // joined whatever happens
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          work(i, own);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
    threads.clear();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  // Calls work(ops, begin, end, run) for each device's share of `rows` rows.
  void on_shares(std::int64_t rows, const RunOptions& run,
                 const std::function<void(const Ops&, std::int64_t, std::int64_t, const RunOptions&)>& work) const {
    const auto count = std::ssize(devices_);
    on_each(run, [&](std::size_t i, const RunOptions& own) {
      const auto share = static_cast<std::int64_t>(i);
      work(*devices_[i], rows * share / count, rows * (share + 1) / count, own);
    });
  }

  std::vector<const Ops*> devices_;
  std::size_t shards_;
};

}  // namespace

std::unique_ptr<Ops> make_several(std::vector<const Ops*> devices, int shards) {
  require(shards >= 1 && devices.size() % static_cast<std::size_t>(shards) == 0,
          Fault::invalid_argument, "shards must divide the ", devices.size(), " devices, got ",
          shards);
  return std::make_unique<Several>(std::move(devices), shards);
}

}  // namespace gigaknn
