// Indexes in files: opened by what their schema says, checked, changed.
#include <gigaknn/index.hpp>
#include <gigaknn/tune.hpp>

#include <algorithm>
#include <optional>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "index/curve_sections.hpp"
#include "index/ivf_flat.hpp"
#include "index/ivf_pq.hpp"
#include "io/container_values.hpp"
#include "io/file_check.hpp"
#include "io/file_lock.hpp"
#include "io/output_file.hpp"
#include "io/mapped_file.hpp"
#include "io/validate.hpp"

namespace gigaknn {

bool holds_index(const Container& file) {
  constexpr std::string_view schemas[] = {flat_schema, ivf_flat_schema, ivf_pq_schema, ivf_sq_schema, ivf_transformed_schema};
  return std::find(std::begin(schemas), std::end(schemas), file.schema()) != std::end(schemas);
}

namespace {

void require_index(const Container& file) {
  require(holds_index(file), Fault::unsupported, file.file().name,
          ": holds '", file.schema(), "', no index; allowed: ", flat_schema, " ", ivf_flat_schema, " ", ivf_pq_schema, " ", ivf_sq_schema,
          " ", ivf_transformed_schema);
}

// To add a kind: its schema above, and here, and how it is checked below. `check`: of a file that was not looked at whole.
std::unique_ptr<IvfIndex> opened(const Container& file, const OpenParams& params, const std::shared_ptr<const FileCheck>& check = nullptr) {
  require_index(file);
  IndexSetting setting{params.device, params.expected_k, params.expected_queries, params.expected_refine, params.shards};
  if (holds_product_codes(file)) return std::make_unique<IvfPqIndex>(read_ivf_pq(file, check), std::move(setting));
  return std::make_unique<IvfFlatIndex>(read_ivf_flat(file, check), std::move(setting));
}

// Held from reading a file until another one stands in its place: of two changes at once, one would undo the other. By a file `.NAME.lock`
// beside it, which goes with the lock. `to`: where the changed index goes; nothing is held where that is elsewhere, or by file systems
// that have no locks.
class ChangeLock {
 public:
  ChangeLock(std::span<const std::filesystem::path> from, const std::filesystem::path& to, const RunOptions& run) {
    const auto is_changed = [&](const auto& path) {
      std::error_code unknown;
      return std::filesystem::equivalent(path, to, unknown);
    };
    if (std::none_of(from.begin(), from.end(), is_changed)) return;
    const std::filesystem::path file = std::filesystem::canonical(to);
    // Names that are too long with what is added are cut: what shares one waits for no reason, which is rare and harms nothing.
    constexpr std::string_view added = "..lock";
    path_ = file.parent_path() / join_text(".", file.filename().string().substr(0, longest_name_in(file.parent_path()) - added.size()), ".lock");
    do {
      check_cancelled(run);
      lock_.emplace(path_, [&] { check_cancelled(run); }, FileLock::Without::go_on);
    } while (!lock_->is_current());
  }
  ~ChangeLock() {
    std::error_code ignored;
    if (lock_) std::filesystem::remove(path_, ignored);
  }
  ChangeLock(const ChangeLock&) = delete;
  ChangeLock& operator=(const ChangeLock&) = delete;

