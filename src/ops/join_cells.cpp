#include "ops/join_cells.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gigaknn/error.hpp>

#include "core/gather.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

Visits::Visits(std::int64_t cells, std::int64_t q, const RowId* own, const RowId* probes, std::int64_t width,
               const std::function<bool(std::int64_t)>& visits)
    : residents(at(q)), resident_begins{0} {
  std::vector<std::int64_t> next(at(cells + 1));
  for (std::int64_t i = 0; i < q; ++i) ++next[at(value_of(own[i]) + 1)];
  std::vector<std::int64_t> local(at(cells), -1);  // among the cells with residents
  for (std::int64_t cell = 0; cell < cells; ++cell) {
    const bool some = next[at(cell + 1)] > 0;
    if (some) local[at(cell)] = std::ssize(resident_begins) - 1;
    next[at(cell + 1)] += next[at(cell)];
    if (some) resident_begins.push_back(next[at(cell + 1)]);
  }
  for (std::int64_t i = 0; i < q; ++i) residents[at(next[at(value_of(own[i]))]++)] = i;
  const auto for_each_visit = [&](auto&& visit) {
    for (std::int64_t i = 0; i < q; ++i) {
      if (!visits(i)) continue;
      for (std::int64_t j = i * width; j < (i + 1) * width; ++j) {
        if (probes[j] == no_row || probes[j] == own[i]) continue;
        const std::int64_t cell = local[at(value_of(probes[j]))];
        if (cell >= 0) visit(cell, i);
      }
    }
  };
  visitor_begins.resize(resident_begins.size());
  for_each_visit([&](std::int64_t cell, std::int64_t) { ++visitor_begins[at(cell + 1)]; });
  std::partial_sum(visitor_begins.begin(), visitor_begins.end(), visitor_begins.begin());
  visitors.resize(at(visitor_begins.back()));
  std::vector<std::int64_t> to(visitor_begins.begin(), visitor_begins.end() - 1);
  for_each_visit([&](std::int64_t cell, std::int64_t i) { visitors[at(to[at(cell)]++)] = i; });
}

std::size_t join_bytes(std::int64_t batch, std::int64_t d, DType dtype, std::int64_t k) {
  constexpr std::size_t width = 64;
  // Rows, copies of visitors and of those they visit; probes, and who visits, twice as it grows.
  const std::int64_t gathered = most_visitors + 2 * batch;
  return at(gathered) * (at(d) * size_of(dtype) + 32) + at(batch) * width * 24 + list_bytes(batch, k);
}

void join_by_search(const Ops& ops, const PreparedCells& base, std::size_t held, MatrixRef base_rows, std::span<const RowId> rows,
                    const RowId* own, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run) {
  const Matrix queries = gather_rows(base_rows, rows, run);
  std::vector<RowId> all(at(queries.rows() * (width + 1)), no_row);
  for (std::int64_t i = 0; i < queries.rows(); ++i) {
    RowId* mine = all.data() + i * (width + 1);
    *mine++ = own[i];
    std::copy_if(probes + i * width, probes + (i + 1) * width, mine, [&](RowId cell) { return cell != own[i]; });
  }
  ops.nearest_in_cells(base, queries, all.data(), width + 1, k, out, run, rows.data());

  RunOptions beside = run;  // the base, which stays on the device
  if (run.device_memory_bytes > 0) beside.device_memory_bytes = run.device_memory_bytes - std::min(run.device_memory_bytes - 1, held);
  Visits found(base.cells(), queries.rows(), own, probes, width);
  const std::int64_t cells = found.cells();
  // Of equally near ones the smaller row comes first, and so must its place.
  for (std::int64_t cell = 0; cell < cells; ++cell) {
    std::sort(found.visitors.begin() + found.visitor_begins[at(cell)], found.visitors.begin() + found.visitor_begins[at(cell + 1)],
              [&](std::int64_t a, std::int64_t b) { return rows[at(a)] < rows[at(b)]; });
  }
  std::int64_t most = most_visitors;
  for (std::int64_t cell = 0, seen = 0; cell < cells;) {  // `seen`: of the cell's visitors
    const std::int64_t first_cell = cell, first_seen = seen;
    std::vector<std::int64_t> visiting, begins = {0};
    while (cell < cells && std::ssize(visiting) < most) {
      const auto more =
          std::span(found.visitors)
              .subspan(at(found.visitor_begins[at(cell)]), at(found.visitor_begins[at(cell + 1)] - found.visitor_begins[at(cell)]));
      const std::int64_t end = std::min(std::ssize(more), seen + most - std::ssize(visiting));
      visiting.insert(visiting.end(), more.begin() + seen, more.begin() + end);
      begins.push_back(std::ssize(visiting));
      seen = end;
      if (end < std::ssize(more)) break;
      ++cell;
      seen = 0;
    }
    if (visiting.empty()) break;
    std::vector<std::int64_t> residents;
    std::vector<RowId> cell_of, lists, visiting_rows;
    for (std::int64_t c = 0; c + 1 < std::ssize(begins); ++c) {
      for (std::int64_t i = found.resident_begins[at(first_cell + c)]; i < found.resident_begins[at(first_cell + c + 1)]; ++i) {
        residents.push_back(found.residents[at(i)]);
        lists.push_back(RowId{residents.back()});
        cell_of.push_back(RowId{c});
      }
    }
    for (const std::int64_t i : visiting) visiting_rows.push_back(rows[at(i)]);
    const Matrix theirs = gather_rows(queries, visiting, run);
    const Matrix mine = gather_rows(queries, residents, run);
    const PrepareHints hints{.k = k, .queries = mine.rows(), .batch = mine.rows(), .self = false};
    Neighbors part(mine.rows(), k);
    try {
      const auto prepared = ops.prepare_cells(theirs, {{}, begins}, base.metric(), hints, beside);
      ops.nearest_in_cells(*prepared, mine, cell_of.data(), 1, k, NeighborsOut(part), beside);
    } catch (const Error& error) {
      if (error.fault() != Fault::out_of_memory || most == 1) throw;
      // Fewer may fit beside the base; of each turn that follows, too.
      most = std::max<std::int64_t>(1, std::min(most, std::ssize(visiting)) / 2);
      cell = first_cell;
      seen = first_seen;
      continue;
    }
    merge_lists(out, lists, part, visiting_rows, base.metric(), run);
  }
}

}  // namespace gigaknn
