// Indexes of every kind that change: at every time they answer, and are written, as one of the same lists and codewords made of the rows
// that they then have.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include <gigaknn/index.hpp>
#include <gigaknn/tune.hpp>

#include "core/gather.hpp"
#include "core/random.hpp"
#include "io/test_files.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::Kind;
using test::StridedRows;

constexpr std::int64_t d = 6, pool_rows = 1500, base_rows = 300;
constexpr const char* recipes[] = {"Flat", "IVF12,Flat", "IVF12,PQ3", "IVF12,PQ2x4", "IVF12,PQ3,RFlat", "PCA4,IVF12,SQ8,RFlat", "IVF12,SQ8,RFlat", "IVF12,SQ8", "RR5,IVF12,SQ8", "IVF12,SQfp16", "IVF12,SQ4", "IVF12,SQ6", "PCAR5,IVF12,PQ4x6", "PCAW4,IVF12,SQfp16,RFlat", "PCA4,IVF12,Flat",
                                   "RR,IVF12,Flat,RFlat", "OPQ3_6,IVF12,PQ3", "OPQ2_4,IVF12,PQ2x4,RFlat", "IVF12,RaBitQ2", "IVF12,RaBitQ3", "PCA5,IVF12,RaBitQ5,RFlat", "RR5,IVF12,RaBitQ,RFlat", "IVF12,SQbf16"};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<RowId> ids_of(std::initializer_list<std::int64_t> numbers) {
  std::vector<RowId> ids;
  for (const std::int64_t number : numbers) ids.push_back(RowId{number});
  return ids;
}

std::vector<RowId> all_from(std::int64_t first, std::int64_t end) {
  std::vector<RowId> ids;
  for (std::int64_t i = first; i < end; ++i) ids.push_back(RowId{i});
  return ids;
}

// Lists of full vectors, or these behind them.
bool keeps_rows(std::string_view recipe) { return recipe.ends_with("RFlat") || recipe == "Flat" || recipe == "IVF12,Flat"; }

class ChangingKinds : public FileTest {
 protected:
  ChangingKinds() : pool_(pool_rows, d, DType::u8, 0), queries_(20, d, DType::u8, 1) {
    test::VectorMaker(Kind::small_integers, pool_rows, d, DType::u8, Metric::l2, 3).fill(pool_, queries_);  // ties everywhere
  }

  MatrixRef some(std::int64_t begin, std::int64_t end) const { return pool_.ref().slice(begin, end); }

  // The file of `recipe`, of the first rows, and the same with none of them.
  void build(const std::string& recipe, Metric metric = Metric::l2) {
    build_index(some(0, base_rows), file("base.gknn"), {.recipe = recipe, .metric = metric, .iterations = 3});
    remove_from_index(file("base.gknn"), all_from(0, base_rows), file("empty.gknn"));
  }

  // What the index must be: the rows of `row_of`, by id, added at once to an index without any.
  std::filesystem::path rebuilt(const std::map<std::int64_t, std::int64_t>& row_of, std::int64_t next_id) {
    std::vector<RowId> ids;
    std::vector<std::int64_t> rows;
    for (const auto& [id, row] : row_of) {
      ids.push_back(RowId{id});
      rows.push_back(row);
    }
    add_to_index(file("empty.gknn"), gather_rows(pool_, rows), ids, false, file("rebuilt.gknn"));
    if (row_of.rbegin()->first + 1 < next_id) {
      const RowId last[] = {RowId{next_id - 1}};
      add_to_index(file("rebuilt.gknn"), some(0, 1), last, false, file("rebuilt.gknn"));
      remove_from_index(file("rebuilt.gknn"), last, file("rebuilt.gknn"));
    }
    return file("rebuilt.gknn");
  }

