// What inverted files of every kind do alike: they change, are searched part by part, and are written.
//
//   rows [m, d] --part_of: their lists--> a part: rows as they stand, and how their form is made --copied, in their form--> lists, and full
//   vectors behind them or not --add--> State queries --listed_queries--> IvfIndex::probe--> ProbingBatch --InvertedLists::nearest, part by
//   part--> candidates --full vectors of their parts--> neighbours
//
// The form of rows (IvfFacts::form: turned, quantized) is no business of most kinds: their lists hold what it makes. Without full vectors
// distances are then those among rows of that form, in the unit of the rows.
//
// The index at one time is a State that never changes: parts, each with the rows that still count. A search keeps the one it began with.
// `add` brings a part of its own, and parts become one as soon as the last is half as large as the one before: few parts, and each
// row is copied a few times in all. What parts find is merged by distance, then id: the same as of one part with all rows.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <gigaknn/index.hpp>

#include "core/made_once.hpp"
#include "index/inverted_lists.hpp"
#include "index/ivf_file.hpp"
#include "index/list_centroids.hpp"

namespace gigaknn {

/// What the memory that an index takes depends on.
struct IvfShape {
  std::int64_t n, d;
  DType dtype;
  Metric metric;
  std::int64_t lists;
  std::optional<FormShape> form = {};  ///< of what lists hold; none: rows as they are
  bool refines = false;                ///< by full vectors behind it

  std::int64_t width() const { return form ? form->width : d; }
  DType listed_dtype() const { return form ? form->dtype : dtype; }
  Metric compared_by() const { return form ? RowForm::compared_by(metric, form->dtype) : metric; }
};

class IvfIndex : public Index {
 public:
  std::int64_t rows() const override { return state()->rows; }
  std::int64_t cols() const override { return facts_.cols; }
  DType dtype() const override { return facts_.dtype; }
  Metric metric() const override { return facts_.metric; }
  bool takes_nonfinite() const override { return facts_.allow_nonfinite; }
  std::int64_t lists() const override { return centroids_.centroids().rows; }
  std::int64_t next_id() const override { return state()->next_id; }
  bool keeps_rows() const override { return refines_; }
  bool refines() const override { return refines_; }
  std::string description() const override;
  Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override;
  /// Of rows as lists hold them, by the distances that `search` gives without full vectors; with these behind, and `refine` above 0, of
  /// candidates: `refine` times one more than are found are compared at least.
  RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const override;
  Neighbors search_all(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override;
  std::shared_ptr<const Moment> moment() const override { return state(); }
  std::vector<RowId> ids_at(const std::shared_ptr<const Moment>& moment) const override;
  std::vector<RowId> held_out() const override;
  Matrix reconstruct(std::span<const RowId> ids) const override;
  void add(MatrixRef rows, std::span<const RowId> ids, const RunOptions& run) override;
  void update(MatrixRef rows, std::span<const RowId> ids, const RunOptions& run) override;
  void remove(std::span<const RowId> ids) override;
  void save(const std::filesystem::path& path, const RunOptions& run) const override;

  /// What the first search would do.
  void prepare(const RunOptions& run) const;
  /// Writes the index with `rows` added, which it borrows for this; `replace`: or in place of those that are called so. `writing`: what is
  /// left of the budget for that.
  void save_with(MatrixRef rows, std::span<const RowId> ids, bool replace, const std::filesystem::path& path, const RunOptions& run,
                 const RunOptions& writing) const;
  /// Writes the rows of several, all of one kind and the same lists.
  static void save_merged(std::span<const IvfIndex* const> indexes, const std::filesystem::path& path, const RunOptions& run);
  /// The most that preparing and one search allocate, results not counted.
  virtual std::size_t searching_bytes_needed(int threads) const = 0;
  /// The most that making a part of n rows allocates.
  virtual std::size_t part_bytes_needed(std::int64_t n, const RunOptions& run) const;
  /// What the index holds that rows have nothing to do with: centroids and the form.
  std::size_t held_bytes() const {
    return static_cast<std::size_t>(lists() * centroids_.centroids().cols) * sizeof(float) + formed_bytes(0);
  }
  /// What writing holds at least, of an index of n rows.
  virtual std::size_t least_writing_bytes(std::int64_t n) const = 0;

 protected:
  struct State : Moment {
    std::vector<LiveRows> parts;  // none without a row that counts
    std::int64_t rows = 0;
    std::int64_t next_id = 0;
  };
  // What one search looks at.
  struct Scope {
    std::shared_ptr<const State> state;
    std::vector<std::vector<std::uint64_t>> words = {};  // of what `only` leaves, by part
    std::int64_t allowed = 0;                            // rows that it leaves
    std::int64_t width = 1;
    bool narrow = false;               // these, if any, are copied to `few`
    bool by_full = false;              // by their full vectors, which leave no candidates to compare
    std::vector<LiveRows> few = {};
    std::vector<RowId> few_lists = {};  // that hold some of them: all queries look into these

    std::span<const LiveRows> parts() const { return narrow ? few : state->parts; }
    RowMask mask(std::size_t part) const { return words.empty() ? state->parts[part].mask() : RowMask{words[part]}; }
  };

  /// `centroids` [lists, width] f32, of what lists hold; `refines`: by full vectors behind it.
  IvfIndex(const IvfFacts& facts, Matrix centroids, bool refines, IndexSetting setting);
  /// The first part, before anyone else knows the index.
  void begin_with(LiveRows part);

  /// Queries as lists compare them where rows have no form; none: as they stand.
  virtual std::optional<Matrix> compared_form_of(MatrixRef, const RunOptions&) const { return std::nullopt; }
  /// Rows that are borrowed, as a part of their own, whose lists are those of their form: to be copied, not searched.
  virtual LiveRows part_of(MatrixRef rows, RowIds ids, const RunOptions& run) const;
  /// "1024 inverted lists of 16-byte product codes"
  virtual std::string lists_description() const = 0;
  virtual void write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path,
                     const RunOptions& run) const = 0;
  /// What else than lists this index has that another of its kind has not ("other codewords"); null: nothing.
  virtual const char* other_fit_than(const IvfIndex& other) const = 0;
  static bool same_values(MatrixRef a, MatrixRef b);

