// Graphs built from files: the same bytes as in memory, whatever the shards and the budget, and whatever happens on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gigaknn/dataset.hpp>
#include <gigaknn/device.hpp>
#include <gigaknn/plan.hpp>

#include "core/random.hpp"
#include "graph/graph_checks.hpp"
#include "graph/probes.hpp"
#include "graph/shard_plan.hpp"
#include "io/file_lock.hpp"
#include "io/matrix_writer.hpp"
#include "io/test_files.hpp"
#include "plan/task_record.hpp"

namespace gigaknn {
namespace {

namespace fs = std::filesystem;

#if defined(GIGAKNN_SANITIZED)
constexpr std::int64_t rows_of_base = 700;
#else
constexpr std::int64_t rows_of_base = 2500;
#endif

const char* suffix_of(DType dtype) {
  return dtype == DType::f32 ? ".fbin" : dtype == DType::f16 ? ".hbin" : dtype == DType::bf16 ? ".bf16bin" : dtype == DType::u8 ? ".u8bin" : ".i8bin";
}

class PlanTest : public FileTest {
 protected:
  // Parameters of a graph of rows that are in a file now.
  PlanParams stored(const test::Base& base, Metric metric = Metric::l2, const std::string& name = "base") {
    PlanParams params;
    const MatrixRef rows = base.rows.ref();
    params.base = file(name + suffix_of(rows.dtype));
    write_matrix(rows, params.base);
    params.output = file(name + ".knng");
    params.graph.k = 7;
    params.graph.metric = metric;
    params.graph.method = "ivf";
    params.graph.recall = 0.9;
    params.shard_rows = 230;
    params.threads = 2;
    return params;
  }
  PlanParams stored() { return stored(test::Base(test::Kind::clustered, rows_of_base, 12)); }

  std::string in_memory(const PlanParams& params) {
    const Dataset base = Dataset::open(params.base);
    const KnnGraph graph = build_graph(base, params.graph);
    recall_ = graph.recall;
    save_graph(graph, file("memory.knng"));
    return bytes_of(file("memory.knng"));
  }
  static PlanOutcome run(const PlanParams& params) { return run_plan(write_plan(make_plan(params))); }

  // Runs the first tasks of a plan.
  static GraphPlan begun(const PlanParams& params, std::int64_t tasks) {
    const GraphPlan plan = write_plan(make_plan(params));
    for (std::int64_t task = 0; task < tasks; ++task) run_task(plan, task);
    return plan;
  }

