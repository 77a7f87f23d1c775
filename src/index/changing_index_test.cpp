// Inverted files that change: at every time they answer as one made of the rows that they then have.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include <gigaknn/index.hpp>

#include "core/expect_error.hpp"
#include "core/gather.hpp"
#include "core/require.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Kind;
using test::StridedRows;

constexpr std::int64_t d = 6;

std::vector<RowId> ids_of(std::initializer_list<std::int64_t> numbers) {
  std::vector<RowId> ids;
  for (const std::int64_t number : numbers) ids.push_back(RowId{number});
  return ids;
}

// Rows by id, and what an exact search of them finds.
class Model {
 public:
  explicit Model(MatrixRef pool) : pool_(pool) {}

  std::map<std::int64_t, std::int64_t> row_of;  // of the pool

  Neighbors nearest(MatrixRef queries, std::int64_t k, const std::function<bool(std::int64_t)>& allowed = [](std::int64_t) { return true; }) const {
    std::vector<std::int64_t> ids, rows;
    for (const auto& [id, row] : row_of) {
      if (!allowed(id)) continue;
      ids.push_back(id);
      rows.push_back(row);
    }
    Neighbors found = reference::nearest_rows(queries, gather_rows(pool_, rows), Metric::l2, k);
    for (RowId& id : found.ids) {
      if (id != no_row) id = RowId{ids[static_cast<std::size_t>(value_of(id))]};
    }
    return found;
  }

 private:
  MatrixRef pool_;
};

class ChangingIndex : public testing::Test {
 protected:
  ChangingIndex() : pool_(1500, d, DType::u8, 0), queries_(30, d, DType::u8, 1), model_(pool_) {
    test::VectorMaker(Kind::small_integers, 1500, d, DType::u8, Metric::l2, 3).fill(pool_, queries_);  // ties everywhere
  }

  MatrixRef some(std::int64_t begin, std::int64_t end) const { return pool_.ref().slice(begin, end); }
  void expect_as_model(const Index& index, const char* what = "") const {
    ASSERT_EQ(index.rows(), std::ssize(model_.row_of)) << what;
    for (const std::int64_t k : {1, 20}) {
      const Neighbors found = index.search(queries_, k, {.nprobe = 1000});
      const Neighbors want = model_.nearest(queries_, k);
      EXPECT_EQ(found.ids, want.ids) << what;
      EXPECT_EQ(found.distances, want.distances) << what;
    }
  }
  std::unique_ptr<Index> of_first(std::int64_t n, const char* device = "cpu") {
    for (std::int64_t i = 0; i < n; ++i) model_.row_of[i] = i;
    return make_ivf_flat_index(some(0, n), {.lists = 12, .iterations = 3, .device = device});
  }

  StridedRows pool_;
  StridedRows queries_;
  Model model_;
};

TEST_F(ChangingIndex, finds_added_rows_as_if_they_had_been_there) {
  for (const char* device : {"cpu", "emulated"}) {
    model_.row_of.clear();
    const auto index = of_first(300, device);
    index->add(some(300, 700));
    index->add(some(700, 701));
    for (std::int64_t i = 300; i < 701; ++i) model_.row_of[i] = i;
    EXPECT_EQ(index->next_id(), 701);
    expect_as_model(*index);
    index->add(some(0, 0));
    expect_as_model(*index, "nothing added");
    index->add(some(10, 12));
    model_.row_of[701] = 10;
    model_.row_of[702] = 11;
    expect_as_model(*index);
  }
}

TEST_F(ChangingIndex, behind_the_largest_id_there_is_no_next_one) {
  const auto index = of_first(20);
  const std::int64_t most = std::int64_t{1} << 61;
  index->add(some(20, 21), std::vector<RowId>{RowId{most}});
  model_.row_of[most] = 20;
  expect_error(Fault::invalid_argument, {"the next id would be 2305843009213693953", "give ids to these rows"}, [&] { index->add(some(21, 22)); });
  expect_as_model(*index);
  index->add(some(21, 22), std::vector<RowId>{RowId{77}});
  model_.row_of[77] = 21;
  expect_as_model(*index);
}

TEST_F(ChangingIndex, ids_are_the_users_and_ties_go_by_them) {
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < 500; ++i) {
    const std::int64_t id = (i * 7919) % 500 * 10000000000 + 5;  // no two alike, in no order
    ids.push_back(RowId{id});
    model_.row_of[id] = i;
  }
  for (const char* device : {"cpu", "cpu:generic", "emulated", "emulated:2"}) {
    const auto index = make_ivf_flat_index(some(0, 500), {.lists = 9, .iterations = 2, .ids = ids, .device = device});
    expect_as_model(*index, device);
    EXPECT_EQ(index->next_id(), 499 * 10000000000 + 6);
  }
  const auto index = make_ivf_flat_index(some(0, 500), {.lists = 9, .iterations = 2, .ids = ids});
  const std::vector<RowId> more = ids_of({1, 4990000000006, 7});
  index->add(some(600, 603), more);
  for (std::size_t i = 0; i < 3; ++i) model_.row_of[value_of(more[i])] = 600 + static_cast<std::int64_t>(i);
  expect_as_model(*index);
}

