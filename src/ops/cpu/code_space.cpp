#include "ops/cpu/code_space.hpp"

#include <algorithm>

#include "ops/cpu/euclidean_codes.hpp"
#include "ops/cpu/manhattan_codes.hpp"

namespace gigaknn::cpu {

bool has_code_form(Metric metric) {
  switch (metric) {
    case Metric::l2:
    case Metric::euclidean:
    case Metric::inner_product:
    case Metric::cosine:
    case Metric::hellinger:
    case Metric::l1: return true;
    default: return false;
  }
}

CodeForm form_of(Metric metric) {
  switch (metric) {
    case Metric::l1: return CodeForm::manhattan;
    case Metric::inner_product: return CodeForm::product;
    default: return CodeForm::euclidean;
  }
}

bool codes_may_fit(Metric metric, std::int64_t d, const CodeKernels& kernels) {
  return form_of(metric) == CodeForm::manhattan ? ManhattanCodes::most_columns(d) <= kernels.most_dims
                                               : d <= std::max(EuclideanCodes::most_fitted_dims, kernels.most_dims);
}

std::int32_t sum_of_code(const RowKernels& kernels, const std::int8_t* code, std::int64_t dims) {
  static const std::vector<std::int8_t> ones(1024, 1);
  std::int64_t sum = 0;
  for (std::int64_t j = 0; j < dims; j += std::ssize(ones)) {
    sum += kernels.dot_i8(code + j, ones.data(), std::min(dims - j, std::ssize(ones)));
  }
  return static_cast<std::int32_t>(sum);
}

void CodedRows::resize(std::int64_t rows, std::int64_t stride_) {
  const auto count = static_cast<std::size_t>(rows);
  stride = stride_;
  codes.assign(count * static_cast<std::size_t>(stride), 0);
  squares.assign(count, 0);
  sums.assign(count, 0);
  errors.assign(count, 0.0f);
  norms.assign(count, 0.0f);
  steps.assign(count, 0.0f);
  regions.assign(count, 0);
}

void CodedRows::copy_row(const CodedRows& from, std::int64_t row, std::int64_t to) {
  const auto i = static_cast<std::size_t>(row), j = static_cast<std::size_t>(to);
  std::copy_n(from.codes.data() + row * stride, stride, codes.data() + to * stride);
  squares[j] = from.squares[i];
  sums[j] = from.sums[i];
  errors[j] = from.errors[i];
  norms[j] = from.norms[i];
  steps[j] = from.steps[i];
  regions[j] = from.regions[i];
}

std::unique_ptr<CodeSpace> fit_codes(const CodeSource& source, const RunOptions& run) {
  std::unique_ptr<CodeSpace> space;
  if (form_of(source.pair.metric()) == CodeForm::manhattan) {
    space = std::make_unique<ManhattanCodes>(source, run);
  } else {
    space = std::make_unique<EuclideanCodes>(source, run);
  }
  if (space->estimate().dims == 0) return nullptr;
  return space;
}

std::size_t fit_bytes_needed(Metric metric, std::int64_t n, std::int64_t d, int threads) {
  return form_of(metric) == CodeForm::manhattan ? ManhattanCodes::bytes_needed(n, d, threads)
                                               : EuclideanCodes::bytes_needed(n, d, threads);
}

std::int64_t most_code_bytes(Metric metric, std::int64_t d) {
  return form_of(metric) == CodeForm::manhattan ? ManhattanCodes::most_columns(d) + 8 : (d + 3) / 4 * 4;
}

}  // namespace gigaknn::cpu