  Recall recall_;
};

TEST_F(PlanTest, gives_the_bytes_of_a_graph_built_in_memory) {
  const struct {
    Metric metric;
    DType dtype;
    test::Kind kind;
  } cases[] = {{Metric::l2, DType::u8, test::Kind::clustered},     {Metric::l2, DType::f32, test::Kind::low_rank},
               {Metric::cosine, DType::f32, test::Kind::clustered}, {Metric::inner_product, DType::f16, test::Kind::gaussian},
               {Metric::l1, DType::i8, test::Kind::clustered},      {Metric::hamming, DType::u8, test::Kind::clustered},
               {Metric::chi2, DType::f32, test::Kind::clustered},   {Metric::l2, DType::u8, test::Kind::duplicates},
               {Metric::cosine, DType::f32, test::Kind::all_equal},  {Metric::l2, DType::bf16, test::Kind::clustered}};
  for (const auto& one : cases) {
    const test::Base base(one.kind, rows_of_base, 12, one.dtype, one.metric);
    if (one.metric == Metric::cosine) {  // rows that are far from everything
      for (std::int64_t row = 3; row < rows_of_base; row += 20) std::fill_n(const_cast<float*>(base.rows.ref().row<float>(row)), 12, 0.0f);
    }
    const PlanParams params = stored(base, one.metric);
    const PlanOutcome outcome = run(params);
    EXPECT_TRUE(bytes_of(params.output) == in_memory(params)) << name_of(one.metric) << ' ' << name_of(one.dtype);
    EXPECT_EQ(outcome.recall.value, recall_.value);
    EXPECT_EQ(outcome.recall.low, recall_.low);
    EXPECT_EQ(outcome.recall.sampled, recall_.sampled);
    EXPECT_EQ(outcome.resumed, 0);
    EXPECT_FALSE(fs::exists(params.output.string() + ".work"));
  }
}

TEST_F(PlanTest, does_so_for_all_shards_blocks_and_chunks) {
  PlanParams params = stored(test::Base(test::Kind::clustered, 700, 12));
  const std::string expected = in_memory(params);
  for (const std::int64_t shard_rows : {std::int64_t{97}, std::int64_t{350}, std::int64_t{699}, std::int64_t{700}, std::int64_t{1} << 40}) {
    params.shard_rows = shard_rows;
    run(params);
    EXPECT_TRUE(bytes_of(params.output) == expected) << shard_rows;
  }
  // Blocks that take several passes, each over many chunks; some blocks are of no cell.
  for (const std::int64_t rows : {1, 40, 333}) {
    params.shard_rows = 300;
    GraphPlan plan = make_plan(params);
    plan.shards.chunk_rows = rows;
    plan.shards.block_rows = 2 * rows;
    plan.shards.truth_rows = rows + 20;
    plan.shards.blocks = rows == 1 ? 100 : 3;
    run_plan(write_plan(plan));
    EXPECT_TRUE(bytes_of(params.output) == expected) << rows;
  }
}

// By way of candidates as bytes, as in memory.
#if defined(GIGAKNN_TINY_TILES)
constexpr std::int64_t rows_with_candidates = 900;
constexpr double recall_of_candidates = 0.7;
constexpr std::int64_t dims_with_candidates = 6;
#else
constexpr std::int64_t rows_with_candidates = 24'000;
constexpr double recall_of_candidates = 0.9;
constexpr std::int64_t dims_with_candidates = 16;
#endif

TEST_F(PlanTest, gives_the_bytes_of_a_graph_by_candidates) {
#if defined(GIGAKNN_SANITIZED) && !defined(GIGAKNN_TINY_TILES)
  GTEST_SKIP() << "takes minutes with a sanitizer; tiny tiles have candidates among few rows";
#endif
  const struct {
    Metric metric;
    DType dtype;
    test::Kind kind;
  } cases[] = {{Metric::l2, DType::f32, test::Kind::gaussian},     {Metric::cosine, DType::f16, test::Kind::gaussian},
               {Metric::cosine, DType::u8, test::Kind::gaussian}, {Metric::l1, DType::bf16, test::Kind::gaussian},
               {Metric::chi2, DType::f32, test::Kind::gaussian}};
  for (const auto& one : cases) {
    const test::Base base(one.kind, rows_with_candidates, dims_with_candidates, one.dtype, one.metric);
    if (one.dtype == DType::u8) {  // far from everything, by cosine
      for (std::int64_t row = 3; row < rows_with_candidates; row += 50) {
        std::fill_n(const_cast<std::uint8_t*>(base.rows.ref().row<std::uint8_t>(row)), dims_with_candidates, std::uint8_t{0});
      }
    }
    PlanParams params = stored(base, one.metric);
    params.graph.method = "auto";
    params.graph.recall = recall_of_candidates;
    params.shard_rows = rows_with_candidates / 3 + 1;
    const std::string expected = in_memory(params);
    const PlanOutcome outcome = run(params);
    EXPECT_NE(outcome.method.find("candidates as bytes"), std::string::npos) << outcome.method;
    EXPECT_TRUE(bytes_of(params.output) == expected) << name_of(one.metric) << ' ' << name_of(one.dtype);
    EXPECT_EQ(outcome.recall.value, recall_.value);
    // Several chunks, passes and gatherings of each block.
    for (const std::int64_t parts : {3, 40}) {
      GraphPlan plan = make_plan(params);
      ASSERT_GT(plan.shards.candidates, params.graph.k);
      plan.shards.byte_chunk_rows = plan.n / parts;
      plan.shards.byte_block_rows = plan.n / 5;
      plan.shards.gathered_rows = plan.n / parts;
      run_plan(write_plan(plan));
      EXPECT_TRUE(bytes_of(params.output) == expected) << name_of(one.metric) << ' ' << parts;
    }
#if defined(GIGAKNN_TINY_TILES)  // among fewer rows
    if (one.dtype != DType::f16) continue;
    params.graph.device = "emulated:2";
    run(params);
    EXPECT_TRUE(bytes_of(params.output) == expected) << params.graph.device;
#endif
  }
}

// The same graph whatever is in memory at once; candidates in fewer dimensions.
TEST_F(PlanTest, finds_candidates_in_fewer_dimensions) {
#if defined(GIGAKNN_SANITIZED) && !defined(GIGAKNN_TINY_TILES)
  GTEST_SKIP() << "takes minutes with a sanitizer; tiny tiles reduce fewer dimensions";
#endif
#if defined(GIGAKNN_TINY_TILES)
  constexpr std::int64_t d = 40;
#else
  constexpr std::int64_t d = 256;
#endif
  for (const DType dtype : {DType::f32, DType::u8}) {
    const test::Base base(test::Kind::low_rank, rows_with_candidates / 3, d, dtype);
    PlanParams params = stored(base);
    params.graph.method = "auto";
    params.graph.recall = recall_of_candidates;
    params.shard_rows = rows_with_candidates / 7;
    const PlanOutcome outcome = run(params);
    EXPECT_NE(outcome.method.find(" dimensions"), std::string::npos) << outcome.method;
    EXPECT_GE(outcome.recall.value, recall_of_candidates);
    const std::string expected = bytes_of(params.output);
    const KnnGraph graph = load_graph(params.output);
    GraphParams all = params.graph;
    all.method = "exact";
    all.recall = 1;
    const KnnGraph exact = build_graph(base.rows.ref(), all);
    std::int64_t found = 0;  // entries as near as the last true one
    for (std::size_t entry = 0; entry < graph.lists.ids.size(); ++entry) {
      const std::size_t last = (entry / static_cast<std::size_t>(graph.lists.k) + 1) * static_cast<std::size_t>(graph.lists.k) - 1;
      found += graph.lists.distances[entry] <= exact.lists.distances[last];
    }
    EXPECT_NEAR(static_cast<double>(found) / static_cast<double>(graph.lists.ids.size()), outcome.recall.value, 0.05);
    GraphPlan plan = make_plan(params);
    plan.shards.byte_chunk_rows = plan.n / 4;
    plan.shards.byte_block_rows = plan.n / 5;
    plan.shards.gathered_rows = 64;
    run_plan(write_plan(plan));
    EXPECT_TRUE(bytes_of(params.output) == expected) << name_of(dtype);
  }
}

// Rows that bytes do not tell apart are found by their vectors.
TEST_F(PlanTest, finds_rows_that_bytes_do_not_tell_apart) {
#if defined(GIGAKNN_SANITIZED) || defined(GIGAKNN_TINY_TILES)
  GTEST_SKIP() << "cells of bytes do not tell such rows apart either: they need more of them than tiny tiles have; minutes with a sanitizer";
#endif
  const test::Base base(test::Kind::gaussian, rows_with_candidates, dims_with_candidates, DType::f32);
  // One element outweighs the others, but for a few rows alone, which the step is fitted to.
  for (std::int64_t row = 0; row < base.rows.ref().rows; row += 100) const_cast<float*>(base.rows.ref().row<float>(row))[0] *= 1e4f;
  PlanParams params = stored(base);
  params.graph.method = "auto";
  params.graph.recall = recall_of_candidates;
  params.shard_rows = rows_with_candidates / 3 + 1;
  const PlanOutcome outcome = run(params);
  EXPECT_GE(outcome.recall.value, recall_of_candidates);
  EXPECT_EQ(outcome.method.find("candidates"), std::string::npos) << outcome.method;
}

TEST_F(PlanTest, a_folder_goes_on_by_the_method_it_was_begun_with) {
  for (const DType dtype : {DType::f32, DType::u8}) {
    PlanParams params = stored(test::Base(test::Kind::gaussian, rows_of_base, 16, dtype));
    params.graph.recall = recall_of_candidates;
    write_plan(make_plan(params));
    params.graph.method = "auto";
    if (dtype == DType::f32) {
      expect_error(Fault::invalid_argument, [&] { write_plan(make_plan(params)); }, "base.knng.work", "was begun with method ivf, not auto",
                   "remove the folder");
    } else {  // the same graph
      run(params);
      EXPECT_TRUE(fs::exists(params.output));
    }
    fs::remove_all(file("base.knng.work"));
  }
}

// Bands are as wide as in memory also where rows are few, and lists so long that these are narrower.
TEST_F(PlanTest, has_the_bands_of_a_build_in_memory_for_long_lists) {
  PlanParams params = stored();
  params.graph.k = 100;
  run(params);
  EXPECT_TRUE(bytes_of(params.output) == in_memory(params));
}

// So many rows that they have several bands, and so many cells that rows look for theirs near their own.
TEST_F(PlanTest, does_so_for_many_rows) {
#if defined(GIGAKNN_SANITIZED) || defined(GIGAKNN_TINY_TILES)
  GTEST_SKIP() << "takes minutes with a sanitizer; tiny tiles make few rows many";
#endif
  constexpr std::int64_t n = 420'000, d = 8;
  Matrix rows(n, d, DType::u8);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t cluster = random_below(300, 1, 0, static_cast<std::uint64_t>(i));
    const std::uint64_t noise = random_bits(1, 1, static_cast<std::uint64_t>(i));
    for (std::int64_t j = 0; j < d; ++j) {
      rows.row<std::uint8_t>(i)[j] =
          static_cast<std::uint8_t>(random_below(200, 1, 2, cluster * d + static_cast<std::uint64_t>(j)) + (noise >> (8 * j)) % 50);
    }
  }
  PlanParams params;
  params.base = file("many.u8bin");
  write_matrix(rows, params.base);
  params.output = file("many.knng");
  params.graph.k = 5;
  params.graph.method = "ivf";
  params.graph.recall = 0.9;
  params.shard_rows = 150'000;
  params.threads = 2;
  ASSERT_GT(n, one_band_rows);
  ASSERT_GT(n / rows_a_cell, most_cells_compared);
  const PlanOutcome outcome = run(params);
  EXPECT_GE(outcome.recall.value, 0.9);
  EXPECT_TRUE(bytes_of(params.output) == in_memory(params));
}

TEST_F(PlanTest, works_on_emulated_devices_too) {
  PlanParams params = stored(test::Base(test::Kind::clustered, 600, 12));
  const std::string expected = in_memory(params);
  params.shard_rows = 200;
  for (const char* device : {"emulated", "emulated:4"}) {
    params.graph.device = device;
    run(params);
    EXPECT_TRUE(bytes_of(params.output) == expected) << device;
  }
}

TEST_F(PlanTest, is_no_other_graph_of_more_threads_where_memory_is_short) {
  const test::Base base(test::Kind::clustered, rows_of_base, 12);
  PlanParams params = stored(base);
  params.shard_rows = 0;
  params.memory_bytes = std::size_t{200} << 20;
  std::string expected;
  for (const int threads : {1, 2, 9}) {
    params.threads = threads;
#ifndef GIGAKNN_TINY_TILES  // with which a thread needs hardly any
    EXPECT_LT(make_plan(params).shards.threads, 9);
#endif
    EXPECT_EQ(make_plan(params).threads(), std::min<std::int64_t>(threads, make_plan(params).shards.threads));
    run(params);
    if (expected.empty()) expected = bytes_of(params.output);
    EXPECT_TRUE(bytes_of(params.output) == expected) << threads;
  }
}

TEST_F(PlanTest, names_data_that_look_wrong) {
  const PlanOutcome usual = run(stored(test::Base(test::Kind::low_rank, rows_of_base, 12)));
  EXPECT_TRUE(usual.doubts.empty());
  const PlanParams params = stored(test::Base(test::Kind::all_equal, rows_of_base, 12), Metric::l2, "equal");
  const PlanOutcome equal = run(params);
  ASSERT_FALSE(equal.doubts.empty());
  EXPECT_NE(equal.doubts.front().find("copies: all 7 neighbours of 100 %"), std::string::npos) << equal.doubts.front();
}

TEST_F(PlanTest, goes_on_with_what_is_done) {
  PlanParams params = stored();
  const std::string expected = in_memory(params);
  const std::int64_t tasks = make_plan(params).shards.tasks();
  for (std::int64_t done = 0; done <= tasks; done += 3) {
    begun(params, done);
    const PlanOutcome outcome = run(params);
    EXPECT_EQ(outcome.resumed, done);
    EXPECT_EQ(outcome.tasks, tasks);
    EXPECT_GT(outcome.wait_seconds, 0);
    EXPECT_LT(outcome.wait_seconds, outcome.task_seconds);
    EXPECT_EQ(outcome.recall.value, recall_.value);
    EXPECT_TRUE(bytes_of(params.output) == expected) << done;
    EXPECT_FALSE(fs::exists(params.output.string() + ".work"));
  }
}

TEST_F(PlanTest, what_a_killed_process_left_goes_with_the_folder) {
  const PlanParams params = stored();
  const GraphPlan plan = begun(params, 2);
  std::ofstream(plan.folder() / ".task-1.done.tmp.123") << "torn";
  run(params);
  EXPECT_FALSE(fs::exists(plan.folder()));
}

// The folder was being taken away.
TEST_F(PlanTest, a_graph_that_is_written_is_not_built_again) {
  const PlanParams params = stored();
  const GraphPlan plan = begun(params, make_plan(params).shards.tasks());
  fs::remove(file_of_task(plan, 0));
  fs::remove(record_of_task(plan, 3));
  const auto written = fs::last_write_time(params.output);
  EXPECT_EQ(run(params).resumed, plan.shards.tasks());
  EXPECT_EQ(fs::last_write_time(params.output), written);
}

TEST_F(PlanTest, believes_no_torn_record) {
  const PlanParams params = stored();
  const GraphPlan plan = begun(params, 2);
  const std::string record = bytes_of(record_of_task(plan, 1));
  const RunOptions inside;
  EXPECT_TRUE(is_done(plan, 1, &inside));
  for (std::size_t length = 0; length < record.size(); ++length) {
    std::ofstream(record_of_task(plan, 1), std::ios::binary) << record.substr(0, length);
    EXPECT_FALSE(is_done(plan, 1, &inside)) << length;
  }
  for (std::size_t at = 0; at < record.size(); ++at) {
    std::string other = record;
    other[at] = static_cast<char>(other[at] ^ 1);
    std::ofstream(record_of_task(plan, 1), std::ios::binary) << other;
    EXPECT_FALSE(is_done(plan, 1, &inside)) << at;
  }
  std::ofstream(record_of_task(plan, 1), std::ios::binary) << record;
  EXPECT_TRUE(is_done(plan, 1, &inside));
  // A record of another task, and one of another plan.
  EXPECT_FALSE(is_done(plan, 2, &inside));
  fs::copy_file(record_of_task(plan, 1), record_of_task(plan, 2));
  EXPECT_FALSE(is_done(plan, 2, &inside));
  GraphPlan other = plan;
  other.params.graph.seed = 5;
  EXPECT_FALSE(is_done(other, 1, &inside));
}

TEST_F(PlanTest, believes_no_record_beside_another_file_of_that_size) {
  PlanParams params = stored();
  const std::string expected = in_memory(params);
  const std::int64_t tasks = make_plan(params).shards.tasks();
  const GraphPlan plan = begun(params, tasks);
  EXPECT_TRUE(is_done(plan, tasks - 1));
  const auto size = fs::file_size(params.output);
  const Dataset base = Dataset::open(params.base);
  GraphParams other = params.graph;
  other.metric = Metric::l1;
  save_graph(build_graph(base, other), params.output);
  ASSERT_EQ(fs::file_size(params.output), size);
  EXPECT_FALSE(is_done(plan, tasks - 1));
  EXPECT_EQ(run(params).resumed, tasks - 1);
  EXPECT_TRUE(bytes_of(params.output) == expected);
}

TEST_F(PlanTest, builds_anew_what_is_missing_or_damaged) {
  const PlanParams params = stored();
  const std::string expected = in_memory(params);
  const std::int64_t tasks = make_plan(params).shards.tasks();
  for (const std::string fault : {"removed", "cut", "changed"}) {
    const GraphPlan plan = begun(params, tasks - 2);
    for (const std::int64_t task : {std::int64_t{2}, tasks - 4}) {
      const fs::path path = file_of_task(plan, task);
      std::string bytes = bytes_of(path);
      if (fault == "removed") fs::remove(path);
      if (fault == "cut") fs::resize_file(path, bytes.size() - 1);
      if (fault == "changed") {
        bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 8);
        std::ofstream(path, std::ios::binary) << bytes;
      }
    }
    // Lists may have been made of a shard that was whole but for its bytes.
    EXPECT_EQ(run(params).resumed, fault == "changed" ? plan.shards.shards : tasks - 4) << fault;
    EXPECT_TRUE(bytes_of(params.output) == expected) << fault;
  }
}