  static void expect_alike(const Index& got, const Index& want, MatrixRef queries, const std::string& what,
                           std::initializer_list<std::int64_t> nprobes = {1, 4, 12}) {
    ASSERT_EQ(got.rows(), want.rows()) << what;
    EXPECT_EQ(got.next_id(), want.next_id()) << what;
    std::vector<RowId> third, few;
    for (std::int64_t id = 0; id < got.next_id(); id += 3) (id % 60 == 0 ? few : third).push_back(RowId{id});
    const IdSet sets[] = {IdSet::of_ids(third), IdSet::of_ids(few), IdSet::of_ids({RowId{got.next_id()}}), IdSet::all_but(third)};
    for (const IdSet* only : {static_cast<const IdSet*>(nullptr), &sets[0], &sets[1], &sets[2], &sets[3]}) {
      const auto may_be_found = [&](const auto& ids) {
        return std::all_of(ids.begin(), ids.end(), [&](RowId id) { return id == no_row || !only || only->has(id); });
      };
      for (const std::int64_t nprobe : nprobes) {
        for (const std::int64_t refine : {0, 1, 3}) {
          if (refine != 3 && !got.refines()) continue;  // it makes no difference
          for (const std::int64_t k : {1, 9}) {
            const SearchParams params{.nprobe = nprobe, .refine = refine, .only = only};
            const Neighbors found = got.search(queries, k, params), wanted = want.search(queries, k, params);
            EXPECT_EQ(found.ids, wanted.ids) << what << " nprobe " << nprobe << " refine " << refine << " k " << k;
            EXPECT_TRUE(may_be_found(found.ids)) << what << " nprobe " << nprobe << " refine " << refine << " k " << k;
            EXPECT_EQ(found.distances, wanted.distances) << what;
          }
        }
      }
      const float radius = want.search(queries.slice(0, 1), 9, {.nprobe = 12, .only = only}).distances[6];
      const RadiusNeighbors within = got.search_radius(queries, radius, {.nprobe = 4, .only = only}),
                            wanted_within = want.search_radius(queries, radius, {.nprobe = 4, .only = only});
      EXPECT_EQ(within.offsets, wanted_within.offsets) << what;
      EXPECT_EQ(within.ids, wanted_within.ids) << what;
      EXPECT_TRUE(may_be_found(within.ids)) << what;
      EXPECT_EQ(within.distances, wanted_within.distances) << what;
      if (!got.keeps_rows()) continue;
      const Neighbors found = got.search_all(queries, 9, only), wanted = want.search_all(queries, 9, only);
      EXPECT_EQ(found.ids, wanted.ids) << what;
      EXPECT_TRUE(may_be_found(found.ids)) << what;
      EXPECT_EQ(found.distances, wanted.distances) << what;
    }
  }

  // Full vectors tell whether these are the rows at all.
  void expect_exact(const Index& index, const std::map<std::int64_t, std::int64_t>& row_of, const std::string& what) const {
    std::vector<RowId> ids;
    std::vector<std::int64_t> rows;
    for (const auto& [id, row] : row_of) {
      ids.push_back(RowId{id});
      rows.push_back(row);
    }
    const Matrix model = gather_rows(pool_, rows), given = index.reconstruct(ids);
    EXPECT_EQ(std::memcmp(given.ref().data, model.ref().data, at(model.rows() * d)), 0) << what;
    Neighbors want = reference::nearest_rows(queries_, model, index.metric(), 9);
    for (RowId& id : want.ids) {
      if (id != no_row) id = ids[at(value_of(id))];
    }
    const Neighbors found = index.search(queries_, 9, {.nprobe = 12, .refine = 1000});
    EXPECT_EQ(found.ids, want.ids) << what;
    EXPECT_EQ(found.distances, want.distances) << what;
    EXPECT_EQ(index.search_all(queries_, 9).ids, want.ids) << what;
  }

  StridedRows pool_;
  StridedRows queries_;
};

TEST_F(ChangingKinds, rows_that_were_removed_and_are_added_again_are_the_file_that_was_built) {
  for (const DType dtype : vector_dtypes) {
    StridedRows base(base_rows, 8, dtype, 1), queries(1, 8, dtype, 0);
    test::VectorMaker(Kind::decaying, base_rows, 8, dtype, Metric::l2, 3).fill(base, queries);
    std::vector<RowId> ids;
    for (std::int64_t i = 0; i < base_rows; ++i) ids.push_back(RowId{(i * 7919) % base_rows * 1000000007 + 3});  // in no order
    for (const char* recipe : recipes) {
      build_index(base, file("built.gknn"), {.recipe = recipe, .iterations = 2, .ids = ids});
      const auto index = open_index(file("built.gknn"), {.map = true});
      index->remove(ids);
      EXPECT_EQ(index->rows(), 0);
      for (std::int64_t begin = 0; begin < base_rows; begin += 100) {
        index->add(base.ref().slice(begin, begin + 100), std::span(ids).subspan(at(begin), 100));
      }
      index->save(file("again.gknn"));
      EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("built.gknn"))) << recipe << ' ' << name_of(dtype);
      check_index(file("again.gknn"));
    }
  }
}

