#include "ops/cpu/level_codes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t block_rows = code_block_rows;
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t chunk_bytes = 600;
#else
constexpr std::int64_t chunk_bytes = 1 << 17;  // of levels, which stay in L2 while queries go over them
#endif
constexpr std::int64_t most_group_rows = 64, step_dims = 4;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// To one of many sizes, of which none is above `most`: so that it never moves.
template <class Value>
void resize_once(std::vector<Value>& values, std::size_t size, std::size_t most) {
  values.reserve(most);
  values.resize(size);
}

}  // namespace

bool LevelCodes::suits(const CodeShape& shape, const CodeKernels* kernels) {
  return kernels && kernels->step_dims == 4 && !shape.scaled && shape.part_dims == 1 && shape.m + step_dims <= kernels->most_dims;
}

std::int64_t LevelCodes::chunk_rows(const CodeShape& shape) {
  return std::clamp<std::int64_t>(chunk_bytes / shape.m / block_rows, 2, 64) * block_rows;
}

std::size_t LevelCodes::bytes_needed(const CodeShape& shape) {
  return at(shape.m * (shape.words() + 4) + 4 * (chunk_rows(shape) + most_group_rows));
}

std::size_t LevelCodes::visit_bytes_needed(const CodeShape& shape) {
  const std::int64_t rows = chunk_rows(shape) + most_group_rows, stride = shape.m + step_dims;
  return at(rows * (stride + 4 * most_queries) + most_queries * (stride + static_cast<std::int64_t>(sizeof(Asked))));
}

LevelCodes::LevelCodes(const ProductCodes& codes, const CodeKernels& kernels, ReadLevels read)
    : shape_(codes.shape()), codewords_(static_cast<const float*>(codes.codewords.data)), kernels_(&kernels), read_(read),
      steps_((shape_.m + kernels.step_dims - 1) / kernels.step_dims), step_(at(shape_.m)), stored_levels_(at(shape_.m * shape_.words())),
      no_terms_(at(groups_of(chunk_rows(shape_)) * kernels.group_rows)) {
  const std::int64_t words = shape_.words();
  for (std::int64_t part = 0; part < shape_.m; ++part) {
    const float* const of_part = codewords_ + part * words;
    float most = 0;
    for (std::int64_t word = 0; word < words; ++word) most = std::max(most, std::abs(of_part[word]));
    step_[at(part)] = most / static_cast<float>(kernels.most_level);
    const auto step = static_cast<double>(step_[at(part)]);
    for (std::int64_t word = 0; word < words; ++word) {
      const double exact = step > 0 ? static_cast<double>(of_part[word]) / step : 0;
      // A codeword that is no number has no level; whatever it is compared with is none either.
      const double level = std::isnan(exact) ? 0 : std::clamp<double>(std::round(exact), -kernels.most_level, kernels.most_level);
      stored_levels_[at(part * words + word)] = static_cast<std::uint8_t>(static_cast<int>(level) + kernels.zero);
    }
  }
}

LevelCodes::Row LevelCodes::row(const ProductCodes& codes, std::int64_t cell, std::int64_t block, std::int64_t row) const {
  const float* const centroid = codes.centroids.row<float>(cell);
  Row of_row;
  for (std::int64_t j = 0; j < shape_.d; ++j) {
    const std::int64_t word = j * shape_.words() + codes.code(block, j, row);
    const double w = static_cast<double>(codewords_[word]), level = int{stored_levels_[at(word)]} - kernels_->zero;
    of_row.square += w * w;
    of_row.with_centroid += w * static_cast<double>(centroid[j]);
    of_row.squared_levels += level * level;
    of_row.squared_loss += (w - level * static_cast<double>(step_[at(j)])) * (w - level * static_cast<double>(step_[at(j)]));
  }
  return of_row;
}

void LevelCodes::Reach::add(const Row& row) {
  words = std::max(words, std::sqrt(row.square));
  levels = std::max(levels, std::sqrt(row.squared_levels));
  loss = std::max(loss, std::sqrt(row.squared_loss));
}

