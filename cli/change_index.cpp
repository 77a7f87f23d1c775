// gigaknn add, remove, merge: OLD.gknn + rows, without ids, or with another -> OUT.gknn (or in place of an old one)
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "inputs.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "results.hpp"
#include "session.hpp"

namespace gigaknn::cli {
namespace {

struct ChangeOptions {
  CommonOptions common;
  std::filesystem::path index;
  std::vector<std::filesystem::path> indexes;  // of merge
  std::filesystem::path rows;
  std::filesystem::path ids;
  bool replace = false;
  std::filesystem::path output;

  const std::filesystem::path& target() const { return output.empty() ? index : output; }
};

void check_target(const ChangeOptions& options) {
  require(options.target().extension() == ".gknn", Fault::invalid_argument, "an index is written to a .gknn file, not to ",
          options.target().string());
  // An old index may be replaced by the new one.
  check_apart({options.index}, {options.common.json});
  for (const std::filesystem::path& index : options.indexes) check_apart({index}, {options.common.json});
  check_apart({options.rows, options.ids}, {options.target(), options.common.json});
  check_output(options.target(), 0);
  check_output(options.common.json, 0);
}

// What the index became.
int finish(const ChangeOptions& options, Session& session) {
  RunRecord& record = session.record;
  const auto index = open_index(options.target(), {.map = true});
  record.n = index->rows();
  record.d = index->cols();
  record.dtype = name_of(index->dtype());
  record.metric = name_of(index->metric());
  record.method = index->kind();
  session.say("  now      " + format_count(record.n) + " rows; the next id is " + std::to_string(index->next_id()));
  write_record(record, options.common.json);
  say_summary(session, options.target());
  return 0;
}

int run_add(const ChangeOptions& options, const std::string& command_line) {
  check_target(options);
  require(!options.replace || !options.ids.empty(), Fault::invalid_argument, "--replace needs --ids");
  Session session(options.common, command_line);
  RunRecord& record = session.record;
  const Vectors rows = session.timed("load", record.seconds.load, [&] { return open_vectors(options.rows, "train", session); });
  LargeVector<RowId> ids;
  if (!options.ids.empty()) ids = read_ids(options.ids);
  session.hold(rows.held_bytes + ids.size() * sizeof(RowId));
  const auto old = open_index(options.index, {.map = true});
  check_rows_for(*old, options.index, rows, session);
  // Codes without full vectors take less.
  const std::size_t row_bytes = sizeof(RowId) + (old->keeps_rows() ? static_cast<std::size_t>(old->cols()) * size_of(old->dtype()) : 0);
  check_output(options.target(), std::filesystem::file_size(options.index) + static_cast<std::size_t>(rows.matrix().rows) * row_bytes);
  session.timed("add", record.seconds.compute, [&] {
    add_to_index(options.index, rows.matrix(), ids, options.replace, options.target(), options.common.device, session.run());
  });
  return finish(options, session);
}

int run_remove(const ChangeOptions& options, const std::string& command_line) {
  check_target(options);
  Session session(options.common, command_line);
  const LargeVector<RowId> ids = read_ids(options.ids);
  session.timed("remove", session.record.seconds.compute, [&] {
    remove_from_index(options.index, ids, options.target(), session.run());
  });
  return finish(options, session);
}

int run_merge(const ChangeOptions& options, const std::string& command_line) {
  check_target(options);
  Session session(options.common, command_line);
  session.timed("merge", session.record.seconds.compute, [&] { merge_indexes(options.indexes, options.output, session.run()); });
  return finish(options, session);
}

using Run = int (*)(const ChangeOptions&, const std::string&);

void finish_command(Command command, const std::shared_ptr<ChangeOptions>& options, Run run, Request& request,
                    const std::string& examples) {
  add_run_options(command, options->common);
  command.add_examples(examples);
  command.callback([options, run, &request] { request.run = [options, run, &request] { return run(*options, request.command_line); }; });
}

constexpr const char* ids_help = "ids: .npy (i64), .ibin or .ivecs";

}  // namespace

void add_change_index_commands(Command app, Request& request) {
  const auto adding = std::make_shared<ChangeOptions>();
  const Command add = app.add_command("add", "add vectors to an index");
  add.add_option("INDEX", adding->index, "an index, .gknn").required();
  add.add_option("ROWS", adding->rows, "vectors of its type and dimension").required();
  add.add_option("--ids", adding->ids, join_text("what they are called, ", ids_help, " (default: from the next id on)"));
  add.add_flag("--replace", adding->replace, "rows that are called so already are replaced");
  add.add_option("-o,--output", adding->output, "the index that is written (default: in place of INDEX)");
  add_device_option(add, adding->common);
  finish_command(add, adding, run_add, request,
                 "  gigaknn add base.gknn new.fbin\n"
                 "  gigaknn add base.gknn changed.fbin --ids ids.npy --replace -o other.gknn");

  const auto removing = std::make_shared<ChangeOptions>();
  const Command remove = app.add_command("remove", "remove vectors from an index");
  remove.add_option("INDEX", removing->index, "an index, .gknn").required();
  remove.add_option("--ids", removing->ids, ids_help).required();
  remove.add_option("-o,--output", removing->output, "the index that is written (default: in place of INDEX)");
  finish_command(remove, removing, run_remove, request, "  gigaknn remove base.gknn --ids gone.npy");

  const auto merging = std::make_shared<ChangeOptions>();
  const Command merge = app.add_command("merge", "make one index of several with the same lists");
  merge.add_option("INDEXES", merging->indexes, "indexes, .gknn, that were one before rows were added and removed").required();
  merge.add_option("-o,--output", merging->output, "the index that is written").required();
  finish_command(merge, merging, run_merge, request, "  gigaknn merge a.gknn b.gknn -o both.gknn");
}

}  // namespace gigaknn::cli