TEST_F(ChangingIndex, any_sequence_of_changes_leaves_the_rows_it_should) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    model_.row_of.clear();
    const auto index = of_first(200);
    std::int64_t counter = 0;
    const auto draw = [&](std::uint64_t below) {
      return static_cast<std::int64_t>(random_below(below, seed, 1, static_cast<std::uint64_t>(counter++)));
    };
    for (int step = 0; step < 40; ++step) {
      const std::int64_t kind = draw(4), count = 1 + draw(draw(4) == 0 ? 400 : 20), first = draw(1500 - 421);
      std::vector<RowId> ids;
      if (kind == 0) {
        for (std::int64_t i = 0; i < count; ++i) model_.row_of[index->next_id() + i] = first + i;
        index->add(some(first, first + count));
      } else if (kind == 1) {
        std::set<std::int64_t> drawn;
        for (std::int64_t i = 0; i < count; ++i) drawn.insert(draw(3000));
        for (const std::int64_t id : drawn) {
          model_.row_of[id] = first + std::ssize(ids);
          ids.push_back(RowId{id});
        }
        index->update(some(first, first + std::ssize(ids)), ids);
      } else {
        for (const auto& [id, row] : model_.row_of) {
          if (draw(kind == 2 ? 10 : 2) == 0) ids.push_back(RowId{id});
        }
        for (const RowId id : ids) model_.row_of.erase(value_of(id));
        index->remove(ids);
      }
      if (step % 4 == 3) expect_as_model(*index, join_text("seed ", seed, " step ", step).c_str());
    }
    for (const auto& [id, row] : model_.row_of) {
      const RowId wanted{id};
      const Matrix found = index->reconstruct({&wanted, 1});
      EXPECT_EQ(std::memcmp(found.ref().data, pool_.ref().row_bytes(row), d), 0);
    }
    std::vector<RowId> all;
    for (const auto& [id, row] : model_.row_of) all.push_back(RowId{id});
    index->remove(all);
    model_.row_of.clear();
    EXPECT_EQ(index->rows(), 0);
    EXPECT_EQ(index->search(queries_, 2, {.nprobe = 3}).ids, std::vector<RowId>(60, no_row));
    EXPECT_TRUE(index->search_radius(queries_, 1e9f, {.nprobe = 3}).ids.empty());
    index->add(some(0, 5), ids_of({3, 2, 1, 0, 99}));
    for (std::int64_t i = 0; i < 4; ++i) model_.row_of[3 - i] = i;
    model_.row_of[99] = 4;
    expect_as_model(*index, "from nothing");
  }
}

TEST_F(ChangingIndex, a_filter_leaves_what_it_has_wide_or_narrow_and_is_exact_where_it_is_narrow) {
  for (const char* device : {"cpu", "cpu:generic", "emulated:2"}) {
    model_.row_of.clear();
    auto index = of_first(700, device);
    for (const bool changed : {false, true}) {
      if (changed) {
        std::vector<RowId> ids;
        for (std::int64_t i = 0; i < 150; ++i) ids.push_back(RowId{5000 - 3 * i});
        index->add(some(800, 950), ids);
        for (std::int64_t i = 0; i < 150; ++i) model_.row_of[5000 - 3 * i] = 800 + i;
        std::vector<RowId> gone;
        for (std::int64_t i = 0; i < 700; i += 3) gone.push_back(RowId{i});
        index->remove(gone);
        for (const RowId id : gone) model_.row_of.erase(value_of(id));
      }
#if defined(GIGAKNN_SANITIZED)  // the emulated GPU takes too long there for all
      const std::vector<std::int64_t> shares = changed ? std::vector<std::int64_t>{2, 40} : std::vector<std::int64_t>{1, 300, 100000};
#else
      const std::vector<std::int64_t> shares = {1, 2, 40, 300, 100000};
#endif
      for (const std::int64_t every : shares) {
        const auto allowed = [&](std::int64_t id) { return id % every == 1 % every; };
        std::vector<RowId> ids;
        std::vector<std::uint8_t> bits(static_cast<std::size_t>((index->next_id() + 7) / 8));
        for (std::int64_t id = 0; id < index->next_id(); ++id) {
          if (!allowed(id)) continue;
          ids.insert(ids.begin(), RowId{id});
          bits[static_cast<std::size_t>(id / 8)] |= static_cast<std::uint8_t>(1 << (id % 8));
        }
        for (const IdSet& only : {IdSet::of_ids(ids), IdSet::of_bits(bits)}) {
          const Neighbors want = model_.nearest(queries_, 15, allowed);
          const Neighbors found = index->search(queries_, 15, {.nprobe = 12, .only = &only});
          EXPECT_EQ(found.ids, want.ids) << every;
          EXPECT_EQ(found.distances, want.distances) << every;
          // Two of twelve lists, or so many rows: then all of these.
          const Neighbors few = index->search(queries_, 15, {.nprobe = 2, .only = &only});
          if (every >= 40) {
            EXPECT_EQ(few.ids, want.ids) << every;
          }
          for (const RowId id : few.ids) EXPECT_TRUE(id == no_row || (allowed(value_of(id)) && model_.row_of.contains(value_of(id))));
          const RadiusNeighbors within = index->search_radius(queries_, want.distances[3], {.nprobe = 12, .only = &only});
          for (std::int64_t i = 0; i < std::min<std::int64_t>(within.offsets[1], 15); ++i) {
            EXPECT_EQ(within.ids[static_cast<std::size_t>(i)], want.ids[static_cast<std::size_t>(i)]);
          }
        }
      }
    }
  }
}

