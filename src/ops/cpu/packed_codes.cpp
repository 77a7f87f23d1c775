#include "ops/cpu/packed_codes.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <tuple>
#include <type_traits>

#include "core/gather.hpp"
#include "core/threads.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::size_t gathered_bytes = 1000;
constexpr std::int64_t most_coded_groups = 2;
#else
constexpr std::size_t gathered_bytes = std::size_t{1} << 24;  // of rows of a cell, to be encoded
constexpr std::int64_t most_coded_groups = 64;  // of a cell, at once: a cell may be all rows
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Fills order and region_begin.
void put_in_order(const CodeSpace& space, const CodedRows& coded, const RowFacts& facts, PackedCodes& packed) {
  for (std::size_t i = 0; i < facts.far.size(); ++i) {
    if (!facts.far[i]) packed.order.push_back(static_cast<LocalRow>(i));
  }
  packed.live = static_cast<std::int64_t>(packed.order.size());
  std::vector<float> errors;
  for (LocalRow row : packed.order) errors.push_back(coded.errors[row]);
  float large = std::numeric_limits<float>::infinity();
  if (!errors.empty()) {
    std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2),
                     errors.end());
    large = 1.5f * errors[errors.size() / 2];
  }
  const auto region = [&](LocalRow row) {
    return coded.errors[row] > large ? space.regions() : coded.regions[row];
  };
  std::sort(packed.order.begin(), packed.order.end(), [&](LocalRow a, LocalRow b) {
    return std::tuple(region(a), coded.errors[a], a) < std::tuple(region(b), coded.errors[b], b);
  });
  packed.region_begin.assign(at(space.regions() + 2), 0);
  for (LocalRow row : packed.order) ++packed.region_begin[at(region(row) + 1)];
  std::partial_sum(packed.region_begin.begin(), packed.region_begin.end(), packed.region_begin.begin());
}

PackedCodes empty_pack(const CodeSpace& space, const CodeKernels& kernels) {
  PackedCodes packed;
  packed.group_rows = kernels.group_rows;
  packed.step_dims = kernels.step_dims;
  packed.stride = space.stride();
  return packed;
}

// Once `live` is known.
void make_room(PackedCodes& packed) {
  const std::int64_t padded = packed.groups() * packed.group_rows;
  packed.codes.assign(at(padded * packed.stride), 0);
  packed.terms.assign(at(padded), 0);
  packed.group_errors.assign(at(packed.groups()), 0.0f);
  packed.group_norms.assign(at(packed.groups()), 0.0f);
}

// Calls body(dims) with the dimensions of a step as a constant.
template <class Body>
void with_step_dims(std::int64_t dims, Body body) {
  dims == 4 ? body(std::integral_constant<int, 4>()) : body(std::integral_constant<int, 8>());
}

// What is known of row `row` of `coded`, to position p.
void put_facts(const CodeSpace& space, const CodeBounds& bounds, const CodedRows& coded, std::int64_t row, std::int64_t p,
               PackedCodes& packed) {
  packed.terms[at(p)] = bounds.form() == CodeForm::product ? space.byte_zero() * coded.sums[at(row)]
                                                           : -(coded.squares[at(row)] / 2);
  if (!packed.squares.empty()) packed.squares[at(p)] = coded.squares[at(row)];
  if (!packed.errors.empty()) {
    packed.errors[at(p)] = coded.errors[at(row)];
    packed.norms[at(p)] = coded.norms[at(row)];
  }
  float& error = packed.group_errors[at(p / packed.group_rows)];
  float& norm = packed.group_norms[at(p / packed.group_rows)];
  error = std::max(error, bounds.scaled(coded.errors[at(row)]));
  norm = std::max(norm, bounds.scaled(coded.norms[at(row)]));
}

// Some rows of `coded` to the positions from p on, where a group begins.
void put_codes(const CodeSpace& space, const CodeBounds& bounds, const CodeKernels& kernels, const CodedRows& coded,
               std::span<const LocalRow> rows, std::int64_t p, PackedCodes& packed) {
  for (std::size_t i = 0; i < rows.size(); ++i) put_facts(space, bounds, coded, rows[i], p + static_cast<std::int64_t>(i), packed);
  with_step_dims(packed.step_dims, [&](auto dims) {
    const std::int64_t group_bytes = packed.group_rows * packed.stride;
    for (auto left = rows; !left.empty(); p += packed.group_rows) {
      const auto here = left.subspan(0, std::min(left.size(), at(packed.group_rows)));
      std::uint8_t* group = packed.codes.data() + packed.place(p, 0);
      // Step after step: the steps of one row stand where they would drive each other out of the cache.
      std::uint8_t* to = group;
      for (std::int64_t s = 0; s < packed.steps(); ++s, to += packed.group_rows * dims) {
        for (std::size_t r = 0; r < here.size(); ++r) {
          std::memcpy(to + r * dims, coded.codes.data() + std::int64_t{here[r]} * coded.stride + s * dims, dims);
        }
      }
      for (std::int64_t j = 0; j < group_bytes; ++j) group[j] = static_cast<std::uint8_t>(group[j] + kernels.zero);
      left = left.subspan(here.size());
    }
  });
}

}  // namespace