TEST_F(PlanTest, who_waits_for_a_task_is_told) {
  const GraphPlan plan = begun(stored(), 1);
  std::vector<std::string> notes;
  std::atomic<bool> told = false;
  auto lock = std::make_unique<FileLock>(lock_of_task(plan, 1), nullptr);
  std::thread other([&] {
    run_task(plan, 1, {}, [&](const std::string& note) {
      notes.push_back(note);
      told = true;
    });
  });
  for (int wait = 0; !told && wait < 20'000; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  lock.reset();
  other.join();
  EXPECT_EQ(notes, std::vector<std::string>{"another process is at task 1 (divide 0); waiting for it"});
  EXPECT_TRUE(is_done(plan, 1));
}

TEST_F(PlanTest, a_task_that_fails_ends_no_other) {
  PlanParams params = stored();
  params.workers = 2;
  const GraphPlan plan = begun(params, 1);
  ASSERT_GE(plan.shards.shards, 3);
  std::vector<std::string> notes;
  Driver driver;
  driver.worker = {"/bin/sh", "-c", "[ $1 = 2 ] && exit 3; sleep 0.5; : > \"$0/../ended-$1\"; exit 2"};
  driver.note = [&](const std::string& text) { notes.push_back(text); };
  expect_error(Fault::io, [&] { run_plan(plan, driver); }, "task 2 (divide 1) failed with exit code 3", "what is done is kept");
  EXPECT_TRUE(fs::exists(plan.folder().parent_path() / "ended-1"));
  EXPECT_FALSE(fs::exists(plan.folder().parent_path() / "ended-3"));
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0], "task 2 (divide 1) failed; the others come to their end");
  EXPECT_EQ(notes[1].find("task 1 (divide 0) failed with exit code 2"), 0u) << notes[1];
}

