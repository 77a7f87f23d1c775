#include "learn/orthonormal.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "core/threads.hpp"

namespace gigaknn {
namespace {

constexpr int most_sweeps = 30;
constexpr double right_angle = 1e-10;  // cosine of what counts as one; what is left orthonormalize takes away
constexpr std::int64_t elements_at_once = 1 << 16;  // fewer are sooner turned than handed out

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Four sums: a processor adds faster than one sum can wait for itself.
double product_of(const double* x, const double* y, std::int64_t d) {
  double sums[4] = {};
  std::int64_t j = 0;
  for (; j + 4 <= d; j += 4) {
    for (int lane = 0; lane < 4; ++lane) sums[lane] += x[j + lane] * y[j + lane];
  }
  for (; j < d; ++j) sums[0] += x[j] * y[j];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void rotate(double* x, double* y, std::int64_t d, double cosine, double sine) {
  for (std::int64_t j = 0; j < d; ++j) {
    const double before = x[j];
    x[j] = cosine * before - sine * y[j];
    y[j] = sine * before + cosine * y[j];
  }
}

// Turns two rows until they are at right angles; false where they are already.
bool turn(double* x, double* y, std::int64_t d, double* turns_x, double* turns_y, std::int64_t count) {
  const double xx = product_of(x, x, d), yy = product_of(y, y, d), xy = product_of(x, y, d);
  if (!(std::abs(xy) > right_angle * std::sqrt(xx) * std::sqrt(yy))) return false;
  const double slope = (yy - xx) / (2 * xy);
  const double tangent = (slope >= 0 ? 1 : -1) / (std::abs(slope) + std::sqrt(1 + slope * slope));
  const double cosine = 1 / std::sqrt(1 + tangent * tangent);
  rotate(x, y, d, cosine, cosine * tangent);
  rotate(turns_x, turns_y, count, cosine, cosine * tangent);
  return true;
}

// In each round of a tournament everyone plays once, so that pairs may be turned side by side; true where one was.
bool sweep(std::vector<double>& rows, std::vector<double>& turns, std::int64_t count, std::int64_t d, const RunOptions& run) {
  const std::int64_t players = count + count % 2, grain = std::max<std::int64_t>(1, elements_at_once / (d + count));
  std::vector<std::int64_t> seats(at(players));
  std::iota(seats.begin(), seats.end(), 0);
  std::vector<char> moved(at(players / 2));
  for (std::int64_t round = 0; round + 1 < players; ++round) {
    parallel_for(run, players / 2, grain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto [a, b] = std::minmax(seats[at(i)], seats[at(players - 1 - i)]);
        if (b == count) continue;  // plays against nobody
        const bool did = turn(rows.data() + a * d, rows.data() + b * d, d, turns.data() + a * count, turns.data() + b * count, count);
        moved[at(i)] = static_cast<char>(moved[at(i)] || did);
      }
    });
    std::rotate(seats.begin() + 1, seats.end() - 1, seats.end());
  }
  return std::any_of(moved.begin(), moved.end(), [](char did) { return did != 0; });
}

// The product of `turns` [count, count] with `in` [count, d]; `back`: of its transpose, which undoes it.
std::vector<double> turned(const std::vector<double>& turns, const std::vector<double>& in, std::int64_t count, std::int64_t d, bool back,
                                const RunOptions& run) {
  std::vector<double> out(at(count * d));
  parallel_for(run, count, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t k = 0; k < count; ++k) {
        const double weight = back ? turns[at(k * count + i)] : turns[at(i * count + k)];
        for (std::int64_t j = 0; j < d; ++j) out[at(i * d + j)] += weight * in[at(k * d + j)];
      }
    }
  });
  check_cancelled(run);
  return out;
}

}  // namespace

void orthonormalize(std::vector<double>& vectors, std::int64_t count, std::int64_t d) {
  for (std::int64_t i = 0; i < count; ++i) {
    double* const v = vectors.data() + i * d;
    const auto length = [&] {
      double sum = 0;
      for (std::int64_t j = 0; j < d; ++j) sum += v[j] * v[j];
      return std::sqrt(sum);
    };
    const double before = length();
    // Twice, since once leaves what rounding makes of long ones.
    for (int again = 0; again < 2; ++again) {
      for (std::int64_t k = 0; k < i; ++k) {
        const double* const u = vectors.data() + k * d;
        double product = 0;
        for (std::int64_t j = 0; j < d; ++j) product += u[j] * v[j];
        for (std::int64_t j = 0; j < d; ++j) v[j] -= product * u[j];
      }
    }
    const double left = length();
    const double factor = left > 1e-9 * before && left > 0 ? 1 / left : 0;
    for (std::int64_t j = 0; j < d; ++j) v[j] *= factor;
  }
}