 private:
  std::filesystem::path path_;
  std::optional<FileLock> lock_;
};

void require_finite_rows(const Container& file, std::string_view section, MatrixRef rows, Metric metric, const RunOptions& run) {
  const ValueFaults faults = find_value_faults(rows, metric, run);
  require_at(faults.nonfinite_rows == 0, file.file(), file.section(section, element_of(rows.dtype)).offset, faults.nonfinite_rows,
             " rows have NaN or infinity");
}

void require_ids(const Container& file, const RowIds& ids, std::span<const std::int64_t> begins, std::int64_t next_id) {
  if (ids.count() == 0) return;
  ids.ranks();
  require_at(value_of(ids.largest()) < next_id, file.file(), file.section("about", Element::u8).offset + 16, "id ", value_of(ids.largest()),
             " is not below the next id, ", next_id);
  for (std::size_t list = 0; list + 1 < begins.size(); ++list) {
    for (std::int64_t row = begins[list] + 1; row < begins[list + 1]; ++row) {
      require_at(ids.of_row(row - 1) < ids.of_row(row), file.file(),
                 file.section("ids", Element::i64).offset + static_cast<std::uint64_t>(row) * sizeof(RowId),
                 "ids must ascend in each list");
    }
  }
}

}  // namespace

std::unique_ptr<Index> open_index(const std::filesystem::path& path, const OpenParams& params, const RunOptions& run) {
  const UsualFloats floats;
  const std::size_t needed = run.memory_bytes == 0 ? 0 : open_index_bytes_needed(path, params, run);
  require(needed <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
          " bytes is too small: ", printable(path.string()), " needs ", needed);
  if (params.map) {
    const Container file = Container::open(map_file(path));
    return opened(file, params, std::make_shared<const FileCheck>(file));
  }
  const Container file = Container::open(read_file(path));
  file.verify(run);
  return opened(file, params);
}

std::size_t open_index_bytes_needed(const std::filesystem::path& path, const OpenParams& params, const RunOptions& run) {
  const Container file = Container::open(map_file(path));
  return (params.map ? 0 : file.file().size()) + opened(file, params)->searching_bytes_needed(threads_of(run));
}

namespace {

// Of scaled codes, that queries find all of them.
void require_scales(const Container& file, const IvfPqParts& parts) {
  const ProductQuantizer quantizer = parts.quantizer();
  if (!quantizer.scaled()) return;
  ProductCodes codes = quantizer.codes(parts.centroids);
  codes.codes = parts.codes;
  codes.cells = {{}, parts.begins};
  const std::vector<std::int64_t> blocks = codes.block_begins();
  std::int64_t unusable = 0;
  for (std::int64_t list = 0; list < codes.cells.count(); ++list) {
    const std::int64_t first = blocks[static_cast<std::size_t>(list)];
    const std::int64_t rows = parts.begins[static_cast<std::size_t>(list + 1)] - parts.begins[static_cast<std::size_t>(list)];
    for (std::int64_t row = 0; row < rows; ++row) unusable += !codes.scale(first + row / code_block_rows, row % code_block_rows).usable();
  }
  require_at(unusable == 0, file.file(), file.section("codes", Element::u8).offset, unusable,
             " codes have a factor or shift that is not finite, or a factor below 0");
}

}  // namespace

void check_index(const std::filesystem::path& path, const RunOptions& run) {
  const Container file = Container::open(map_file(path));
  file.verify(run);
  require_index(file);
  if (holds_product_codes(file)) {
    const StoredIvfPq stored = read_ivf_pq(file);
    require_ids(file, RowIds(stored.parts.ids, stored.owner, stored.file), stored.parts.begins, stored.facts.next_id);
    require_scales(file, stored.parts);
    if (stored.parts.refines()) require_finite_rows(file, "rows", stored.parts.full.rows, stored.facts.metric, run);
    return;
  }
  const StoredIvfFlat stored = read_ivf_flat(file);
  if (!stored.lists) return;
  require_ids(file, stored.lists->ids(), stored.lists->begins(), stored.facts.next_id);
  if (!stored.facts.allow_nonfinite) require_finite_rows(file, rows_name(stored.facts), stored.lists->rows(), stored.facts.metric, run);
  if (stored.full.any()) require_finite_rows(file, "rows", stored.full.rows, stored.facts.metric, run);
}

namespace {

// To be written anew: its blocks are looked at first, so that what is damaged gets no new checksums.
Container verified(const std::filesystem::path& path, const RunOptions& run) {
  Container file = Container::open(map_file(path));
  file.verify(run);
  return file;
}

// Of so many old rows their ids, sorted, with ranks and what sorts them.
std::size_t sorting_bytes(std::int64_t rows) { return static_cast<std::size_t>(rows) * (2 * sizeof(RowId) + 2 * sizeof(LocalRow)); }

// What is left of a budget when `needed` is taken, which holds as much as writing takes at least.
RunOptions left_for_writing(const IvfIndex& index, std::int64_t rows, std::size_t needed, const RunOptions& run) {
  const std::size_t writing = index.least_writing_bytes(rows);
  require(run.memory_bytes == 0 || needed + writing <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
          " bytes is too small: this change of an index to ", rows, " rows needs ", needed + writing);
  RunOptions left = run;
  if (run.memory_bytes > 0) left.memory_bytes -= needed;
  return left;
}

}  // namespace

void add_to_index(const std::filesystem::path& from, MatrixRef rows, std::span<const RowId> ids, bool replace,
                  const std::filesystem::path& to, const std::string& device, const RunOptions& run) {
  const UsualFloats floats;
  const ChangeLock lock({&from, 1}, to, run);
  const auto index = opened(verified(from, run), {.device = device});
  // What is called and kept by id is sorted: ids that are given, and full vectors behind codes.
  const std::size_t of_ids = (ids.empty() ? 0 : sorting_bytes(index->rows()) + 2 * sorting_bytes(rows.rows)) +
                             (index->refines() ? sorting_bytes(index->rows() + rows.rows) : 0);
  const std::size_t needed = index->part_bytes_needed(rows.rows, run) + of_ids + index->held_bytes();
  index->save_with(rows, ids, replace, to, run, left_for_writing(*index, index->rows() + rows.rows, needed, run));
}

void remove_from_index(const std::filesystem::path& from, std::span<const RowId> ids, const std::filesystem::path& to,
                       const RunOptions& run) {
  const UsualFloats floats;
  const ChangeLock lock({&from, 1}, to, run);
  const auto index = opened(verified(from, run), {});
  const RunOptions left =
      left_for_writing(*index, index->rows(), index->held_bytes() + sorting_bytes(index->rows()) + ids.size_bytes(), run);
  index->remove(ids);
  index->save(to, left);
}

void merge_indexes(std::span<const std::filesystem::path> from, const std::filesystem::path& to, const RunOptions& run) {
  const UsualFloats floats;
  const ChangeLock lock(from, to, run);
  std::vector<std::unique_ptr<IvfIndex>> indexes;
  std::vector<const IvfIndex*> all;
  std::size_t needed = 0;
  std::int64_t rows = 0;
  for (const auto& path : from) {
    indexes.push_back(opened(verified(path, run), {}));
    all.push_back(indexes.back().get());
    rows += indexes.back()->rows();
    needed += indexes.back()->held_bytes() + sorting_bytes(indexes.back()->rows()) +
              static_cast<std::size_t>(indexes.back()->rows()) * sizeof(RowId);
  }
  require(!all.empty(), Fault::invalid_argument, "a merge needs an index at least");
  IvfIndex::save_merged(all, to, left_for_writing(*all.front(), rows, needed, run));
}

std::optional<RecallCurve> stored_curve(const std::filesystem::path& path) {
  const Container file = Container::open(map_file(path));
  require_index(file);
  return curve_in(file);
}

void store_curve(const std::filesystem::path& path, const RecallCurve& curve, const RunOptions& run) {
  require_curve(curve);
  const ChangeLock lock({&path, 1}, path, run);
  const Container file = verified(path, run);
  require_index(file);
  ContainerWriter writer(path, file.schema(), file.schema_version());
  for (const Section& section : file.sections()) {
    if (section.name == curve_facts_section || section.name == curve_points_section) continue;
    writer.begin_section(section.name, section.element, section.rows, section.cols);
    const auto bytes = file.bytes_of(section);
    for (std::size_t done = 0; done < bytes.size(); done += container_block_bytes) {
      check_cancelled(run);
      writer.append(bytes.data() + done, std::min<std::size_t>(container_block_bytes, bytes.size() - done));
    }
  }
  add_curve(writer, curve);
  writer.finish();
}

}  // namespace gigaknn