TEST_F(PlanTest, what_a_killed_task_left_goes_when_it_is_run_again) {
  const GraphPlan plan = begun(stored(), 1);
  const auto left = [&](const std::string& name) { return plan.folder() / ("." + name + ".tmp.77"); };
  const fs::path own[] = {left(file_of_task(plan, 1).filename()), left(record_of_task(plan, 1).filename())};
  const fs::path others[] = {left(file_of_task(plan, 2).filename()), left("mine")};
  for (const fs::path& path : {own[0], own[1], others[0], others[1]}) std::ofstream(path) << "half";
  run_task(plan, 1);
  for (const fs::path& path : own) EXPECT_FALSE(fs::exists(path)) << path;
  for (const fs::path& path : others) EXPECT_TRUE(fs::exists(path)) << path;  // of one who may be at work
}

// Damage that one run finds, and mends, counts for what the next finds.
TEST_F(PlanTest, what_came_after_a_damaged_file_is_made_anew_by_another_run_too) {
  const PlanParams params = stored();
  const std::string expected = in_memory(params);
  const GraphPlan plan = begun(params, make_plan(params).shards.tasks() - 1);
  const fs::path path = file_of_task(plan, 2);
  std::string bytes = bytes_of(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 8);
  std::ofstream(path, std::ios::binary) << bytes;
  std::int64_t done = 0;
  Progress stops([&](std::string_view stage, std::int64_t so_far, std::int64_t) {
    if (stage != "tasks") return;
    done = so_far;
    if (so_far > plan.shards.shards) stops.cancel();  // the shard is whole again
  });
  expect_error(Fault::cancelled, [&] { run_plan(plan, {}, {.progress = &stops}); }, "cancelled");
  EXPECT_EQ(done, plan.shards.shards + 1);
  EXPECT_TRUE(is_done(plan, 2));
  EXPECT_EQ(run(params).resumed, plan.shards.shards + 1);
  EXPECT_TRUE(bytes_of(params.output) == expected);
}