// A test a recipe: together they take long.
class ChangingKind : public ChangingKinds, public testing::WithParamInterface<const char*> {};

TEST_P(ChangingKind, any_sequence_of_changes_is_the_index_of_the_rows_it_leaves) {
  const char* const recipe = GetParam();
  build(recipe);
  for (const std::uint64_t seed : {1, 2}) {
    std::map<std::int64_t, std::int64_t> row_of;
    for (std::int64_t i = 0; i < base_rows; ++i) row_of[i] = i;
    const auto index = open_index(file("base.gknn"), {.map = seed == 1});
    std::int64_t counter = 0;
    std::size_t most_parts = 0;
    const auto draw = [&](std::uint64_t below) {
      return static_cast<std::int64_t>(random_below(below, seed, 1, static_cast<std::uint64_t>(counter++)));
    };
    for (int step = 0; step < 24; ++step) {
      const std::int64_t kind = draw(4), count = 1 + draw(draw(4) == 0 ? 300 : 40), first = draw(pool_rows - 341);
      std::vector<RowId> ids;
      if (kind == 0) {
        for (std::int64_t i = 0; i < count; ++i) row_of[index->next_id() + i] = first + i;
        index->add(some(first, first + count));
      } else if (kind == 1) {
        std::set<std::int64_t> drawn;
        for (std::int64_t i = 0; i < count; ++i) drawn.insert(draw(1500));
        std::vector<std::int64_t> mixed(drawn.rbegin(), drawn.rend());  // they need not ascend
        for (const std::int64_t id : mixed) {
          row_of[id] = first + std::ssize(ids);
          ids.push_back(RowId{id});
        }
        index->update(some(first, first + std::ssize(ids)), ids);
      } else {
        for (const auto& [id, row] : row_of) {
          if (draw(kind == 2 ? 10 : 3) == 0) ids.push_back(RowId{id});
        }
        for (const RowId id : ids) row_of.erase(value_of(id));
        index->remove(ids);
      }
      const std::string text = index->description();
      if (const auto end = text.find(" parts"); end != std::string::npos) {
        most_parts = std::max<std::size_t>(most_parts, std::stoul(text.substr(text.rfind(' ', end - 1))));
      }
      if (step % 6 != 5) continue;
      const std::string what = join_text(recipe, " seed ", seed, " step ", step);
      const auto whole = open_index(rebuilt(row_of, index->next_id()));
      expect_alike(*index, *whole, queries_, what);
      if (index->keeps_rows()) expect_exact(*index, row_of, what);
      index->save(file("saved.gknn"));
      EXPECT_EQ(bytes_of(file("saved.gknn")), bytes_of(file("rebuilt.gknn"))) << what;
      check_index(file("saved.gknn"));
    }
    EXPECT_GE(most_parts, 2u) << recipe;
    EXPECT_LE(most_parts, 8u) << recipe;
  }
}

INSTANTIATE_TEST_SUITE_P(every, ChangingKind, testing::ValuesIn(recipes));

TEST_F(ChangingKinds, parts_answer_alike_by_other_metrics_and_on_every_device) {
  for (std::int64_t i = 0; i < pool_rows; ++i) pool_.set(i, 0, 1);  // by cosine none may be zeros
  std::size_t turn = 0;
  for (const char* recipe : recipes) {
    // Each metric by some kinds of each sort (on the emulated GPU where all recipes run there).
    const Metric metric = std::array{Metric::inner_product, Metric::euclidean, Metric::cosine}[turn++ % 3];
    build(recipe, metric);
    std::map<std::int64_t, std::int64_t> row_of;
    for (std::int64_t i = 0; i < base_rows; ++i) row_of[i] = i;
    std::vector<const char*> devices = {"cpu:generic", "emulated:2"};
#if defined(GIGAKNN_SANITIZED) || defined(GIGAKNN_TINY_TILES)  // the emulated GPU takes too long there for all
    if (turn % 4 != 0) devices.pop_back();  // 4, so that each of the 3 metrics has its turn
#endif
    for (const char* device : devices) {
      const auto index = open_index(file("base.gknn"), {.device = device});
      index->add(some(300, 400));
      index->add(some(400, 420));
      index->update(some(500, 503), ids_of({3, 310, 1000}));
      index->remove(ids_of({1000, 5, 399, 401}));
      index->save(file("saved.gknn"));
      for (std::int64_t i = 300; i < 420; ++i) row_of[i] = i;
      row_of[3] = 500;
      row_of[310] = 501;
      for (const std::int64_t id : {5, 399, 401}) row_of.erase(id);
      EXPECT_EQ(bytes_of(file("saved.gknn")), bytes_of(rebuilt(row_of, 1001))) << recipe << ' ' << device;
      EXPECT_NE(index->description().find(" in 4 parts"), std::string::npos) << index->description();
      expect_alike(*index, *open_index(file("rebuilt.gknn")), queries_.ref().slice(0, 3), join_text(recipe, ' ', device), {4});
      if (index->keeps_rows()) expect_exact(*index, row_of, device);
    }
  }
}

