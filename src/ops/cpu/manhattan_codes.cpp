#include "ops/cpu/manhattan_codes.hpp"

#include <algorithm>
#include <cmath>

#include "core/threads.hpp"

namespace gigaknn::cpu {
namespace {

constexpr double safety = 1 + 1e-6;         // for the roundings of the bounds themselves
constexpr std::int64_t chunk_rows = 128;    // rows encoded at a time, in L2
constexpr std::int64_t probe_queries = 32;
constexpr std::int64_t probe_rows = 1024;
constexpr double budgets[] = {0.0625, 0.125, 0.25, 0.375, 0.5, 0.75, 1, 1.25, 1.5, 2};  // columns a dimension
constexpr double float_cycles_a_dim = 0.11;  // of the float32 tile that the filter replaces (Zen 4)
constexpr double top_level = 255;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t sum_of_differences(const std::uint8_t* a, const std::uint8_t* b, std::int64_t count) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::abs(int{a[i]} - int{b[i]});
  return sum;
}

}  // namespace

std::size_t ManhattanCodes::bytes_needed(std::int64_t n, std::int64_t d, int threads) {
  return sample_bytes(n, d, 3 * d + 80) + CodeRegions::bytes_needed(d) +
         at(probe_rows * (most_columns(d) + 8 * probe_queries) + d * 64) +
         at(threads * chunk_rows * (2 * d + 320) * 4);
}

ManhattanCodes::ManhattanCodes(const CodeSource& source, const RunOptions& run)
    : CodeSpace(source.kernels), pair_(source.pair), d_(source.pair.d()), most_dims_(source.kernels.most_dims),
      per_cycle_(source.kernels.macs_per_cycle), pair_cycles_(source.kernels.pair_cycles) {
  if (most_columns(d_) > most_dims_) return;
  const RowSample sample = draw_sample(
      source.base, source.facts,
      [&](std::int64_t i, float* x, float*) {
        widen_row(pair_.kernels(), source.base.dtype, source.base.row_bytes(i), x, d_);
      },
      run);
  if (sample.rows < 8) return;
  choose_layout(sample, source.base.rows, source.k, run);
  if (estimate_.dims == 0) return;
  step_ = layout_.step;
  if (source.regions) regions_.fit(pair_.kernels(), source.floats, sample.x, d_, source.base.rows, run);
}

std::size_t ManhattanCodes::bytes() const { return sizeof(Split) * layout_.splits.size() + regions_.bytes(); }

ManhattanCodes::Layout ManhattanCodes::layout_of(const std::vector<Range>& ranges, std::int64_t columns) {
  double total = 0;
  for (const Range& range : ranges) total += range.high - range.low;
  Layout layout;
  if (!(total > 1e-25)) return layout;  // a step whose inverse is a normal float32
  // Each dimension takes whole columns, so the step that would just fill them is too fine at first.
  for (double step = total / top_level / static_cast<double>(columns);; step *= 1.02) {
    layout = {};
    layout.step = static_cast<float>(step);
    for (std::size_t j = 0; j < ranges.size(); ++j) {
      const double levels = (ranges[j].high - ranges[j].low) / layout.step;
      if (levels < 1) continue;
      const auto needed = static_cast<std::int64_t>(std::ceil(levels / top_level * (1 - 1e-6)));
      layout.splits.push_back({static_cast<std::int64_t>(j), needed, ranges[j].low});
      layout.columns += needed;
    }
    if (layout.columns <= columns) break;
  }
  return layout;
}

double ManhattanCodes::encode_row(const Layout& layout, const float* x, std::uint8_t* codes) {
  const double inverse = 1 / layout.step;
  double lost = 0;
  for (const Split& split : layout.splits) {
    // The clamped element and what its level stands for; each is wrong by a few 2^-53 of the extent.
    const double above = x[split.dim] - split.low;
    const double most = layout.step * top_level * static_cast<double>(split.columns);
    const double clamped = std::min(std::max(above, 0.0), most);
    auto level = static_cast<std::int64_t>(clamped * inverse + 0.5);
    lost += std::abs(clamped - layout.step * static_cast<double>(level));
    for (std::int64_t c = 0; c < split.columns; ++c, level -= 255) {
      *codes++ = static_cast<std::uint8_t>(std::clamp<std::int64_t>(level, 0, 255));
    }
  }
  return lost * safety + 1e-12 * layout.extent;
}

void ManhattanCodes::drop_useless(const RowSample& sample, Layout& layout) {
  const std::int64_t half = std::min<std::int64_t>(sample.rows / 2, 512);
  std::erase_if(layout.splits, [&](const Split& split) {
    const auto code_of = [&](std::int64_t i) {
      const double levels = (sample.row(i)[split.dim] - split.low) / layout.step;
      return std::clamp(levels, 0.0, top_level * static_cast<double>(split.columns));
    };
    double gain = 0;
    for (std::int64_t i = 0; i < half; ++i) {
      const double a = code_of(i), b = code_of(i + sample.rows / 2);
      gain += std::abs(std::round(a) - std::round(b)) - std::abs(a - std::round(a)) - std::abs(b - std::round(b));
    }
    return !(gain > 0);
  });
  layout.columns = 0;
  layout.extent = 0;
  for (const Split& split : layout.splits) {
    layout.columns += split.columns;
    layout.extent += std::abs(split.low) + 2 * layout.step * top_level * static_cast<double>(split.columns);
  }
}