TEST_F(PlanTest, a_changed_base_is_refused) {
  const PlanParams params = stored();
  const GraphPlan plan = begun(params, 3);
  std::string bytes = bytes_of(params.base);
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  std::ofstream(params.base, std::ios::binary) << bytes;
  expect_error(Fault::invalid_data, [&] { write_plan(make_plan(params)); }, "base.u8bin", "changed", "remove");
  expect_error(Fault::invalid_data, [&] { run_plan(plan); }, "base.u8bin", "changed", "remove");
  EXPECT_FALSE(fs::exists(params.output));
}

TEST_F(PlanTest, a_changed_base_is_refused_when_all_is_done_too) {
  const PlanParams params = stored();
  const GraphPlan plan = begun(params, make_plan(params).shards.tasks());
  std::string bytes = bytes_of(params.base);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(params.base, std::ios::binary) << bytes;
  expect_error(Fault::invalid_data, [&] { run_plan(plan); }, "base.u8bin", "changed", "remove");
  EXPECT_TRUE(fs::exists(plan.folder()));
}

TEST_F(PlanTest, who_waits_for_another_run_is_told_and_does_not_build_again_what_that_has_built) {
  const PlanParams params = stored();
  const GraphPlan plan = begun(params, 1);
  std::vector<std::string> notes;
  std::atomic<bool> told = false;
  auto lock = std::make_unique<FileLock>(plan.folder() / "lock", nullptr);
  std::thread other([&] {
    expect_error(Fault::io,
                 [&] {
                   write_plan(plan, [&](const std::string& note) {
                     notes.push_back(note);
                     told = true;
                   });
                 },
                 "another run was at work in it, and has finished");
  });
  while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::ofstream(params.output) << "a graph";
  fs::remove_all(plan.folder());
  lock.reset();
  other.join();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes.front().find("another run works on"), std::string::npos) << notes.front();
}

