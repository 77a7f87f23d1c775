#include "ops/cpu/code_bounds.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

namespace gigaknn::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int32_t always = std::numeric_limits<std::int32_t>::min();

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// As std::nextafter(x, infinity), which is a call that most of a bound's time would go into.
float next_above(float x) {
  if (!(x < infinity)) return x;
  if (x == 0) return std::numeric_limits<float>::denorm_min();
  const auto bits = std::bit_cast<std::int32_t>(x);
  return std::bit_cast<float>(bits > 0 ? bits + 1 : bits - 1);
}

// The largest integer that is surely at most `value`; NaN and what lies below every sum become `always`.
std::int32_t threshold_below(float value) {
  const float lowest = -0x1p30f;
  const float lowered = value - 2.0f;
  if (!(lowered > lowest)) return always;
  return static_cast<std::int32_t>(std::min(lowered, 0x1p30f));
}

}  // namespace

CodeBounds::CodeBounds(Metric metric, const CodeSpace& space, std::int64_t d, const CodeKernels& kernels)
    : metric_(metric), form_(form_of(metric)), space_(&space), d_(d), kernel_zero_(kernels.zero),
      scale_(form_ == CodeForm::euclidean ? 1 / (space.step() * std::numbers::sqrt2) : 1 / space.step()) {}

// The distance (or product) that a bound stands for, as a real number no pair inside the bound exceeds.
double CodeBounds::radius_of(PackedNeighbor bound) const {
  if (bound == no_neighbor) return infinity;
  const float key = next_above(key_of(bound));
  if (std::isnan(key)) return infinity;
  constexpr double up = 1 + 1e-6;
  switch (metric_) {
    case Metric::l2: return std::sqrt(static_cast<double>(key)) * up;
    case Metric::cosine: return std::sqrt(2 * std::max(0.0, static_cast<double>(key)) + 1e-11) * up;
    case Metric::hellinger: return static_cast<double>(key) * std::numbers::sqrt2 * up;
    case Metric::inner_product: return key + std::abs(key) * 1e-6;
    default: return key * up;
  }
}

QueryBounds CodeBounds::start(const CodedRows& queries, std::int64_t count) const {
  QueryBounds bounds;
  bounds.level.resize(at(count));
  bounds.reach.resize(at(count));
  bounds.error_factor.resize(at(count));
  const int zero = space_->byte_zero();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t sum = queries.sums[at(i)];
    const std::int32_t own = form_ == CodeForm::product ? -zero * sum - static_cast<std::int32_t>(d_) * zero * zero
                                                        : queries.squares[at(i)] / 2;
    bounds.offsets.push_back(kernel_zero_ * sum + own);
  }
  return bounds;
}

void CodeBounds::set(QueryBounds& bounds, const CodedRows& queries, std::int64_t i, PackedNeighbor bound) const {
  const double radius = radius_of(bound);
  const double error = queries.errors[at(i)];
  float& level = bounds.level[at(i)];
  switch (form_) {
    case CodeForm::euclidean: {
      const auto offset = static_cast<float>(bounds.offsets[at(i)]);
      level = offset - std::abs(offset) * 1e-6f - 1;
      bounds.reach[at(i)] = static_cast<float>((radius + error) * scale_ * 1.000001);
      break;
    }
    case CodeForm::product: {
      // <x,y> <= <x',y'> + |x'| e_y + (|y'| + e_y) e_x, all in units of step * query step.
      const double unit = 1 / (space_->step() * queries.steps[at(i)]);
      const double product = -radius * unit;
      level = static_cast<float>(product - std::abs(product) * 1e-6 + bounds.offsets[at(i)]);
      level -= std::abs(level) * 1e-6f;
      bounds.reach[at(i)] = static_cast<float>(error / queries.steps[at(i)] * 1.000001);
      bounds.error_factor[at(i)] =
          static_cast<float>((queries.norms[at(i)] + error) / queries.steps[at(i)] * 1.000001);
      break;
    }
    case CodeForm::manhattan: level = static_cast<float>(-(radius + error) * scale_ * 1.000001); break;
  }
}

void CodeBounds::fill(const QueryBounds& bounds, float group_error, float group_norm,
                      std::int32_t* thresholds) const {
  const auto count = static_cast<std::int64_t>(bounds.level.size());
  const float* level = bounds.level.data();
  const float* reach = bounds.reach.data();
  const float* factor = bounds.error_factor.data();
  switch (form_) {
    case CodeForm::euclidean:
      for (std::int64_t i = 0; i < count; ++i) {
        const float both = reach[i] + group_error;
        thresholds[i] = threshold_below(level[i] - both * both * 1.000001f);
      }
      break;
    case CodeForm::product:
      for (std::int64_t i = 0; i < count; ++i) {
        const float lost = reach[i] * group_norm + factor[i] * group_error;
        thresholds[i] = threshold_below(level[i] - lost * 1.000001f);
      }
      break;
    case CodeForm::manhattan:
      for (std::int64_t i = 0; i < count; ++i) {
        thresholds[i] = threshold_below((level[i] - group_error) * 1.000001f);
      }
      break;
  }
}

float CodeBounds::level_of(PackedNeighbor bound) const {
  const double radius = radius_of(bound);
  if (form_ == CodeForm::product) {
    const double level = -radius * scale_ * scale_;
    return std::isnan(level) ? -infinity : static_cast<float>(level - std::abs(level) * 2e-6);
  }
  const double level = radius * scale_ * 1.0000005;
  return std::isnan(level) ? infinity : static_cast<float>(level);
}

void CodeBounds::fill_row_limits(const float* levels, std::int64_t rows, float error, float norm, float query_error, float query_norm,
                                 std::int32_t* limits) const {
  const float both = error + query_error;
  const float lost = error * query_norm + (norm + error) * query_error;
  const auto fill = [&](auto limit_of) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int32_t limit = std::max(threshold_below(limit_of(levels[r])), -(1 << 30));
      limits[r] = std::isnan(levels[r]) ? 1 << 30 : limit;
    }
  };
  switch (form_) {
    case CodeForm::euclidean: return fill([&](float level) { return -(level + both) * (level + both) * 1.00001f; });
    case CodeForm::product: return fill([&](float level) { return level - lost * 1.00001f - std::abs(level) * 1e-6f; });
    case CodeForm::manhattan: return fill([&](float level) { return -(level + both) * 1.00001f; });
  }
}

}  // namespace gigaknn::cpu
