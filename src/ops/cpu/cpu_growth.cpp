#include "ops/cpu/cpu_growth.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cancelled.hpp"
#include "core/threads.hpp"
#include "ops/list_writer.hpp"
#include "ops/requests.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t rows_at_once = 256;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Whatever order threads come in, the least stays.
template <class T>
void keep_least(T& place, T value) {
  const std::atomic_ref<T> shared(place);
  T old = shared.load(std::memory_order_relaxed);
  while (value < old && !shared.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

CpuGrowingGraph::CpuGrowingGraph(MatrixRef rows, const PairDistance& pair, const CodeKernelSet& codes, const GrowthParams& params,
                                 const RunOptions& run)
    : rows_(rows), params_(params), pair_(pair), facts_(pair.facts_of(rows, run)), tile_(rows, facts_, pair, codes, run),
      lists_(at(rows.rows * params.k), no_entry), bounds_(at(rows.rows), no_entry),
      candidates_(at(rows.rows * params.candidates), no_entry), named_by_new_(at(rows.rows * params.samples), no_sample),
      named_by_old_(named_by_new_) {}

std::size_t CpuGrowingGraph::bytes_needed(std::int64_t n, std::int64_t d, const GrowthParams& params, int threads) {
  // Lists, candidates, samples, bounds; sums and squares of bytes; norms and marks.
  const std::int64_t a_row = 8 * (params.k + params.candidates + params.samples + 1) + 8 + 9;
  // Rows that are compared at a time, as groups: samples, or what fills a list; codes, queries, widened rows, sums and keys of them.
  const std::int64_t most = std::max(4 * params.samples, 2 * params.k) + 64;
  const std::int64_t a_thread = most * (6 * d + 64) + 2 * params.samples * most * 8;
  return at(n * a_row + threads * a_thread);
}

std::size_t CpuGrowingGraph::bytes() const {
  return 8 * (lists_.size() + candidates_.size() + bounds_.size() + facts_.squared_norms.size()) + facts_.far.size() + tile_.bytes() +
         4 * (named_by_new_.size() + named_by_old_.size());
}

// Takes candidates into the list of a row; says how many stay.
std::int64_t CpuGrowingGraph::take_into(std::int64_t row, std::vector<GrowingEntry>& found) {
  std::sort(found.begin(), found.end());
  GrowingEntry* const list = list_of(row);
  GrowingEntry* const end = list + params_.k;
  std::int64_t taken = 0;
  for (const GrowingEntry entry : found) {
    if (entry >= end[-1]) break;
    GrowingEntry* const place = std::lower_bound(list, end, without_flag(entry));
    if (without_flag(*place) == without_flag(entry)) continue;
    std::move_backward(place, end - 1, end);
    *place = entry;
    ++taken;
  }
  bounds_[at(row)] = end[-1];
  return taken;
}

void CpuGrowingGraph::fill(std::int64_t first, std::int64_t count, const RowId* ids, std::int64_t width, std::int64_t old_columns,
                           const RunOptions& run) {
  require_fill(rows_.rows, first, count, ids, width, run);
  parallel_for(run, count, rows_at_once, [&](std::int64_t begin, std::int64_t end, int) {
    check_cancelled(run);
    PairTile::Scratch scratch;
    std::vector<LocalRow> named;
    std::vector<std::uint8_t> known;
    std::vector<GrowingEntry> found;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = first + i;
      if (facts_.far[at(row)]) continue;
      named.assign(1, static_cast<LocalRow>(row));
      known.assign(1, 0);
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t other = value_of(ids[i * width + j]);
        if (other < 0 || other == row || facts_.far[at(other)]) continue;
        named.push_back(static_cast<LocalRow>(other));
        known.push_back(j < old_columns);
      }
      if (named.size() == 1) continue;
      tile_.compare(named, 1, 1, scratch);
      found.clear();
      for (std::size_t j = 1; j < named.size(); ++j) found.push_back(entry_of(sortable_bits(scratch.keys[j - 1]), named[j], !known[j]));
      take_into(row, found);
    }
  });
}

void CpuGrowingGraph::fill_drawn(const GroupsView& groups, std::int64_t width, std::uint64_t seed, std::int64_t split,
                                 const RunOptions& run) {
  const std::int64_t at_once = std::max<std::int64_t>(1, (std::int64_t{1} << 19) / std::max<std::int64_t>(width, 1));
  std::vector<RowId> ids;
  for (std::int64_t first = 0; first < rows_.rows; first += at_once) {
    const std::int64_t count = std::min(at_once, rows_.rows - first);
    ids.resize(at(count * width));
    parallel_for(run, count, rows_at_once, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin * width; i < end * width; ++i) {
        ids[at(i)] = RowId{random_row_nearby(groups, seed, rows_.rows, split, first + i / width, width, i % width)};
      }
    });
    fill(first, count, ids.data(), width, 0, run);
  }
}