TEST_F(PlanTest, who_waited_for_another_graph_goes_on_with_its_own) {
  PlanParams params = stored();
  const GraphPlan other = begun(params, 1);
  params.graph.k = 8;
  const GraphPlan mine = make_plan(params);
  std::atomic<bool> told = false;
  auto lock = std::make_unique<FileLock>(other.folder() / "lock", nullptr);
  auto written = std::async(std::launch::async, [&] { return write_plan(mine, [&](const std::string&) { told = true; }); });
  while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::ofstream(params.output) << "the other graph";
  fs::remove_all(other.folder());
  lock.reset();
  EXPECT_EQ(written.get().params.graph.k, 8);
  EXPECT_EQ(read_plan(mine.folder()).params.graph.k, 8);
}

TEST_F(PlanTest, what_no_task_could_take_is_not_planned) {
  PlanParams params = stored(test::Base(test::Kind::clustered, 300, 16, DType::f32), Metric::hamming, "floats");
  expect_error(Fault::unsupported, [&] { make_plan(params); }, "hamming needs packed bits in u8, the rows are f32");
  const std::int32_t ids[2 + 20 * 3] = {20, 3};
  std::ofstream(file("ids.ibin"), std::ios::binary).write(reinterpret_cast<const char*>(ids), sizeof ids);
  params.base = file("ids.ibin");
  params.graph.metric = Metric::l2;
  expect_error(Fault::unsupported, [&] { make_plan(params); }, "ids.ibin", "no vectors");
}

TEST_F(PlanTest, another_graph_does_not_take_over_the_folder) {
  PlanParams params = stored();
  const GraphPlan plan = begun(params, 2);
  PlanParams other = params;
  other.graph.k = 8;
  expect_error(Fault::invalid_argument, [&] { write_plan(make_plan(other)); }, "begun with k 7, not 8", "remove");
  other = params;
  other.graph.metric = Metric::l1;
  expect_error(Fault::invalid_argument, [&] { write_plan(make_plan(other)); }, "begun with metric l2, not l1");
  other = params;
  other.shard_rows = 100;
  expect_error(Fault::invalid_argument, [&] { write_plan(make_plan(other)); }, "asked_shard_rows 230, not 100");
  // Another budget does not make it another graph, but must do.
  GraphPlan poorer = make_plan(params);
  poorer.has_budget = true;
  poorer.params.memory_bytes = plan.shards.peak_bytes - 1;
  expect_error(Fault::out_of_memory, [&] { write_plan(poorer); }, "what was planned there needs");
  params.memory_bytes = plan.shards.peak_bytes + (std::size_t{1} << 30);
  EXPECT_EQ(run(params).resumed, 2);
}

TEST_F(PlanTest, a_plan_is_read_whole_or_not_at_all) {
  const PlanParams params = stored();
  const GraphPlan plan = write_plan(make_plan(params));
  const GraphPlan read = read_plan(plan.folder());
  EXPECT_EQ(read.n, plan.n);
  EXPECT_EQ(read.shards.block_rows, plan.shards.block_rows);
  EXPECT_EQ(read.params.graph.recall, plan.params.graph.recall);
  EXPECT_EQ(read.base_checksum, plan.base_checksum);
  const fs::path path = plan.folder() / "plan.txt";
  const std::string bytes = bytes_of(path);
  for (std::size_t length = 0; length < bytes.size(); length += 7) {
    std::ofstream(path, std::ios::binary) << bytes.substr(0, length);
    expect_error(Fault::corrupt_file, [&] { read_plan(path); }, "plan.txt", "byte");
  }
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(run_plan(read_plan(path)).resumed, 0);
}

