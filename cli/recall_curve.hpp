// What commands say of the curve of recall that an index keeps.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gigaknn/tune.hpp>

#include "json.hpp"
#include "session.hpp"

namespace gigaknn::cli {

/// "0.9513 [0.9467, 0.9556] with nprobe 12, refine 3: 53,210 queries a second"
std::string text_of(const OperatingPoint& point);

/// What it was measured with: "recall@10 of 2,000 held-out rows among 60,000, 2 threads".
std::string text_of(const RecallCurve& curve);

/// A line for each of some recalls that it reaches, and one for its best.
std::vector<std::string> lines_of(const RecallCurve& curve);

Json json_of(const RecallCurve& curve);

/// How the curve of an index is measured: with true queries, where there are some, or with rows of its own.
struct CurveOptions {
  std::filesystem::path queries;
  std::filesystem::path truth;   ///< their true neighbours; needed of an index without full vectors alone
  std::int64_t k = 10;
  std::int64_t held_out = 0;     ///< where there are no queries: as many rows as the index was made without
};

/// Measures the curve of the index at `path` and writes it there; says it, and puts it into the record. With `recall`: returns
/// `exit_recall`, and says so, where it is not reached.
int measure_and_store(const std::filesystem::path& path, const CurveOptions& options, std::optional<double> recall, Session& session);

/// The parameters of a recall, of the curve at `path`. None, and a line that names the best, where it is not reached. Throws Error:
/// invalid_argument where there is no curve, or one of fewer neighbours than k.
std::optional<OperatingPoint> point_for(const std::filesystem::path& path, double recall, std::int64_t k, std::int64_t rows,
                                        Session& session);

/// Throws Error: invalid_argument unless it is above 0 and at most 1.
void check_recall(std::optional<double> recall);

}  // namespace gigaknn::cli
