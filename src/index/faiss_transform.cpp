#include "index/faiss_transform.hpp"

#include <algorithm>
#include <cmath>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t most_values = 1 << 24;  // of a matrix that a file implies in few bytes

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// y = matrix x + bias.
struct Step {
  std::vector<double> matrix;  // [cols_out, cols_in]
  std::vector<double> bias;    // [cols_out]; empty: none
};

void require_small(const FileBytes& file, std::int64_t rows, std::int64_t cols) {
  require(rows <= most_values / cols, Fault::unsupported, file.name, ": transforms that make ", rows, " x ", cols,
          " values are not converted, allowed: ", most_values);
}

std::vector<double> as_doubles(FileValues<float> values) {
  std::vector<double> copy(values.size());
  for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = values[i];
  return copy;
}

Step step_of(const FileBytes& file, const FaissTransform& transform) {
  const std::int64_t rows = transform.cols_out, cols = transform.cols_in;
  if (transform.matrix.size() > 0) return {as_doubles(transform.matrix), as_doubles(transform.bias)};
  const bool centres = transform.kind == "CenteringTransform", remaps = transform.kind == "RemapDimensionsTransform";
  require(centres || remaps, Fault::unsupported, file.name, ": ", transform.kind,
          " is not converted, allowed: LinearTransform, RandomRotationMatrix, PCAMatrix, CenteringTransform, "
          "RemapDimensionsTransform");
  require_small(file, rows, cols);
  Step step{std::vector<double>(at(rows * cols)), {}};
  if (centres) {
    require_at(rows == cols && transform.mean.size() == at(cols), file, transform.offset, "a mean of ", transform.mean.size(),
               " values, expected ", cols, " and as many dimensions");
    step.bias = as_doubles(transform.mean);
    for (std::int64_t i = 0; i < rows; ++i) {
      step.matrix[at(i * cols + i)] = 1;
      step.bias[at(i)] = -step.bias[at(i)];
    }
    return step;
  }
  require_at(transform.from.size() == at(rows), file, transform.offset, "a remapping of ", transform.from.size(), " dimensions, expected ",
             rows);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t from = transform.from[at(i)];
    require_at(from >= -1 && from < cols, file, transform.offset, "dimension ", from, ", expected -1 to ", cols - 1);
    if (from >= 0) step.matrix[at(i * cols + from)] = 1;
  }
  return step;
}

// `next` [rows, inner] after `first` [inner, cols].
Step after(const Step& next, const Step& first, std::int64_t rows, std::int64_t inner, std::int64_t cols, const RunOptions& run) {
  Step both{std::vector<double>(at(rows * cols)), next.bias};
  if (both.bias.empty() && !first.bias.empty()) both.bias.resize(at(rows));
  parallel_for(run, rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t k = 0; k < inner; ++k) {
        const double weight = next.matrix[at(i * inner + k)];
        if (weight == 0) continue;  // most are, where dimensions are remapped
        for (std::int64_t j = 0; j < cols; ++j) both.matrix[at(i * cols + j)] += weight * first.matrix[at(k * cols + j)];
        if (!first.bias.empty()) both.bias[at(i)] += weight * first.bias[at(k)];
      }
    }
  });
  check_cancelled(run);
  return both;
}

}  // namespace

LinearTransform composed(const FileBytes& file, std::span<const FaissTransform> chain, const RunOptions& run) {
  require(!chain.empty(), Fault::unsupported, file.name, ": IndexPreTransform without a transform is not converted");
  const std::int64_t cols = chain.front().cols_in;
  Step whole = step_of(file, chain.front());
  for (std::size_t i = 1; i < chain.size(); ++i) {
    const FaissTransform& transform = chain[i];
    const Step next = step_of(file, transform);
    require_small(file, transform.cols_out, cols);
    whole = after(next, whole, transform.cols_out, transform.cols_in, cols, run);
  }
  LinearTransform transform{Matrix(chain.back().cols_out, cols, DType::f32), std::vector<float>(whole.bias.size())};
  const auto rounded = [&](double x) {
    const auto value = static_cast<float>(x);
    require_at(std::isfinite(value), file, chain.front().offset, "a transform has the value ", value);
    return value;
  };
  std::transform(whole.matrix.begin(), whole.matrix.end(), transform.matrix.row<float>(0), rounded);
  std::transform(whole.bias.begin(), whole.bias.end(), transform.bias.begin(), rounded);
  return transform;
}

LinearTransform composed_for_codes(const FileBytes& file, std::span<const FaissTransform> chain, const RunOptions& run) {
  LinearTransform linear;
  if (chain.empty()) return linear;
  const FaissTransform& first = chain.front();
  if (first.kind != "CenteringTransform") return composed(file, chain, run);
  if (chain.size() > 1) linear = composed(file, chain.subspan(1), run);
  require_at(first.mean.size() == at(first.cols_in) && first.cols_in == first.cols_out, file, first.offset, "a mean of ", first.mean.size(),
             " values, expected ", first.cols_in);
  for (std::size_t i = 0; i < first.mean.size(); ++i) linear.mean.push_back(first.mean[i]);
  require_at(std::all_of(linear.mean.begin(), linear.mean.end(), [](float x) { return std::isfinite(x); }), file, first.offset,
             "a mean is not finite");
  return linear;
}

}  // namespace gigaknn