TEST_F(ChangingKinds, within_a_radius_is_what_search_finds_so_near) {
  for (std::int64_t i = 0; i < pool_rows; ++i) pool_.set(i, 0, 1);  // by cosine none may be zeros
  for (const Metric metric : {Metric::l2, Metric::inner_product, Metric::cosine}) {
    for (const char* recipe : recipes) {
      build(recipe, metric);
      const auto index = open_index(file("base.gknn"));
      index->add(some(300, 340));
      // As far as lists go, or of those candidates that full vectors were compared with: here all.
      const Neighbors all = index->search(queries_, 340, {.nprobe = 12, .refine = 1});
      for (const std::int64_t rank : {0, 7, 150, 339}) {
        const float radius = all.distances[at(rank)];
        const RadiusNeighbors found = index->search_radius(queries_, radius, {.nprobe = 12, .refine = 340});
        ASSERT_EQ(std::ssize(found.offsets), all.queries + 1);
        for (std::int64_t i = 0; i < all.queries; ++i) {
          std::int64_t count = 0;
          while (count < 340 && (metric != Metric::inner_product ? all.distances[at(i * 340 + count)] <= radius
                                                                 : all.distances[at(i * 340 + count)] >= radius))
            ++count;
          ASSERT_EQ(found.offsets[at(i + 1)] - found.offsets[at(i)], count) << recipe << " rank " << rank;
          for (std::int64_t j = 0; j < count; ++j) {
            EXPECT_EQ(found.ids[at(found.offsets[at(i)] + j)], all.ids[at(i * 340 + j)]) << recipe;
            EXPECT_EQ(found.distances[at(found.offsets[at(i)] + j)], all.distances[at(i * 340 + j)]) << recipe;
          }
        }
        if (!index->refines()) continue;
        // Few candidates leave some out, and add none.
        const RadiusNeighbors fewer = index->search_radius(queries_, radius, {.nprobe = 12, .refine = 1});
        EXPECT_LE(fewer.ids.size(), found.ids.size()) << recipe;
        for (const float distance : fewer.distances) EXPECT_TRUE(metric != Metric::inner_product ? distance <= radius : distance >= radius);
      }
    }
  }
}

// Replicas, shards, and groups of shards.
TEST_F(ChangingKinds, several_devices_answer_as_one) {
  for (std::size_t turn = 0; turn < std::size(recipes); ++turn) {
    const char* const recipe = recipes[turn];
    build(recipe);
    const auto one = open_index(file("base.gknn"));
    one->add(some(300, 340));
    std::vector<std::pair<const char*, int>> all = {{"emulated:2", 2}, {"emulated:4", 2}};
#if defined(GIGAKNN_SANITIZED)  // the emulated GPU takes too long there for all
    all = {all[turn % 2]};
#endif
    for (const auto& [device, shards] : all) {
      const auto several = open_index(file("base.gknn"), {.device = device, .shards = shards});
      several->add(some(300, 340));
      expect_alike(*several, *one, queries_.ref().slice(0, 3), join_text(recipe, ' ', device, ' ', shards), {4});
    }
    EXPECT_THROW(open_index(file("base.gknn"), {.device = "emulated:4", .shards = 3}), Error);
    EXPECT_THROW(open_index(file("base.gknn"), {.shards = 2}), Error);
  }
}