template <class T>
void CpuGrowingGraph::Offers<T>::add(T* place, T value) {
  __builtin_prefetch(place, 1);
  Offer& longest = waiting_[next_++ % waiting_.size()];
  if (longest.place) keep_least(*longest.place, longest.value);
  longest = {place, value};
}

template <class T>
void CpuGrowingGraph::Offers<T>::end() {
  for (const Offer& offer : waiting_) {
    if (offer.place) keep_least(*offer.place, offer.value);
  }
  waiting_ = {};
}

void CpuGrowingGraph::sample_neighbors(std::uint64_t round, const RunOptions& run) {
  salt_ = salt_of_round(params_.seed, round);
  std::fill(named_by_new_.begin(), named_by_new_.end(), no_sample);
  std::fill(named_by_old_.begin(), named_by_old_.end(), no_sample);
  const std::int64_t p = params_.samples;
  parallel_for(run, rows_.rows, 4 * rows_at_once, [&](std::int64_t begin, std::int64_t end, int) {
    check_cancelled(run);
    Offers<std::uint32_t> hashes;
    for (std::int64_t row = begin; row < end; ++row) {
      const GrowingEntry* const list = list_of(row);
      std::int64_t fresh = 0, old = 0;
      for (std::int64_t j = 0; j < params_.k && list[j] != no_entry && (fresh < p || old < p); ++j) {
        std::int64_t& count = is_new(list[j]) ? fresh : old;
        if (count++ >= p) continue;
        const LocalRow sample = row_of_entry(list[j]);
        const std::uint32_t hash = hash_sample(sample, static_cast<LocalRow>(row), salt_);
        std::uint32_t* const places = (is_new(list[j]) ? named_by_new_ : named_by_old_).data() + std::int64_t{sample} * p;
        hashes.add(&places[hash % static_cast<std::uint32_t>(p)], hash);
      }
    }
    hashes.end();
  });
}

void CpuGrowingGraph::find_samples(std::int64_t row, Samples& samples) const {
  const std::int64_t p = params_.samples;
  const GrowingEntry* const list = list_of(row);
  std::vector<LocalRow>& rows = samples.rows;
  rows.clear();
  const auto add_kind = [&](bool fresh, const std::vector<std::uint32_t>& named_by) {
    const auto kind = std::ssize(rows);
    std::int64_t own = 0;
    for (std::int64_t j = 0; j < params_.k && own < p && list[j] != no_entry; ++j) {
      if (is_new(list[j]) != fresh) continue;
      rows.push_back(row_of_entry(list[j]));
      ++own;
    }
    for (std::int64_t j = 0; j < p; ++j) {
      const std::uint32_t hash = named_by[at(row * p + j)];
      if (hash != no_sample) rows.push_back(sample_of_hash(static_cast<LocalRow>(row), hash, salt_));
    }
    std::sort(rows.begin() + kind, rows.end());
    rows.erase(std::unique(rows.begin() + kind, rows.end()), rows.end());
  };
  add_kind(true, named_by_new_);
  samples.fresh = samples.queries = std::ssize(rows);
  samples.first = 0;
  if (rows.empty()) return;
  add_kind(false, named_by_old_);
  const auto old = rows.begin() + samples.fresh;
  rows.erase(std::remove_if(old, rows.end(), [&](LocalRow r) { return std::binary_search(rows.begin(), old, r); }), rows.end());
}

// Of samples in order of their rows, those below `split` before the others: those of the first side with all of the second, as long as one
// of the two is new; what nobody is to meet is left out.
void CpuGrowingGraph::part_samples(const Samples& samples, std::int64_t split, Samples& across, Samples& back) {
  const auto begin = samples.rows.begin(), old = begin + samples.fresh, end = samples.rows.end();
  const auto new_beyond = std::partition_point(begin, old, [&](LocalRow row) { return row < split; });
  const auto old_beyond = std::partition_point(old, end, [&](LocalRow row) { return row < split; });
  across.rows.assign(begin, old);
  across.rows.insert(across.rows.end(), old_beyond, end);
  across.queries = across.first = new_beyond - begin;
  across.fresh = samples.fresh;
  back.rows.assign(new_beyond, old_beyond);
  back.queries = back.first = back.fresh = old - new_beyond;
  for (Samples* part : {&across, &back}) {
    if (part->queries == 0 || part->first == std::ssize(part->rows)) part->rows.clear();
  }
}

void CpuGrowingGraph::join(Samples& samples, Joining& joining) {
  if (samples.queries == 0 || std::ssize(samples.rows) < 2) return;  // which is none to meet
  tile_.compare(samples.rows, samples.queries, samples.first, joining.scratch);
  take_pairs(samples, joining);
}

