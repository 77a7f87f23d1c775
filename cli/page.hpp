// What graph, search and report show at their end: the HTML report, the summary on the terminal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gigaknn/graph.hpp>
#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>

#include "inputs.hpp"
#include "json.hpp"
#include "session.hpp"

namespace gigaknn::cli {

/// What a report may show; absent parts are null or empty.
struct Page {
  std::string base_name;
  MatrixRef base;
  std::string queries_name;
  MatrixRef queries;
  const KnnGraph* graph = nullptr;
  const Neighbors* results = nullptr;  ///< of the queries
  std::vector<Path> paths;
  ImageSize image;
  std::vector<Json> records;  ///< what commands said of themselves, the main one first
};

/// What --json of a command wrote. Throws Error: io, or corrupt_file unless a page can show it.
Json read_record(const std::filesystem::path& path);

/// Throws Error: invalid_argument unless what records say of rows, and the first of the graph or of the results, is so.
void check_records(const Page& page, const std::vector<std::filesystem::path>& paths);

/// Writes the page; `seed` chooses the rows that are shown.
void write_page(const Page& page, std::uint64_t seed, const std::filesystem::path& output);

/// The record of this session as JSON, its total time so far filled in.
Json finished_record(Session& session);

/// Says what a verification showed; throws Error: device where entries differ.
void report_verification(Session& session);

/// Puts what a graph is into the record; says how it was found and the recall that was measured, unless it is exact. Returns the exit
/// code: `exit_recall`, with a note, where `recall` was asked and missed.
int report_graph(const KnnGraph& graph, double recall, Session& session);

/// "wrote OUT (10.3 MiB) in 3.1 s: load 0.1 s, prepare 0.4 s, compute 2.5 s; peak memory 512 MiB"
void say_summary(Session& session, const std::filesystem::path& output);

}  // namespace gigaknn::cli