  static IndexSetting setting_for(IndexSetting setting, bool refines);
  /// Of a search what lists do not take themselves: ids and ranks; queries as rows are and as lists compare them; candidates; the form;
  /// full vectors.
  static std::size_t bytes_beside_lists(const IvfShape& shape, const IndexSetting& setting, int threads);
  std::optional<FormShape> form_shape() const { return facts_.form ? std::optional(facts_.form->shape(facts_.cols)) : std::nullopt; }
  IvfShape shape() const { return {rows(), cols(), dtype(), metric(), lists(), form_shape(), refines_}; }
  /// Of n rows in their form, and the form; nothing where there is none.
  std::size_t formed_bytes(std::int64_t n) const { return facts_.form ? form_shape()->bytes(n) : 0; }
  FullRows full_behind(MatrixRef rows, const RowIds& ids) const { return refines_ ? full_rows(rows, ids) : FullRows(); }
  /// For files; null: there are none.
  RowReader full_reader(std::span<const LiveRows> parts) const { return refines_ ? full_rows_by_id(parts) : RowReader(); }

  std::shared_ptr<const State> state() const;
  /// At a moment, which may be none: now.
  std::shared_ptr<const State> state_at(const std::shared_ptr<const Moment>& moment) const;
  void require_search(MatrixRef queries, std::int64_t k, std::int64_t refine, const RunOptions& run) const;
  Scope scope_of(const SearchParams& params, std::int64_t nprobe) const;
  /// The same, but where few rows pass `only` they are copied, if the budget has room; `refine`: their full vectors, where these are no
  /// more bytes than a look into lists would read.
  std::int64_t batch_within(const RunOptions& run, const Scope& scope, std::int64_t queries, std::int64_t k, std::int64_t candidates) const;
  Scope gathered_scope(const SearchParams& params, bool refine, const RunOptions& run) const;
  /// Queries [begin, end) of what lists hold.
  ProbingBatch probe(const Scope& scope, MatrixRef queries, std::int64_t begin, std::int64_t end, const RunOptions& run) const;
  /// The k nearest of what lists hold.
  Neighbors nearest_in_lists(const Scope& scope, const ProbingBatch& batch, std::int64_t k, const RunOptions& run) const;
  /// The k nearest by full vectors of the `candidates` nearest of what lists hold; `full`: the queries of the batch, as rows are.
  Neighbors nearest_by_full(const Scope& scope, const ProbingBatch& batch, MatrixRef full, std::int64_t candidates, std::int64_t k,
                            const RunOptions& run) const;
  /// " in 3 parts", and what the first is once it is prepared, or else `unprepared`.
  std::string parts_description(const std::string& unprepared) const;

  const IvfFacts facts_;
  const bool refines_;
  const IndexSetting setting_;
  const Ops& ops_;
  const ListCentroids centroids_;

 private:
  ListScan scan(bool full = false) const { return {ops_, full ? facts_.metric : scanned_, setting_.hints()}; }
  void become(State next);  // one thread at a time
  State with(MatrixRef rows, std::span<const RowId> ids, bool replace, const RunOptions& run) const;
  void take_in(MatrixRef rows, std::span<const RowId> ids, bool replace, const RunOptions& run);
  static std::optional<RowsById::Place> place_of(const State& state, RowId id);
  static State without(const State& state, std::span<const RowId> ids);
  /// Queries as lists compare them.
  FormedQueries listed_queries(MatrixRef queries, const RunOptions& run) const;
  /// Distances that lists gave, as people see them.
  void show(Neighbors& found, std::int64_t first, std::span<const double> factors) const;
  void require_like(const IvfIndex& first, std::size_t number) const;

  const Metric scanned_;
  mutable std::once_flag lengths_found_;
  mutable std::vector<double> squares_;  // of the lengths of the form's directions, for the first row that is decoded
  PatientMutex changing_;            // one change at a time
  mutable std::mutex state_mutex_;   // held to copy the pointer
  std::shared_ptr<const State> state_;
};

}  // namespace gigaknn