double ManhattanCodes::survivors(const RowSample& sample, const Layout& layout, const std::vector<double>& radii,
                                 const RunOptions& run) {
  const auto queries = static_cast<std::int64_t>(radii.size());
  const std::int64_t rows = std::min(probe_rows, sample.rows - queries);
  std::vector<std::uint8_t> codes(at((queries + rows) * layout.columns));
  std::vector<double> errors(at(queries + rows));
  for (std::int64_t i = 0; i < queries + rows; ++i) {
    errors[at(i)] = encode_row(layout, sample.row(i), codes.data() + i * layout.columns);
  }
  std::vector<double> found(at(queries), 0.0);
  parallel_for(run, queries, 1, [&](std::int64_t q, std::int64_t, int) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const double sum = static_cast<double>(sum_of_differences(
          codes.data() + q * layout.columns, codes.data() + (queries + i) * layout.columns, layout.columns));
      found[at(q)] += sum * layout.step - errors[at(q)] - errors[at(queries + i)] <= radii[at(q)];
    }
  });
  double total = 0;
  for (double count : found) total += count;
  return total / static_cast<double>(queries * rows);
}

void ManhattanCodes::choose_layout(const RowSample& sample, std::int64_t n, std::int64_t k, const RunOptions& run) {
  const std::int64_t queries = std::min(probe_queries, sample.rows / 4);
  std::vector<double> radii(at(queries));
  parallel_for(run, queries, 1, [&](std::int64_t q, std::int64_t, int) {
    std::vector<double> all(at(sample.rows - queries));
    for (std::int64_t i = queries; i < sample.rows; ++i) {
      const double distance = pair_.kernels().fast_l1_f32(sample.row(q), sample.row(i), d_);
      all[at(i - queries)] = std::isnan(distance) ? INFINITY : distance;
    }
    radii[at(q)] = radius_of_rank(all, static_cast<double>(k), static_cast<double>(n));
  });
  const double survivor = survivor_cycles(pair_.dtype(), d_);
  const auto consider = [&](Layout layout, bool bytes) {
    const double fraction = survivors(sample, layout, radii, run);
    // Early on, before the lists are good, more survive: half as much again.
    const double cycles = static_cast<double>((layout.columns + 7) / 8 * 8) / per_cycle_ + pair_cycles_ +
                          1.5 * fraction * survivor;
    const double others = estimate_.dims > 0 ? estimate_.cycles : float_cycles_a_dim * static_cast<double>(d_) + 1;
    if (!bytes && cycles >= others) return;
    estimate_ = {layout.columns, bytes, fraction, cycles};
    layout_ = std::move(layout);
  };
  if (pair_.dtype() == DType::u8 || pair_.dtype() == DType::i8) {
    Layout layout;
    for (std::int64_t j = 0; j < d_; ++j) layout.splits.push_back({j, 1, pair_.dtype() == DType::u8 ? 0.0 : -128.0});
    layout.columns = d_;
    return consider(std::move(layout), true);
  }
  std::vector<Range> ranges(at(d_));
  std::vector<float> values(at(sample.rows));
  for (double tail : {0.0, 0.004}) {
    for (std::int64_t j = 0; j < d_; ++j) {
      for (std::int64_t i = 0; i < sample.rows; ++i) values[at(i)] = sample.row(i)[j];
      const auto cut = static_cast<std::ptrdiff_t>(tail * static_cast<double>(sample.rows));
      std::nth_element(values.begin(), values.begin() + cut, values.end());
      ranges[at(j)].low = values[at(cut)];
      std::nth_element(values.begin(), values.end() - 1 - cut, values.end());
      ranges[at(j)].high = values[values.size() - 1 - at(cut)];
    }
    std::int64_t last = 0;
    for (double share : budgets) {
      const auto budget = (static_cast<std::int64_t>(share * static_cast<double>(d_)) + 7) / 8 * 8;
      if (budget == last) continue;
      last = budget;
      Layout layout = layout_of(ranges, std::max<std::int64_t>(8, budget));
      drop_useless(sample, layout);
      if (layout.columns == 0) continue;
      consider(std::move(layout), false);
    }
  }
}

void ManhattanCodes::encode(MatrixRef rows, const RowFacts& facts, std::int64_t begin, std::int64_t end, bool,
                            CodedRows& out, std::int64_t out_begin) const {
  std::vector<float> x(at(std::min(chunk_rows, end - begin) * d_));
  for (std::int64_t from = begin; from < end; from += chunk_rows) {
    const std::int64_t count = std::min(chunk_rows, end - from);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t to = out_begin + from - begin + i;
      float* row = x.data() + i * d_;
      if (facts.far[at(from + i)]) {
        std::fill_n(row, d_, 0.0f);
      } else {
        widen_row(pair_.kernels(), rows.dtype, rows.row_bytes(from + i), row, d_);
      }
      const double error =
          encode_row(layout_, row, reinterpret_cast<std::uint8_t*>(out.codes.data()) + to * out.stride);
      const float rounded = static_cast<float>(error);
      out.errors[at(to)] = rounded < error ? std::nextafter(rounded, INFINITY) : rounded;
      out.steps[at(to)] = static_cast<float>(step_);
    }
    regions_.find(x.data(), count, out.regions.data() + (out_begin + from - begin));
  }
}

}  // namespace gigaknn::cpu