// Offers each row of the samples what is nearer than the last of its list.
void CpuGrowingGraph::take_pairs(Samples& samples, Joining& joining) {
  const std::vector<LocalRow>& rows = samples.rows;
  const auto count = std::ssize(rows);
  const std::int64_t first = samples.first;
  const auto keys_of = [&](std::int64_t i) { return joining.scratch.keys.data() + i * joining.scratch.pitch; };  // of those from `first` on
  const auto first_after = [&](std::int64_t i) { return std::max(first, i + 1); };
  samples.bounds.clear();
  samples.bound_keys.clear();
  for (const LocalRow row : rows) {
    const GrowingEntry bound = bounds_[row];
    samples.bounds.push_back(bound);
    // Every key is below no entry, and below NaN.
    const float key = key_of_bits(key_bits_of_entry(bound));
    samples.bound_keys.push_back(std::isnan(key) ? std::numeric_limits<float>::infinity() : key);
  }
  const auto offer_below_bound = [&](std::int64_t i, GrowingEntry entry) {
    if (entry >= samples.bounds[at(i)]) return;
    const std::uint32_t place = place_of_candidate(rows[at(i)], row_of_entry(entry), salt_, params_.candidates);
    joining.offers.add(&candidates_[at(rows[at(i)] * params_.candidates + place)], entry);
  };
  if (!params_.selective) {
    for (std::int64_t i = 0; i < samples.queries; ++i) {
      const float* const keys = keys_of(i);
      const float of_i = samples.bound_keys[at(i)];
      for (std::int64_t j = first_after(i); j < count; ++j) {
        const float key = keys[j - first];
        if (key > std::max(of_i, samples.bound_keys[at(j)])) continue;
        const std::uint32_t bits = sortable_bits(key);
        offer_below_bound(i, entry_of(bits, rows[at(j)], true));
        offer_below_bound(j, entry_of(bits, rows[at(i)], true));
      }
    }
    return;
  }
  // Nearest of each sample among the new ones, then those of the new ones among the old.
  std::vector<GrowingEntry>& nearest = joining.nearest;
  nearest.assign(at(count + samples.fresh), no_entry);
  for (std::int64_t i = 0; i < samples.queries; ++i) {
    const float* const keys = keys_of(i);
    for (std::int64_t j = first_after(i); j < count; ++j) {
      const std::uint32_t bits = sortable_bits(keys[j - first]);
      GrowingEntry& of_i = nearest[at(j < samples.fresh ? i : count + i)];
      of_i = std::min(of_i, entry_of(bits, rows[at(j)], true));
      nearest[at(j)] = std::min(nearest[at(j)], entry_of(bits, rows[at(i)], true));
    }
  }
  for (std::int64_t i = 0; i < count; ++i) offer_below_bound(i, nearest[at(i)]);
  for (std::int64_t i = 0; i < samples.fresh; ++i) offer_below_bound(i, nearest[at(count + i)]);
}

void CpuGrowingGraph::local_join(std::int64_t split, const RunOptions& run) {
  parallel_for(run, rows_.rows, rows_at_once, [&](std::int64_t begin, std::int64_t end, int) {
    check_cancelled(run);
    Joining joining;
    Samples all;
    std::array<Samples, 2> samples, next;  // in two parts where two sides meet
    const auto find_next = [&](std::int64_t row) {
      find_samples(row, all);
      if (split > 0) {
        part_samples(all, split, next[0], next[1]);
      } else {
        std::swap(all, next[0]);
      }
      for (const Samples& part : next) {
        for (const LocalRow sample : part.rows) tile_.prefetch(sample);
      }
    };
    find_next(begin);
    for (std::int64_t row = begin; row < end; ++row) {
      std::swap(samples, next);
      if (row + 1 < end) find_next(row + 1);
      for (Samples& part : samples) join(part, joining);
    }
    joining.offers.end();
  });
}

std::int64_t CpuGrowingGraph::merge_lists(const RunOptions& run) {
  std::atomic<std::int64_t> taken{0};
  parallel_for(run, rows_.rows, 4 * rows_at_once, [&](std::int64_t begin, std::int64_t end, int) {
    check_cancelled(run);
    std::vector<GrowingEntry> found;
    std::int64_t mine = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      GrowingEntry* const list = list_of(row);
      // What was sampled is old from now on.
      std::int64_t sampled = 0;
      for (std::int64_t j = 0; j < params_.k && sampled < params_.samples && list[j] != no_entry; ++j) {
        sampled += is_new(list[j]);
        list[j] = without_flag(list[j]);
      }
      found.clear();
      GrowingEntry* const places = candidates_.data() + row * params_.candidates;
      for (std::int64_t j = 0; j < params_.candidates; ++j) {
        if (places[j] != no_entry) found.push_back(places[j]);
        places[j] = no_entry;
      }
      mine += take_into(row, found);
    }
    taken += mine;
  });
  return taken;
}

void CpuGrowingGraph::read(std::int64_t first, NeighborsOut out, const RunOptions& run) const {
  parallel_for(run, out.rows, 4 * rows_at_once, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) write_grown(list_of(first + i), params_.k, pair_.metric(), i, out);
  });
}

void CpuGrowingGraph::read(std::span<const LocalRow> rows, NeighborsOut out, const RunOptions&) const {
  for (std::int64_t i = 0; i < out.rows; ++i) write_grown(list_of(rows[static_cast<std::size_t>(i)]), params_.k, pair_.metric(), i, out);
}

}  // namespace gigaknn::cpu