CodeTile PackedCodes::tile(std::int64_t group, std::int64_t groups, const std::int8_t* queries,
                           std::int64_t query_count) const {
  CodeTile tile{};
  tile.ask = Ask::survivors;
  tile.codes = codes.data() + group * group_rows * stride;
  tile.row_terms = terms.data() + group * group_rows;
  tile.groups = groups;
  tile.steps = steps();
  tile.queries = queries;
  tile.query_count = query_count;
  return tile;
}

void PackedCodes::unpack(std::int64_t begin, std::int64_t end, const CodeKernels& kernels, const RowKernels& row_kernels, CodeForm form,
                         CodedRows& coded, std::int64_t to) const {
  with_step_dims(step_dims, [&](auto dims) {
    for (std::int64_t first = begin, last = begin; first < end; first = last) {
      last = std::min(end, (first / group_rows + 1) * group_rows);
      for (std::int64_t s = 0; s < steps(); ++s) {
        const std::uint8_t* from = codes.data() + place(first, s * dims);
        std::int8_t* code = coded.codes.data() + (to + first - begin) * stride + s * dims;
        for (std::int64_t p = first; p < last; ++p, from += dims, code += stride) std::memcpy(code, from, dims);
      }
    }
  });
  // Differences have no sums, and values that are no signed bytes.
  const bool products = form != CodeForm::manhattan;
  for (std::int64_t i = to; i < to + end - begin; ++i) {
    std::int8_t* code = coded.codes.data() + i * stride;
    for (std::int64_t j = 0; j < stride; ++j) code[j] = static_cast<std::int8_t>(code[j] - kernels.zero);
    coded.sums[at(i)] = products ? sum_of_code(row_kernels, code, stride) : 0;
    coded.squares[at(i)] = products ? static_cast<std::int32_t>(row_kernels.dot_i8(code, code, stride)) : 0;
  }
}

void PackedCodes::gather(std::span<const std::uint32_t> positions, PackedCodes& out) const {
  out.group_rows = group_rows;
  out.step_dims = step_dims;
  out.stride = stride;
  out.live = std::ssize(positions);
  // What was there fills the last group up, to no harm; room is made anew, since a vector that grows takes up to three times as much.
  if (const std::size_t padded = at(out.groups() * group_rows); out.terms.size() < padded) {
    // Not `= {}`, which keeps the room that there was.
    out.codes = std::vector<std::uint8_t>();
    out.codes.resize(padded * at(stride));
    out.terms = std::vector<std::int32_t>();
    out.terms.resize(padded);
  }
  out.group_errors.assign(at(out.groups()), 0.0f);
  out.group_norms.assign(at(out.groups()), 0.0f);
  with_step_dims(step_dims, [&](auto dims) {
    for (std::int64_t i = 0; i < out.live; ++i) {
      const std::int64_t p = positions[at(i)];
      const std::uint8_t* from = codes.data() + place(p, 0);
      std::uint8_t* to = out.codes.data() + out.place(i, 0);
      for (std::int64_t s = 0; s < steps(); ++s, from += group_rows * dims, to += group_rows * dims) std::memcpy(to, from, dims);
      out.terms[at(i)] = terms[at(p)];
      float& error = out.group_errors[at(i / group_rows)];
      float& norm = out.group_norms[at(i / group_rows)];
      error = std::max(error, group_errors[at(p / group_rows)]);
      norm = std::max(norm, group_norms[at(p / group_rows)]);
    }
  });
}

std::size_t PackedCodes::bytes() const {
  return codes.size() + 4 * (order.size() + terms.size() + squares.size() + errors.size() + norms.size() + 2 * group_errors.size());
}

PackedCodes pack_codes(const CodeSpace& space, const CodeBounds& bounds, MatrixRef base, const RowFacts& facts,
                       const CodeKernels& kernels, const RunOptions& run) {
  CodedRows coded;
  coded.resize(base.rows, space.stride());
  parallel_for(run, base.rows, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    space.encode(base, facts, begin, end, false, coded, begin);
  });
  check_cancelled(run);
  PackedCodes packed = empty_pack(space, kernels);
  put_in_order(space, coded, facts, packed);
  make_room(packed);
  packed.errors.assign(packed.terms.size(), 0.0f);
  packed.norms.assign(packed.terms.size(), 0.0f);
  parallel_for(run, packed.groups(), 64, [&](std::int64_t begin, std::int64_t end, int) {
    const std::int64_t first = begin * packed.group_rows;
    const std::int64_t last = std::min(end * packed.group_rows, packed.live);
    put_codes(space, bounds, kernels, coded, std::span(packed.order).subspan(at(first), at(last - first)), first, packed);
  });
  return packed;
}