TEST_F(ChangingKinds, files_change_as_indexes_in_memory_do) {
  for (const char* recipe : recipes) {
    build(recipe);
    const auto index = open_index(file("base.gknn"));
    index->add(some(300, 700));
    index->save(file("memory.gknn"));
    add_to_index(file("base.gknn"), some(300, 700), {}, false, file("added.gknn"));
    EXPECT_EQ(bytes_of(file("added.gknn")), bytes_of(file("memory.gknn"))) << recipe;
    // By turns, in place, with ids in no order, and on another device.
    std::vector<RowId> backwards = all_from(500, 700);
    std::reverse(backwards.begin(), backwards.end());
    std::vector<std::int64_t> rows(200);
    std::iota(rows.rbegin(), rows.rend(), 500);
    add_to_index(file("base.gknn"), some(300, 500), {}, false, file("turns.gknn"), "emulated");
    add_to_index(file("turns.gknn"), gather_rows(pool_, rows), backwards, false, file("turns.gknn"));
    EXPECT_EQ(bytes_of(file("turns.gknn")), bytes_of(file("memory.gknn"))) << recipe;
    // Replaced, and back again.
    add_to_index(file("turns.gknn"), some(0, 200), backwards, true, file("turns.gknn"));
    EXPECT_NE(bytes_of(file("turns.gknn")), bytes_of(file("memory.gknn"))) << recipe;
    add_to_index(file("turns.gknn"), some(500, 700), all_from(500, 700), true, file("turns.gknn"));
    EXPECT_EQ(bytes_of(file("turns.gknn")), bytes_of(file("memory.gknn"))) << recipe;
    // Three that become one.
    std::vector<RowId> thirds[3];
    for (std::int64_t i = 0; i < 700; ++i) {
      for (std::int64_t third = 0; third < 3; ++third) {
        if (i % 3 != third) thirds[third].push_back(RowId{i});
      }
    }
    std::vector<std::filesystem::path> paths;
    for (std::int64_t third : {2, 0, 1}) {
      paths.push_back(file(join_text(third, ".gknn")));
      remove_from_index(file("added.gknn"), thirds[third], paths.back());
    }
    merge_indexes(paths, file("merged.gknn"));
    EXPECT_EQ(bytes_of(file("merged.gknn")), bytes_of(file("memory.gknn"))) << recipe;
    check_index(file("merged.gknn"));
  }
}

TEST_F(ChangingKinds, an_index_without_rows_is_one) {
  for (const char* recipe : recipes) {
    build(recipe);
    check_index(file("empty.gknn"));
    for (const bool map : {false, true}) {
      const auto empty = open_index(file("empty.gknn"), {.map = map});
      EXPECT_EQ(empty->rows(), 0);
      EXPECT_EQ(empty->next_id(), base_rows);
      EXPECT_EQ(empty->keeps_rows(), keeps_rows(recipe));
      const IdSet only = IdSet::of_ids(ids_of({5}));
      for (const IdSet* set : {static_cast<const IdSet*>(nullptr), &only}) {
        EXPECT_EQ(empty->search(queries_, 2, {.nprobe = 3, .only = set}).ids, std::vector<RowId>(40, no_row)) << recipe;
        if (empty->keeps_rows()) {
          EXPECT_EQ(empty->search_all(queries_, 2, set).ids, std::vector<RowId>(40, no_row)) << recipe;
        }
      }
      EXPECT_FALSE(empty->description().empty());
      open_index_bytes_needed(file("empty.gknn"), {.map = map});
      empty->save(file("again.gknn"));
      EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(file("empty.gknn")));
      empty->add(some(7, 8), ids_of({5}));
      EXPECT_EQ(empty->search(queries_, 1, {.nprobe = 12, .refine = 1}).ids, std::vector<RowId>(20, RowId{5}));
    }
    const std::filesystem::path both[] = {file("empty.gknn"), file("empty.gknn")};
    merge_indexes(both, file("merged.gknn"));
    EXPECT_EQ(bytes_of(file("merged.gknn")), bytes_of(file("empty.gknn")));
  }
}