// Each vector, when it is done, is taken away from all after it (modified Gram-Schmidt), which for one of these is the order of the others
// whatever the number of threads.
void nearly_orthonormalize(std::vector<double>& vectors, std::int64_t count, std::int64_t d, const RunOptions& run) {
  std::vector<double> before(at(count));
  for (std::int64_t i = 0; i < count; ++i) before[at(i)] = std::sqrt(product_of(vectors.data() + i * d, vectors.data() + i * d, d));
  const std::int64_t grain = std::max<std::int64_t>(1, elements_at_once / d);
  for (std::int64_t i = 0; i < count; ++i) {
    double* const u = vectors.data() + i * d;
    const double left = std::sqrt(product_of(u, u, d));
    const double factor = left > 1e-9 * before[at(i)] && left > 0 ? 1 / left : 0;
    for (std::int64_t j = 0; j < d; ++j) u[j] *= factor;
    parallel_for(run, count - i - 1, grain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t k = i + 1 + begin; k < i + 1 + end; ++k) {
        double* const v = vectors.data() + k * d;
        const double product = product_of(u, v, d);
        for (std::int64_t j = 0; j < d; ++j) v[j] -= product * u[j];
      }
    });
  }
}

void complete_orthonormal(std::vector<double>& vectors, std::int64_t count, std::int64_t d) {
  for (std::int64_t i = 0; i < count; ++i) {
    double* const row = vectors.data() + i * d;
    if (std::any_of(row, row + d, [](double x) { return x != 0; })) continue;
    // The axis that the others say least of.
    std::vector<double> said(at(d));
    for (std::int64_t k = 0; k < count; ++k) {
      for (std::int64_t j = 0; j < d; ++j) said[at(j)] += vectors[at(k * d + j)] * vectors[at(k * d + j)];
    }
    row[std::min_element(said.begin(), said.end()) - said.begin()] = 1;
    for (int again = 0; again < 2; ++again) {
      for (std::int64_t k = 0; k < count; ++k) {
        if (k == i) continue;
        const double product = product_of(row, vectors.data() + k * d, d);
        for (std::int64_t j = 0; j < d; ++j) row[j] -= product * vectors[at(k * d + j)];
      }
    }
    const double length = std::sqrt(product_of(row, row, d));
    for (std::int64_t j = 0; j < d; ++j) row[j] /= length;
  }
}

std::vector<double> nearest_orthonormal(std::vector<double> wanted, std::int64_t count, std::int64_t d, std::vector<double>& turns,
                                        const RunOptions& run) {
  if (turns.empty()) {
    turns.resize(at(count * count));
    for (std::int64_t i = 0; i < count; ++i) turns[at(i * count + i)] = 1;
  } else {
    wanted = turned(turns, wanted, count, d, false, run);
  }
  for (int round = 0; round < most_sweeps && sweep(wanted, turns, count, d, run); ++round) check_cancelled(run);
  // Rows are the right singular vectors times their values: those of large values first, of which rounding has left most.
  std::vector<double> squares(at(count));
  for (std::int64_t i = 0; i < count; ++i) squares[at(i)] = product_of(wanted.data() + i * d, wanted.data() + i * d, d);
  std::vector<std::int64_t> order(at(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return squares[at(a)] > squares[at(b)]; });
  const double least = 1e-26 * squares[at(order.front())];  // below it a row is rounding alone
  std::vector<double> directions(at(count * d)), sorted_turns(at(count * count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = order[at(i)];
    if (squares[at(from)] > least) std::copy_n(wanted.data() + from * d, d, directions.data() + i * d);
    std::copy_n(turns.data() + from * count, count, sorted_turns.data() + i * count);
  }
  orthonormalize(directions, count, d);
  complete_orthonormal(directions, count, d);
  return turned(sorted_turns, directions, count, d, true, run);
}

}  // namespace gigaknn
