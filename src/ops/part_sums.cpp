#include "ops/part_sums.hpp"

#include <span>

#include "core/gather.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t summed_elements = 64;
#else
constexpr std::int64_t summed_elements = std::int64_t{1} << 20;  // at a time: 4 MiB of rows, 8 MiB of sums at most
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

PartSums::PartSums(const Ops& ops, MatrixRef rows, const double* weights, const LabelRuns& all, std::int64_t begin, std::int64_t end,
                   const RunOptions& run)
    : cols_(rows.cols) {
  std::vector<RowId> own;  // the sum that each row counts in
  own.reserve(at(all.run_begins[at(end)] - all.run_begins[at(begin)]));
  labels_.reserve(at(end - begin));
  std::int64_t label = std::upper_bound(all.label_begins.begin(), all.label_begins.end(), begin) - all.label_begins.begin() - 1;
  for (std::int64_t r = begin; r < end; ++r) {
    while (all.label_begins[at(label + 1)] <= r) ++label;
    const bool cut = all.label_begins[at(label)] < begin || all.label_begins[at(label + 1)] > end;
    if (cut || labels_.empty() || labels_.back() != label) labels_.push_back(label);
    own.insert(own.end(), at(all.run_begins[at(r + 1)] - all.run_begins[at(r)]), RowId{std::ssize(labels_) - 1});
  }
  const auto mine = std::span(all.rows).subspan(at(all.run_begins[at(begin)]), own.size());
  const Matrix gathered = gather_rows(rows, mine, run);
  std::vector<double> own_weights;
  own_weights.reserve(weights ? mine.size() : 0);
  for (std::size_t i = 0; weights && i < mine.size(); ++i) own_weights.push_back(weights[mine[i]]);
  sums_.resize(labels_.size() * at(cols_));
  std::vector<std::int64_t> counts(labels_.size());
  ops.sum_by_label(gathered, weights ? own_weights.data() : nullptr, own.data(), std::ssize(labels_), sums_.data(), counts.data(), run);
}

void PartSums::add_to(double* sums) const {
  const double* from = sums_.data();
  for (const std::int64_t label : labels_) {
    for (std::int64_t j = 0; j < cols_; ++j) sums[label * cols_ + j] += *from++;
  }
}

std::int64_t PartSums::end_of_part(const LabelRuns& all, std::int64_t begin, std::int64_t rows) {
  const std::int64_t first_row = all.run_begins[at(begin)];
  while (begin < all.runs() && all.run_begins[at(begin)] - first_row < rows) ++begin;
  return begin;
}

std::int64_t PartSums::most_rows(std::int64_t d) { return std::max(LabelRuns::run_rows, summed_elements / d); }

std::size_t PartSums::bytes_needed(std::int64_t n, std::int64_t d) {
  return at(std::min(n, most_rows(d) + LabelRuns::run_rows)) * at(d * 12 + 72);  // row and sum; what names them, and their order
}

}  // namespace gigaknn
