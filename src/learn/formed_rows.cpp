#include "learn/formed_rows.hpp"

#include <algorithm>

#include "core/cancelled.hpp"
#include "learn/kmeans_sample.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t least_turn = 70, turn_values = 0;
#else
constexpr std::int64_t least_turn = 1 << 12, turn_values = 1 << 22;
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

std::int64_t FormedRowsShape::turn_rows() const { return std::min(n, std::max(least_turn, turn_values / std::max(d, formed().cols))); }

std::size_t FormedRowsShape::turn_bytes() const { return form ? form->bytes(turn_rows()) + form->applying_bytes(turn_rows()) : 0; }

std::size_t FormedRowsShape::gathering_bytes(std::int64_t count) const {
  if (!form) return at(count * d) * size_of(dtype);
  const std::int64_t turn = std::min(count, turn_rows());
  return at(turn * d) * size_of(dtype) + form->bytes(count) + form->bytes(turn) + form->applying_bytes(turn);
}

std::size_t FormedRowsShape::kmeans_bytes(const KMeansParams& params, const RunOptions& run) const {
  if (!form) return kmeans_bytes_needed(n, d, dtype, params, run);
  const std::int64_t drawn = kmeans_training_rows(n, params);
  KMeansParams of_drawn = params;
  of_drawn.left_out = {};
  return std::max(at(drawn) * sizeof(std::int64_t) + gathering_bytes(drawn),
                  form->bytes(drawn) + kmeans_bytes_needed(drawn, form->width, form->dtype, of_drawn, run));
}

std::int64_t FormedRows::turn_rows() const {
  const FormShape shape = form_ ? form_->shape(base_.cols) : FormShape{};
  return FormedRowsShape{base_.rows, base_.cols, base_.dtype, form_ ? &shape : nullptr}.turn_rows();
}

void FormedRows::copy_into(Matrix& formed, std::int64_t begin, MatrixRef rows, const RunOptions& run) const {
  const Matrix some = form_->apply(*ops_, rows, run);
  std::copy_n(some.row<std::byte>(0), at(some.rows() * some.cols()) * size_of(some.dtype()), formed.row<std::byte>(begin));
}

void FormedRows::in_turns(std::string_view stage, const std::function<void(MatrixRef, std::int64_t)>& take, const RunOptions& run) const {
  const std::int64_t turn = turn_rows();
  for (std::int64_t begin = 0; begin < base_.rows; begin += turn) {
    check_cancelled(run);
    const MatrixRef rows = base_.slice(begin, std::min(base_.rows, begin + turn));
    {
      const Progress::Quiet quiet(run.progress);
      if (form_) {
        take(form_->apply(*ops_, rows, run), begin);
      } else {
        take(rows, begin);
      }
    }
    if (run.progress) run.progress->report(stage, begin + rows.rows, base_.rows);
  }
}

KMeans FormedRows::fit_kmeans(KMeansParams params, const RunOptions& run) const {
  if (!form_) return gigaknn::fit_kmeans(base_, params, run);
  const Matrix sample = gather(std::span<const std::int64_t>(kmeans_sample(base_.rows, params)), run);
  params.left_out = {};
  RunOptions rest = run;
  if (run.memory_bytes > 0) rest.memory_bytes -= form_->shape(base_.cols).bytes(sample.rows());
  return gigaknn::fit_kmeans(sample, params, rest);
}

}  // namespace gigaknn