// Whatever lists they stand in: by their full vectors, or else as a look into every list finds them.
TEST_F(ChangingKinds, few_rows_that_may_be_found_are_all_found) {
  for (const Metric metric : {Metric::l2, Metric::inner_product}) {
    for (const char* recipe : recipes) {
      build(recipe, metric);
      for (const char* device : {"cpu", "emulated"}) {
        const std::string what = std::string(recipe) + " " + std::string(name_of(metric)) + " " + device;
        const auto index = open_index(file("base.gknn"), {.device = device});
        index->add(some(base_rows, base_rows + 40), all_from(1000, 1040));
        index->remove(ids_of({4, 1004}));
        const std::vector<RowId> few = ids_of({4, 7, 123, 251, 299, 1004, 1017});
        const IdSet only = IdSet::of_ids(few);
        const Neighbors found = index->search(queries_, 7, {.nprobe = 1, .only = &only});
        for (std::int64_t i = 0; i < queries_.ref().rows; ++i) {
          const std::set<RowId> ids(found.ids.begin() + i * 7, found.ids.begin() + i * 7 + 5);
          EXPECT_EQ(ids, std::set<RowId>({few[1], few[2], few[3], few[4], few[6]})) << what;
        }
        // As many lists as there are: then rows are not copied, but the others left out.
        const Neighbors wanted =
            index->keeps_rows() ? index->search_all(queries_, 7, &only) : index->search(queries_, 7, {.nprobe = 12, .only = &only});
        EXPECT_EQ(found.ids, wanted.ids) << what;
        EXPECT_EQ(found.distances, wanted.distances) << what;
        const float radius = found.distances[2];
        const RadiusNeighbors within = index->search_radius(queries_, radius, {.nprobe = 1, .only = &only}),
                              all_within = index->search_radius(queries_, radius, {.nprobe = 12, .refine = 100, .only = &only});
        EXPECT_EQ(within.ids, all_within.ids) << what;
        EXPECT_EQ(within.distances, all_within.distances) << what;
      }
    }
  }
}

// Rows come in tens that are alike; no search may see a part of ten, or a replaced row twice or not at all.
TEST_F(ChangingKinds, readers_see_the_whole_of_each_change) {
  for (const char* recipe : recipes) {
    build(recipe);
    const auto index = open_index(file("base.gknn"));
    const Matrix marked = gather_rows(pool_, std::vector<std::int64_t>(10, 700)),
                 moved = gather_rows(pool_, std::vector<std::int64_t>(10, 701));
    const std::vector<RowId> ids = all_from(100000, 100010);
    index->add(moved, ids);
    std::atomic<bool> done{false};
    std::vector<std::thread> readers;
    for (int reader = 0; reader < 3; ++reader) {
      readers.emplace_back([&, reader] {
        const IdSet odd = IdSet::of_ids(ids_of({100001, 100003, 100005, 100007, 100009}));
        for (int round = 0; !done || round < 3; ++round) {
          const Neighbors found = index->search(queries_.ref().slice(reader, reader + 1), 1000, {.nprobe = 12, .refine = 1});
          std::int64_t added = 0, replaced = 0;
          std::set<float> distances;
          for (std::size_t i = 0; i < found.ids.size(); ++i) {
            if (found.ids[i] == no_row) continue;
            const std::int64_t id = value_of(found.ids[i]);
            added += id >= 1000 && id < 100000;
            replaced += id >= 100000;
            if (id >= 1000) distances.insert(found.distances[i]);
          }
          EXPECT_EQ(added % 10, 0);
          EXPECT_EQ(replaced, 10);
          EXPECT_LE(distances.size(), 2u);
          const Neighbors some = index->search(queries_.ref().slice(0, 1), 6, {.nprobe = 12, .only = &odd});
          EXPECT_EQ(std::count(some.ids.begin(), some.ids.end(), no_row), 1);
        }
      });
    }
    for (int round = 0; round < 20; ++round) {
      const std::vector<RowId> mine = all_from(1000 + 10 * round, 1010 + 10 * round);
      index->add(marked, mine);
      index->update(round % 2 == 0 ? marked : moved, ids);
      if (round % 3 == 0) index->remove(mine);
    }
    done = true;
    for (std::thread& reader : readers) reader.join();
  }
}

