// A recall instead of parameters: what an index finds, measured at many settings, and which index to build for a recall.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/index.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>
#include <gigaknn/recall.hpp>

namespace gigaknn {

/// What searches with these parameters find, and what they take.
struct OperatingPoint {
  std::int64_t nprobe = 1;  ///< as in SearchParams
  std::int64_t refine = 1;
  Recall recall;            ///< of RecallCurve::k, with the interval for further queries like those that were asked
  double seconds = 0;       ///< a query, of many that are asked together
};

/// Points of an index, each of more recall and more time than the one before; those that another beats in both are left out.
struct RecallCurve {
  std::int64_t k = 10;        ///< neighbours that were asked for
  std::int64_t queries = 0;   ///< that it was measured with
  bool held_out = false;      ///< they were rows of the index, left out of it while it was measured
  std::int64_t rows = 0;      ///< of the index then
  int threads = 0;
  std::vector<OperatingPoint> points;
  double slowest = 0;           ///< seconds a query of the slowest that was measured; not kept in files

  /// The quickest way to a recall: a point, or one between two of the same `refine`, whose nprobe, recall and time are between theirs.
  /// Recall grows slower and slower with nprobe, so what is found is rather more than a straight line says. None beyond the last point.
  /// `of`, from 1 to k: for so many neighbours as many candidates are compared by full vectors as the curve had, `refine` of each of k; the
  /// recall is then that of k still, of fewer mostly more.
  std::optional<OperatingPoint> point_for(double recall, std::int64_t of) const;
  std::optional<OperatingPoint> point_for(double recall) const { return point_for(recall, k); }
};

struct CurveParams {
  std::int64_t k = 10;
  double until = 0.999;         ///< recall beyond which nobody looks
  double seconds = 60;          ///< after so long, the exact search aside, it ends where it is
  std::int64_t sample = 5000;   ///< of more queries so many are drawn
  std::uint64_t seed = 0;       ///< by this
  double slowest = 0;           ///< and where a query takes longer than so many seconds; 0: it does not
  double asked = 0;             ///< of the least that reaches this recall, which mostly is between two points, a point is measured, too
};

/// Searches with more lists and more candidates, whichever gives more recall for its time, until `until`. Nothing but `points` depends on
/// how quick the machine is. Where `truth` [q, k or more] is not given, the index is searched exactly. Throws Error: as Index::search,
/// unsupported (no truth, and an index without full vectors).
RecallCurve measure_curve(const Index& index, MatrixRef queries, const CurveParams& params = {}, const RunOptions& run = {},
                          const Neighbors* truth = nullptr);

/// How many of n rows to hold out (IndexParams::held_out) for the curve below: a tenth, at least 1 and at most so many.
inline constexpr std::int64_t most_held_out = 2000;
constexpr std::int64_t rows_to_hold_out(std::int64_t n) { return std::clamp<std::int64_t>(n / 10, 1, most_held_out); }

/// As above, with the rows that were held out when the index was made (IndexParams::held_out) as queries. While one asks, it is left
/// out, and few others are: of so many rows less, as many candidates would be a larger share. Throws Error: unsupported where there are none, or no full vectors.
RecallCurve measure_curve_by_own_rows(const Index& index, const CurveParams& params = {}, const RunOptions& run = {});

/// What the index at `path` keeps. Throws as open_index.
std::optional<RecallCurve> stored_curve(const std::filesystem::path& path);
/// Writes the index at `path` anew, with `curve` in place of what it kept; the old file is mapped meanwhile (OpenParams::map).
/// Throws Error: invalid_argument (points that do not ascend in recall and seconds), corrupt_file, io; then the file is as it was.
void store_curve(const std::filesystem::path& path, const RecallCurve& curve, const RunOptions& run = {});

struct ChoiceParams {
  double recall = 0.95;
  std::int64_t k = 10;
  bool memory_first = false;          ///< the least memory of searches that reach the recall; otherwise the most queries a second within `run.memory_bytes`
  std::int64_t sample = 100'000;      ///< rows that are tried, besides 1,000 that are the queries
  IndexParams index = {};             ///< but for its recipe and ids
};

/// An index that was tried.
struct Trial {
  std::string recipe;                          ///< of the sample
  bool fits = true;                            ///< into the budget; otherwise it was not tried
  bool slow = false;                           ///< given up: on the way to the recall it took more than twice as long as another that reached it
  std::optional<OperatingPoint> point;         ///< none: it does not reach the recall
  std::size_t search_bytes = 0;                ///< what searches of one of the whole base allocate at most
  std::size_t build_bytes = 0;                 ///< what building it does
  std::size_t bytes() const { return build_bytes > search_bytes ? build_bytes : search_bytes; }
};
struct IndexChoice {
  std::string recipe;                          ///< of the base: what build_index takes
  std::vector<Trial> trials;
};

/// Makes indexes of a sample of `base` [n, d] and takes the best. Depends on how quick the machine is. Throws Error: invalid_argument,
/// invalid_data, out_of_memory (no index fits `run.memory_bytes`), unsupported (none that was tried reaches the recall in the time it is
/// given).
IndexChoice choose_index(MatrixRef base, const ChoiceParams& params = {}, const RunOptions& run = {});

}  // namespace gigaknn