TEST_F(PlanTest, tasks_are_refused_before_their_time) {
  const PlanParams params = stored();
  const GraphPlan plan = begun(params, 2);
  expect_error(Fault::invalid_argument, [&] { run_task(plan, plan.shards.shards + 1); }, "choose", "task 2 (divide 1)", "not done");
  expect_error(Fault::invalid_argument, [&] { run_task(plan, plan.shards.tasks() - 1); }, "join", "not done");
  expect_error(Fault::invalid_argument, [&] { run_task(plan, plan.shards.tasks()); }, "tasks 0 to");
  expect_error(Fault::invalid_argument, [&] { run_task(plan, -1); }, "tasks 0 to");
}

TEST_F(PlanTest, two_runs_never_write_one_file) {
  const PlanParams params = stored();
  const std::string expected = in_memory(params);
  const GraphPlan plan = write_plan(make_plan(params));
  std::vector<std::future<std::string>> runs;
  for (int i = 0; i < 3; ++i) {
    runs.push_back(std::async(std::launch::async, [&]() -> std::string {
      try {
        return std::to_string(run_plan(plan).tasks);
      } catch (const Error& error) {
        return error.what();
      }
    }));
  }
  int finished = 0;
  for (auto& run : runs) {
    const std::string end = run.get();
    finished += end == std::to_string(plan.shards.tasks());
    EXPECT_TRUE(end == std::to_string(plan.shards.tasks()) || end.find("another run was at work") != std::string::npos ||
                end.find("cannot lock") != std::string::npos) << end;
  }
  EXPECT_GE(finished, 1);
  EXPECT_TRUE(bytes_of(params.output) == expected);
}

TEST_F(PlanTest, bad_values_and_arguments_are_refused) {
  const test::Base base(test::Kind::gaussian, 700, 8, DType::f32);
  const_cast<float*>(base.rows.ref().row<float>(451))[3] = NAN;
  PlanParams params = stored(base);
  expect_error(Fault::invalid_data, [&] { run(params); }, "row 451", "column 3");
  EXPECT_FALSE(fs::exists(params.output));
  fs::remove_all(params.output.string() + ".work");
  params.graph.allow_nonfinite = true;
  run(params);
  EXPECT_TRUE(bytes_of(params.output) == in_memory(params));
  params.graph.recall = 1;
  expect_error(Fault::invalid_argument, [&] { make_plan(params); }, "recall");
  params.graph.recall = 0.9;
  params.graph.k = 700;
  expect_error(Fault::invalid_argument, [&] { make_plan(params); }, "k must be in [1, 699]");
  params.graph.k = 5;
  params.graph.method = "nn-descent";
  expect_error(Fault::invalid_argument, [&] { make_plan(params); }, "auto or ivf");
}

// The smallest that the refusal of a smaller one names.
std::size_t least_budget(const Ops& ops, const StoredSizes& sizes) {
  try {
    plan_shards(ops, sizes);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::out_of_memory);
    const std::string message = error.what();
    return std::stoull(message.substr(message.find("needs ") + 6));
  }
  return 0;
}