TEST_F(ChangingIndex, a_filter_of_the_probed_lists_finds_what_they_hold) {
  const auto index = of_first(1400);
  std::vector<RowId> even;
  for (std::int64_t i = 0; i < 1400; i += 2) even.push_back(RowId{i});
  const IdSet only = IdSet::of_ids(even);
  const Neighbors all = index->search(queries_, 1400, {.nprobe = 3});
  const Neighbors found = index->search(queries_, 12, {.nprobe = 3, .only = &only});
  for (std::int64_t i = 0; i < 30; ++i) {
    std::int64_t j = 0;
    for (std::int64_t rank = 0; rank < 1400 && j < 12; ++rank) {
      const RowId id = all.ids[static_cast<std::size_t>(i * 1400 + rank)];
      if (id == no_row || value_of(id) % 2 != 0) continue;
      EXPECT_EQ(found.ids[static_cast<std::size_t>(i * 12 + j++)], id);
    }
    for (; j < 12; ++j) EXPECT_EQ(found.ids[static_cast<std::size_t>(i * 12 + j)], no_row);
  }
}

// Rows come in tens that are alike; no search may see a part of ten, or a replaced row twice or not at all.
TEST_F(ChangingIndex, readers_see_the_whole_of_each_change) {
  const auto index = of_first(200);
  StridedRows marked(10, d, DType::u8, 0), moved(10, d, DType::u8, 0);
  for (std::int64_t i = 0; i < 10; ++i) {
    for (std::int64_t j = 0; j < d; ++j) {
      marked.set(i, j, 200);
      moved.set(i, j, 210);
    }
  }
  std::vector<RowId> ids(10);
  for (std::int64_t i = 0; i < 10; ++i) ids[static_cast<std::size_t>(i)] = RowId{100000 + i};
  index->add(moved, ids);
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&] {
      const IdSet odd = IdSet::of_ids(ids_of({100001, 100003, 100005, 100007, 100009}));
      for (int round = 0; !done || round < 3; ++round) {
        const Neighbors found = index->search(marked.ref().slice(0, 1), 1000, {.nprobe = 1000});
        std::int64_t at_mark = 0, replaced = 0;
        for (std::size_t i = 0; i < found.ids.size(); ++i) {
          at_mark += found.ids[i] != no_row && value_of(found.ids[i]) < 100000 && found.distances[i] == 0;
          replaced += value_of(found.ids[i]) >= 100000;
        }
        EXPECT_EQ(at_mark % 10, 0);
        EXPECT_EQ(replaced, 10);
        const Neighbors some = index->search(moved.ref().slice(0, 1), 6, {.nprobe = 3, .only = &odd});
        EXPECT_EQ(std::count(some.ids.begin(), some.ids.end(), no_row), 1);
      }
    });
  }
  for (int round = 0; round < 30; ++round) {
    std::vector<RowId> mine(10);
    for (std::int64_t i = 0; i < 10; ++i) mine[static_cast<std::size_t>(i)] = RowId{1000 + 10 * round + i};
    index->add(marked, mine);
    index->update(round % 2 == 0 ? marked : moved, ids);
    if (round % 3 == 0) index->remove(mine);
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(ChangingIndex, a_moment_is_what_was_there_then) {
  const auto index = of_first(300);
  const auto moment = index->moment();
  const std::vector<RowId> ids = index->ids();
  const Neighbors found = index->search(queries_, 9, {.nprobe = 1000});
  const RadiusNeighbors within = index->search_radius(queries_, 5, {.nprobe = 1000});
  index->remove(ids_of({0, 7, 299}));
  index->update(some(400, 402), ids_of({1, 2}));
  index->add(some(500, 700));
  EXPECT_NE(index->search(queries_, 9, {.nprobe = 1000}).ids, found.ids);
  EXPECT_GT(index->moment()->version, moment->version);
  EXPECT_EQ(index->ids_at(moment), ids);
  EXPECT_EQ(index->search(queries_, 9, {.nprobe = 1000, .moment = moment}).ids, found.ids);
  EXPECT_EQ(index->search_radius(queries_, 5, {.nprobe = 1000, .moment = moment}).ids, within.ids);
  SearchParams few{.nprobe = 1000, .moment = moment};
  const IdSet only = IdSet::of_ids(ids_of({7, 299}));
  few.only = &only;
  const Neighbors gone = index->search_all(queries_, 2, few);
  EXPECT_EQ(std::set<RowId>(gone.ids.begin(), gone.ids.end()), (std::set<RowId>{RowId{7}, RowId{299}}));
  const auto other = make_ivf_flat_index(pool_, {.lists = 9});
  expect_error(Fault::invalid_argument, {"the moment is one of another index"}, [&] { other->search(queries_, 1, few); });
}

TEST_F(ChangingIndex, a_change_that_is_refused_changes_nothing) {
  const auto index = of_first(300);
  const auto refused = [&](Fault fault, const std::vector<std::string>& parts, const std::function<void()>& change) {
    expect_error(fault, parts, change);
    expect_as_model(*index, parts.front().c_str());
    EXPECT_EQ(index->next_id(), 300);
  };
  const StridedRows floats(2, d, DType::f32, 0), narrow(2, d - 1, DType::u8, 0);
  refused(Fault::invalid_argument, {"rows are 6 x f32, the index 6 x u8"}, [&] { index->add(floats); });
  refused(Fault::invalid_argument, {"rows are 5 x u8, the index 6 x u8"}, [&] { index->add(narrow); });
  refused(Fault::invalid_argument, {"1 ids are not those of 2 rows"}, [&] { index->add(some(0, 2), ids_of({900})); });
  refused(Fault::invalid_data, {"id 900 is there twice"}, [&] { index->add(some(0, 2), ids_of({900, 900})); });
  refused(Fault::invalid_data, {"id -4 is negative"}, [&] { index->add(some(0, 2), ids_of({900, -4})); });
  refused(Fault::invalid_data, {"id 299 is in the index already"}, [&] { index->add(some(0, 2), ids_of({900, 299})); });
  refused(Fault::invalid_data, {"is above"}, [&] { index->add(some(0, 1), ids_of({std::int64_t{1} << 62})); });
  refused(Fault::invalid_argument, {"an update needs the ids of its 2 rows"}, [&] { index->update(some(0, 2), {}); });
  refused(Fault::invalid_argument, {"id 300 is not in the index"}, [&] { index->remove(ids_of({5, 300})); });
  refused(Fault::invalid_argument, {"id -1 is not in the index"}, [&] { index->remove(ids_of({-1})); });
  refused(Fault::invalid_argument, {"id 300 is not in the index"}, [&] { index->reconstruct(ids_of({5, 300})); });
  const IdSet short_bits = IdSet::of_bits(std::vector<std::uint8_t>(37)), long_bits = IdSet::of_bits(std::vector<std::uint8_t>(39));
  refused(Fault::invalid_argument, {"a filter of 37 bytes", "ids below 300, which has 38"},
          [&] { index->search(queries_, 1, {.only = &short_bits}); });
  refused(Fault::invalid_argument, {"a filter of 39 bytes"}, [&] { index->search(queries_, 1, {.only = &long_bits}); });
  refused(Fault::invalid_argument, {"ids must be >= 0, got -7"}, [&] { IdSet::of_ids(ids_of({3, -7})); });
  const StridedRows of_floats(20, d, DType::f32, 0);
  expect_error(Fault::invalid_data, {"the base"}, [&] { make_ivf_flat_index(of_floats, {.lists = 2}); });  // they are NaN
  const auto flat = make_flat_index(some(0, 20));
  expect_error(Fault::unsupported, {"an index of this kind cannot"}, [&] { flat->add(some(0, 1)); });
  expect_error(Fault::unsupported, {"an index of this kind cannot"}, [&] { flat->update(some(0, 1), ids_of({1})); });
  expect_error(Fault::unsupported, {"an index of this kind cannot"}, [&] { flat->remove(ids_of({1})); });
  expect_error(Fault::unsupported, {"an index of this kind cannot"}, [&] { flat->reconstruct(ids_of({1})); });
  expect_error(Fault::unsupported, {"an index of this kind cannot"}, [&] { flat->save("/nowhere"); });
}

}  // namespace
}  // namespace gigaknn