LevelCodes::Asked LevelCodes::ask(const float* query, const float* centroid, const Reach& reach, std::int8_t* to) const {
  const std::int64_t d = shape_.d;
  float most = 0, square = 0;
  // Sums of lanes of their own, which the compiler puts into a register.
  constexpr std::int64_t lanes = 8;
  float mosts[lanes] = {}, squares[lanes] = {};
  const auto left = [&](std::int64_t j) { return query[j] - centroid[j]; };
  std::int64_t j = 0;
  for (; j + lanes <= d; j += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const float r = left(j + lane), t = std::abs(r * step_[at(j + lane)]);
      squares[lane] += r * r;
      mosts[lane] = t > mosts[lane] ? t : mosts[lane];
    }
  }
  for (; j < d; ++j) {
    square += left(j) * left(j);
    most = std::max(most, std::abs(left(j) * step_[at(j)]));
  }
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    square += squares[lane];
    most = std::max(most, mosts[lane]);
  }
  Asked asked{.square = static_cast<double>(square)};
  const float unit = most / static_cast<float>(kernels_->most_level), by = 1 / unit;
  const bool usable = std::isfinite(square) && std::isfinite(most) && std::isfinite(by);
  if (!usable) {
    std::fill_n(to, stride(), std::int8_t{0});
    asked.slack = most == 0 ? 0 : std::numeric_limits<double>::infinity();
    return asked;
  }
  // Adding and taking off 1.5 * 2^23 rounds to whole numbers.
  constexpr float rounds = 12582912;
  float errors[lanes] = {}, error = 0;
  std::int32_t sums[lanes] = {}, sum = 0;
  const auto round = [&](std::int64_t at_j, float& lost) {
    const float t = left(at_j) * step_[at(at_j)], whole = (t * by + rounds) - rounds;
    const float rest = (t - unit * whole) * by;  // in units, whose squares float32 holds
    lost += rest * rest;
    const auto level = static_cast<std::int32_t>(whole);
    to[at_j] = static_cast<std::int8_t>(level);
    return level;
  };
  for (j = 0; j + lanes <= d; j += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] += round(j + lane, errors[lane]);
  }
  for (; j < d; ++j) sum += round(j, error);
  std::fill(to + d, to + stride(), std::int8_t{0});
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    error += errors[lane];
    sum += sums[lane];
  }
  asked.unit = unit;
  asked.zeros = sum * kernels_->zero;
  // What float32 loses of `rest`, 2^-16 of a unit in each dimension, and of the sum.
  const double unlike =
      static_cast<double>(unit) * (std::sqrt(static_cast<double>(error) * (1 + 0x1p-10)) + 0x1p-15 * std::sqrt(static_cast<double>(d)));
  asked.slack = unlike * reach.levels + std::sqrt(static_cast<double>(square) * (1 + 0x1p-10)) * reach.loss;
  return asked;
}

void LevelCodes::read_levels(const std::uint8_t* codes, std::int64_t blocks, std::int64_t block_bytes,
                             std::vector<std::uint8_t>& levels) const {
  resize_once(levels, at(groups_of(blocks * block_rows) * kernels_->group_rows * stride()),
              at(groups_of(chunk_rows(shape_)) * kernels_->group_rows * stride()));
  read_({codes, blocks, block_bytes, shape_.m, shape_.bits, stored_levels_.data(), static_cast<std::uint8_t>(kernels_->zero),
         kernels_->group_rows, steps_},
        levels.data());
}

void LevelCodes::multiply(std::span<const std::uint8_t> levels, std::int64_t rows, const std::int8_t* asked, std::int64_t queries,
                          std::vector<std::int32_t>& sums) const {
  const std::int64_t groups = groups_of(rows);
  resize_once(sums, at(groups * queries * kernels_->group_rows), at(groups_of(chunk_rows(shape_)) * most_queries * kernels_->group_rows));
  CodeTile tile{};
  tile.ask = Ask::sums;
  tile.codes = levels.data();
  tile.row_terms = no_terms_.data();
  tile.groups = groups;
  tile.steps = steps_;
  tile.queries = asked;
  tile.query_count = queries;
  tile.sums = sums.data();
  kernels_->scan(tile);
}

void LevelCodes::estimate(std::span<const std::int32_t> sums, std::int64_t queries, std::int64_t q, const Asked& asked, float scale,
                          std::span<const float> terms, float* out) const {
  const std::int64_t group_rows = kernels_->group_rows, rows = std::ssize(terms);
  const float factor = scale * asked.unit;
  for (std::int64_t begin = 0; begin < rows; begin += group_rows) {
    const std::int32_t* const of_group = sums.data() + (begin / group_rows * queries + q) * group_rows;
    for (std::int64_t i = 0; i < std::min(group_rows, rows - begin); ++i) {
      out[begin + i] = terms[at(begin + i)] + factor * static_cast<float>(of_group[i] - asked.zeros);
    }
  }
}

float LevelCodes::product(const float* query, const float* centroid, const std::uint8_t* codes) const {
  return shape_.bits == 8   ? product_of<8>(query, centroid, codes)
         : shape_.bits == 6 ? product_of<6>(query, centroid, codes)
                            : product_of<4>(query, centroid, codes);
}

template <int bits>
float LevelCodes::product_of(const float* query, const float* centroid, const std::uint8_t* codes) const {
  constexpr std::int64_t words = 1 << bits, lanes = 8;
  float sums[lanes] = {};
  const auto of_dim = [&](std::int64_t j) {
    return (query[j] - centroid[j]) * codewords_[j * words + code_in_bytes(codes + j * bits / 8 * block_rows, block_rows, j, bits)];
  };
  std::int64_t j = 0;
  for (; j + lanes <= shape_.d; j += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] += of_dim(j + lane);
  }
  for (; j < shape_.d; ++j) sums[j % lanes] += of_dim(j);
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

}  // namespace gigaknn::cpu