TEST(ShardPlan, fits_every_budget_that_it_takes) {
  const Ops& ops = ops_of("cpu");
  for (const std::int64_t n : {std::int64_t{30000}, std::int64_t{10'000'000}, std::int64_t{1'000'000'000}}) {
    StoredSizes sizes{.n = n, .d = 96, .dtype = DType::u8, .memory_bytes = 1, .threads = 2};
    const std::size_t least = least_budget(ops, sizes);
    ASSERT_GT(least, 0u);
    std::int64_t blocks_before = std::int64_t{1} << 40;
    bool fewer_before = true;
    for (std::size_t budget = least; budget < least * 40; budget += budget / 3) {
      sizes.memory_bytes = budget;
      const ShardPlan plan = plan_shards(ops, sizes);
      EXPECT_LE(plan.peak_bytes, budget);
      EXPECT_GE(plan.shards * plan.shard_rows, n);
      EXPECT_LT((plan.shards - 1) * plan.shard_rows, n);
      // Where memory begins to do for as many cells as a graph in memory has, it is theirs first.
      if (plan.fewer_cells == fewer_before) {
        EXPECT_LE(plan.blocks, blocks_before) << n << ' ' << budget;
      }
      blocks_before = plan.blocks + plan.blocks / 4 + 1;
      fewer_before = plan.fewer_cells;
    }
  }
}

TEST(ShardPlan, has_candidates_or_says_so) {
  const Ops& ops = ops_of("cpu");
  for (const std::int64_t n : {std::int64_t{30000}, std::int64_t{10'000'000}, std::int64_t{1'000'000'000}}) {
    for (const auto& [d, k] : {std::pair<std::int64_t, std::int64_t>{2, 10}, {96, 10}, {768, 10}, {96, 100}, {16, 300}}) {
      StoredSizes sizes{.n = n, .d = d, .dtype = DType::f32, .k = k, .memory_bytes = 1, .threads = 2, .candidates = true};
      const std::size_t least = least_budget(ops, sizes);
      for (std::size_t budget = least; budget < least * 20; budget += budget / 3) {
        sizes.memory_bytes = budget;
        const ShardPlan plan = plan_shards(ops, sizes);
        EXPECT_LE(plan.peak_bytes, budget) << n << ' ' << d << ' ' << budget;
        EXPECT_EQ(plan.candidates == 0, plan.no_candidates);
        if (budget > 3 * least) {
          EXPECT_GT(plan.candidates, k) << n << ' ' << d << ' ' << budget;
        }
        if (plan.candidates == 0) continue;
        EXPECT_GE(plan.gathered_rows, std::min(n, plan.candidates + 1));
        EXPECT_LE(plan.gathered_rows, n);
        EXPECT_GE(plan.byte_chunk_rows, std::min(n, plan.most_rows_of_a_cell()));
        EXPECT_GE(plan.byte_block_rows, std::min(n, plan.band_rows * probes_a_band_row / std::max(k, probes_a_band_row)));
        EXPECT_LT(estimated_seconds(sizes, plan, 16), estimated_seconds(sizes, plan, 32));
      }
      // Also where one thread has candidates for which two leave no room.
      for (std::size_t budget = least; budget < least * 2; budget += budget / 40) {
        sizes.memory_bytes = budget;
        sizes.threads = 1;
        const ShardPlan one = plan_shards(ops, sizes);
        sizes.threads = 64;
        const ShardPlan many = plan_shards(ops, sizes);
        EXPECT_EQ(std::tuple(one.candidates, one.band_rows, one.blocks, one.threads),
                  std::tuple(many.candidates, many.band_rows, many.blocks, many.threads)) << n << ' ' << d << ' ' << k << ' ' << budget;
      }
      sizes.candidates = false;
      EXPECT_EQ(plan_shards(ops, sizes).candidates, 0);
    }
  }
}

// A machine of more cores makes the same plan, and has as many threads as the plan has memory for.
TEST(ShardPlan, is_the_same_whatever_the_threads) {
  const Ops& ops = ops_of("cpu");
  std::int64_t threads_before = 2;
  for (const std::size_t budget :
       {std::size_t{600} << 20, std::size_t{1} << 30, std::size_t{2} << 30, std::size_t{16} << 30, std::size_t{64} << 30}) {
    StoredSizes sizes{.n = 4'000'000, .d = 96, .dtype = DType::f16, .memory_bytes = budget, .threads = 1, .candidates = true};
    const ShardPlan one = plan_shards(ops, sizes);
    EXPECT_GE(one.threads, threads_before);
    threads_before = one.threads;
    for (const int threads : {2, 7, 64, 1000}) {
      sizes.threads = threads;
      const ShardPlan plan = plan_shards(ops, sizes);
      const auto shape = [](const ShardPlan& p) {
        return std::tuple(p.cells, p.cell_rows, p.shards, p.shard_rows, p.blocks, p.band_rows, p.block_rows, p.chunk_rows, p.truth_rows,
                          p.candidates, p.byte_block_rows, p.byte_chunk_rows, p.gathered_rows, p.peak_bytes, p.threads);
      };
      EXPECT_EQ(shape(plan), shape(one)) << budget << ' ' << threads;
      EXPECT_LT(plan.seconds, one.seconds) << budget << ' ' << threads;
    }
  }
  EXPECT_EQ(threads_before, 64);
}

// More threads are not had for cells or bands that the graph in memory has.
TEST(ShardPlan, has_more_threads_only_where_the_graph_stays_the_same) {
  for (const std::string& device : cpu_devices()) {
    StoredSizes sizes{.n = 10'000'000, .d = 96, .dtype = DType::u8, .memory_bytes = 1, .threads = 2};
    bool before = false;
    for (std::size_t budget = least_budget(ops_of(device), sizes); budget < std::size_t{4} << 30; budget += budget / 20) {
      sizes.memory_bytes = budget;
      const ShardPlan plan = plan_shards(ops_of(device), sizes);
      const bool same = !plan.fewer_cells && !plan.smaller_bands;
      EXPECT_TRUE(same || plan.threads <= 2) << device << ' ' << budget;
      EXPECT_TRUE(same || !before) << device << ' ' << budget;
      before = same;
    }
    EXPECT_TRUE(before) << device;
  }
}

TEST(ShardPlan, tells_what_merging_pair_by_pair_would_take) {
  const Ops& ops = ops_of("cpu");
  StoredSizes sizes{.n = 10'000'000, .d = 96, .dtype = DType::u8, .memory_bytes = std::size_t{64} << 30, .threads = 2};
  EXPECT_EQ(plan_shards(ops, sizes).pairwise_shards, 0);  // all in memory
  std::int64_t shards_before = 1;
  for (const std::size_t budget : {std::size_t{4} << 30, std::size_t{2} << 30, std::size_t{1} << 30}) {
    sizes.memory_bytes = budget;
    const ShardPlan plan = plan_shards(ops, sizes);
    EXPECT_GT(plan.pairwise_shards, shards_before);
    EXPECT_GT(plan.pairwise_seconds, plan.seconds);
    shards_before = plan.pairwise_shards;
  }
}

}  // namespace
}  // namespace gigaknn