bool can_pack_cells(std::span<const std::int64_t> begins, std::int64_t group_rows) {
  std::int64_t positions = 0;
  for (std::size_t cell = 0; cell + 1 < begins.size(); ++cell) {
    positions += (begins[cell + 1] - begins[cell] + group_rows - 1) / group_rows * group_rows;
  }
  return positions < std::int64_t{PackedCodes::no_code};
}

PackedCodes pack_cells(const CodeSpace& space, const CodeBounds& bounds, MatrixRef base, const RowFacts& facts,
                       const CellRows& cells, const CodeKernels& kernels, const RunOptions& run) {
  const auto& [order, begins, names] = cells;
  const auto row_at = [&](std::int64_t place) { return order.empty() ? static_cast<LocalRow>(place) : order[at(place)]; };
  PackedCodes packed = empty_pack(space, kernels);
  packed.region_begin.reserve(begins.size());
  packed.region_rows.reserve(begins.size());
  packed.region_begin.push_back(0);
  for (std::size_t cell = 0; cell + 1 < begins.size(); ++cell) {
    std::int64_t rows = 0;
    for (std::int64_t i = begins[cell]; i < begins[cell + 1]; ++i) rows += !facts.far[row_at(i)];
    packed.live += (rows + packed.group_rows - 1) / packed.group_rows * packed.group_rows;
    packed.region_begin.push_back(packed.live);
    packed.region_rows.push_back(static_cast<LocalRow>(rows));
  }
  packed.order.assign(at(packed.live), PackedCodes::no_code);
  make_room(packed);
  if (space.estimate().bytes) packed.squares.assign(packed.terms.size(), 0);
  const std::size_t at_once = std::max<std::size_t>(1, gathered_bytes / (at(base.cols) * size_of(base.dtype)));
  const std::size_t most = at(most_coded_groups * packed.group_rows);
  parallel_for(run, std::ssize(begins) - 1, 4, [&](std::int64_t first, std::int64_t last, int) {
    CodedRows coded;
    std::vector<std::int64_t> rows;
    std::vector<LocalRow> by_error;
    const auto put = [&](std::int64_t position) {
      coded.resize(std::ssize(rows), space.stride());
      for (std::size_t begin = 0; begin < rows.size(); begin += at_once) {
        const auto some = std::span<const std::int64_t>(rows).subspan(begin, std::min(at_once, rows.size() - begin));
        RowFacts known;
        known.far.assign(some.size(), 0);
        for (const std::int64_t row : some) {
          if (!facts.squared_norms.empty()) known.squared_norms.push_back(facts.squared_norms[at(row)]);
        }
        space.encode(gather_rows(base, some), known, 0, std::ssize(some), false, coded, static_cast<std::int64_t>(begin));
      }
      by_error.resize(rows.size());
      std::iota(by_error.begin(), by_error.end(), LocalRow{0});
      // The rows of small error first, so that one bad row does not loosen the bound of many.
      std::stable_sort(by_error.begin(), by_error.end(),
                       [&](LocalRow a, LocalRow b) { return coded.errors[a] < coded.errors[b]; });
      for (std::size_t i = 0; i < by_error.size(); ++i) packed.order[at(position) + i] = static_cast<LocalRow>(rows[by_error[i]]);
      put_codes(space, bounds, kernels, coded, by_error, position, packed);
    };
    for (std::int64_t cell = first; cell < last; ++cell) {
      std::int64_t position = packed.region_begin[at(cell)];
      rows.clear();
      for (std::int64_t i = begins[at(cell)]; i < begins[at(cell + 1)]; ++i) {
        if (facts.far[row_at(i)]) continue;
        rows.push_back(row_at(i));
        if (rows.size() < most) continue;
        put(position);
        position += std::ssize(rows);
        rows.clear();
      }
      if (!rows.empty()) put(position);
    }
  });
  return packed;
}

std::int64_t packing_bytes(const CodeKernels& kernels, std::int64_t code_bytes, std::int64_t row_bytes) {
  const std::int64_t rows = most_coded_groups * kernels.group_rows;
  // A row's code and what is known of it; its number, twice as they grow, and its place by error; its norm and mark.
  return rows * (code_bytes + 22 + 16 + 4 + 12) +
         std::min(rows * row_bytes, std::max<std::int64_t>(row_bytes, gathered_bytes));
}

PackedCodes sample_codes(const PackedCodes& all, std::int64_t every) {
  PackedCodes sample;
  sample.group_rows = all.group_rows;
  sample.step_dims = all.step_dims;
  sample.stride = all.stride;
  sample.live = all.live / every;
  const std::int64_t padded = sample.groups() * sample.group_rows;
  sample.codes.assign(at(padded * sample.stride), 0);
  sample.terms.assign(at(padded), 0);
  for (std::int64_t s = 0; s < sample.live; ++s) {
    for (std::int64_t j = 0; j < sample.stride; ++j) {
      sample.codes[at(sample.place(s, j))] = all.codes[at(all.place(s * every, j))];
    }
    sample.terms[at(s)] = all.terms[at(s * every)];
  }
  return sample;
}

}  // namespace gigaknn::cpu