TEST_F(ChangingKinds, a_change_that_is_refused_changes_nothing) {
  for (const char* recipe : recipes) {
    build(recipe);
    const std::string before = bytes_of(file("base.gknn"));
    const auto index = open_index(file("base.gknn"));
    const auto same = open_index(file("base.gknn"));
    const auto refused = [&](Fault fault, const std::string& says, const std::function<void(Index&)>& change) {
      expect_error(fault, [&] { change(*index); }, says);
      index->save(file("saved.gknn"));
      EXPECT_EQ(bytes_of(file("saved.gknn")), before) << says;
    };
    const StridedRows floats(2, d, DType::f32, 0), narrow(2, d - 1, DType::u8, 0);
    refused(Fault::invalid_argument, "rows are 6 x f32, the index 6 x u8", [&](Index& it) { it.add(floats); });
    refused(Fault::invalid_argument, "rows are 5 x u8, the index 6 x u8", [&](Index& it) { it.add(narrow); });
    refused(Fault::invalid_argument, "1 ids are not those of 2 rows", [&](Index& it) { it.add(some(0, 2), ids_of({900})); });
    refused(Fault::invalid_data, "id 900 is there twice", [&](Index& it) { it.add(some(0, 2), ids_of({900, 900})); });
    refused(Fault::invalid_data, "id 900 is there twice", [&](Index& it) { it.update(some(0, 2), ids_of({900, 900})); });
    refused(Fault::invalid_data, "id -4 is negative", [&](Index& it) { it.add(some(0, 2), ids_of({900, -4})); });
    refused(Fault::invalid_data, "id 299 is in the index already", [&](Index& it) { it.add(some(0, 2), ids_of({900, 299})); });
    refused(Fault::invalid_data, "is above", [&](Index& it) { it.add(some(0, 1), ids_of({std::int64_t{1} << 62})); });
    refused(Fault::invalid_argument, "an update needs the ids of its 2 rows", [&](Index& it) { it.update(some(0, 2), {}); });
    refused(Fault::invalid_argument, "id 300 is not in the index", [&](Index& it) { it.remove(ids_of({5, 300})); });
    refused(Fault::invalid_argument, "id -1 is not in the index", [&](Index& it) { it.remove(ids_of({-1})); });
    expect_error(Fault::invalid_argument, [&] { index->reconstruct(ids_of({5, 300})); }, "id 300 is not in the index");
    expect_alike(*index, *same, queries_, recipe);
    index->add(some(0, 0));
    index->remove({});
    index->save(file("saved.gknn"));
    EXPECT_EQ(bytes_of(file("saved.gknn")), before);

    // The file that would have been written over is as it was.
    expect_error(Fault::invalid_data, [&] { add_to_index(file("base.gknn"), some(0, 2), ids_of({900, 299}), false, file("base.gknn")); }, "id 299 is in the index");
    expect_error(Fault::invalid_argument, [&] { remove_from_index(file("base.gknn"), ids_of({300}), file("base.gknn")); }, "id 300 is not in the index");
    RunOptions small;
    small.memory_bytes = 1000;
    expect_error(Fault::out_of_memory, [&] { add_to_index(file("base.gknn"), some(0, 2), {}, false, file("base.gknn"), "cpu", small); },
                 "a budget of 1000 bytes is too small: this change of an index to 302 rows needs");
    EXPECT_EQ(bytes_of(file("base.gknn")), before);
    std::string damaged = before;
    damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
    const auto bad = file("damaged.gknn", damaged);
    expect_error(Fault::corrupt_file, [&] { add_to_index(bad, some(0, 5), {}, false, file("none.gknn")); }, "damaged.gknn");
    expect_error(Fault::corrupt_file, [&] { remove_from_index(bad, ids_of({1}), file("none.gknn")); }, "damaged.gknn");
    expect_error(Fault::corrupt_file, [&] { merge_indexes({&bad, 1}, file("none.gknn")); }, "damaged.gknn");
    EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
  }
}

TEST_F(ChangingKinds, rows_must_be_finite) {
  StridedRows base(base_rows, d, DType::f32, 0), rows(20, d, DType::f32, 0);
  test::VectorMaker(Kind::gaussian, base_rows, d, DType::f32, Metric::l2, 3).fill(base, rows);
  for (const char* recipe : recipes) {
    for (const float value : {NAN, INFINITY}) {
      build_index(base, file("base.gknn"), {.recipe = recipe, .iterations = 2});
      const auto index = open_index(file("base.gknn"));
      rows.set(7, 3, static_cast<double>(value));
      expect_error(Fault::invalid_data, [&] { index->add(rows); }, "the rows", "row 7", "column 3");
      expect_error(Fault::invalid_data, [&] { add_to_index(file("base.gknn"), rows, {}, false, file("none.gknn")); }, "the rows", "row 7");
      EXPECT_EQ(index->rows(), base_rows);
      EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
    }
  }
}

TEST_F(ChangingKinds, what_differs_is_not_merged) {
  const auto merge = [&](const char* a, const char* b) {
    return [this, a, b] {
      const std::filesystem::path both[] = {file(a), file(b)};
      merge_indexes(both, file("none.gknn"));
    };
  };
  const auto build = [&](const char* name, const char* recipe, std::int64_t rows = base_rows, std::uint64_t seed = 0,
                         Metric metric = Metric::l2) {
    build_index(some(0, rows), file(name), {.recipe = recipe, .metric = metric, .iterations = 2, .seed = seed});
  };
  build("flat", "IVF12,Flat");
  build("pq", "IVF12,PQ3");
  build("refining", "IVF12,PQ3,RFlat");
  build("seed", "IVF12,PQ3", base_rows, 1);
  build("pq2", "IVF12,PQ2");
  build("euclidean", "IVF12,PQ3", base_rows, 0, Metric::euclidean);
  build("sq", "IVF12,SQ8,RFlat");
  build("pca", "PCA6,IVF12,SQ8,RFlat");
  expect_error(Fault::invalid_argument, merge("flat", "pq"), "index 1 is an ivf_pq, the first an ivf_flat");
  expect_error(Fault::invalid_argument, merge("sq", "pq"), "index 1 is an ivf_pq, the first an ivf_sq");
  expect_error(Fault::invalid_argument, merge("pq", "refining"), "index 1 and the first do not both keep full vectors");
  expect_error(Fault::invalid_argument, merge("pq", "seed"), "index 1 has other lists than the first");
  expect_error(Fault::invalid_argument, merge("pq", "pq2"), "index 1 has other codewords than the first");
  expect_error(Fault::invalid_argument, merge("pq", "euclidean"), "index 1 is of 6 x u8 by euclidean, the first of 6 x u8 by l2");
  expect_error(Fault::invalid_argument, merge("sq", "pca"), "index 1 has another transform than the first");
  expect_error(Fault::invalid_argument, merge("pq", "pq"), "id 0 is in two of the indexes");
  EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
}

TEST_F(ChangingKinds, what_was_measured_and_held_out_stays) {
  for (const char* recipe : recipes) {
    build_index(some(0, base_rows), file("base.gknn"), {.recipe = recipe, .iterations = 2, .held_out = 20});
    const std::vector<RowId> held_out = open_index(file("base.gknn"))->held_out();
    ASSERT_EQ(held_out.size(), 20u);
    add_to_index(file("base.gknn"), some(300, 400), {}, false, file("base.gknn"));
    EXPECT_EQ(open_index(file("base.gknn"))->held_out(), held_out);
    remove_from_index(file("base.gknn"), std::span(held_out).first(5), file("base.gknn"));
    EXPECT_EQ(open_index(file("base.gknn"))->held_out(), std::vector<RowId>(held_out.begin() + 5, held_out.end())) << recipe;
    // A row that is called so again is another, but as good a stranger.
    add_to_index(file("base.gknn"), some(0, 1), std::span(held_out).first(1), false, file("base.gknn"));
    EXPECT_EQ(open_index(file("base.gknn"))->held_out().size(), 16u);
  }
}

TEST_F(ChangingKinds, a_budget_that_is_named_is_enough) {
  for (const char* recipe : recipes) {
    build(recipe);
    add_to_index(file("base.gknn"), some(300, 700), {}, false, file("free.gknn"));
    std::size_t needed = 0;
    RunOptions run;
    run.memory_bytes = 1000;
    try {
      add_to_index(file("base.gknn"), some(300, 700), {}, false, file("none.gknn"), "cpu", run);
    } catch (const Error& error) {
      const std::string message = error.what();
      needed = std::stoull(message.substr(message.rfind(' ') + 1));
    }
    run.memory_bytes = needed;
    add_to_index(file("base.gknn"), some(300, 700), {}, false, file("budget.gknn"), "cpu", run);
    EXPECT_EQ(bytes_of(file("budget.gknn")), bytes_of(file("free.gknn"))) << recipe;
    run.memory_bytes = needed - 1;
    expect_error(Fault::out_of_memory, [&] { add_to_index(file("base.gknn"), some(300, 700), {}, false, file("none.gknn"), "cpu", run); }, std::to_string(needed));
    EXPECT_FALSE(std::filesystem::exists(file("none.gknn")));
  }
}

}  // namespace
}  // namespace gigaknn
