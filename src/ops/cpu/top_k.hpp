// The k nearest so far of each of many rows.
//
//   slots [rows, capacity]  packed neighbours; the first `count` are in use, in no order unless k is small
//   bound [rows]            only what is smaller can still enter; falls as lists fill
//
// Small k: sorted insertion, so the bound is always the k-th. Larger k: candidates gather behind the list
// and one selection (linear) drops all but k, which costs a constant per candidate where a heap costs log k.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "core/neighbor.hpp"

namespace gigaknn::cpu {

class TopK {
 public:
  TopK() = default;
  TopK(std::int64_t rows, std::int64_t k)
      : k_(k), capacity_(capacity_of(k)), slots_(static_cast<std::size_t>(rows * capacity_)),
        counts_(static_cast<std::size_t>(rows), 0), bounds_(static_cast<std::size_t>(rows), no_neighbor) {}

  static std::int64_t capacity_of(std::int64_t k) {
    return k <= sorted_k ? k : k + std::clamp<std::int64_t>(k / 2, 32, 1024);
  }
  static std::size_t bytes_of(std::int64_t rows, std::int64_t k) {
    return static_cast<std::size_t>(rows * (capacity_of(k) * 8 + 16));
  }

  std::int64_t k() const { return k_; }
  /// May be read while another thread pushes; a stale bound is only larger.
  PackedNeighbor bound(std::int64_t row) const {
    return std::atomic_ref(const_cast<PackedNeighbor&>(bounds_[static_cast<std::size_t>(row)]))
        .load(std::memory_order_relaxed);
  }

  /// Promises that k candidates stand before `bound`, or k - 1 before it and itself in a list, here or in another: so that
  /// what is not below it need not enter.
  void lower_bound(std::int64_t row, PackedNeighbor bound) {
    lower(bounds_[static_cast<std::size_t>(row)], bound);
  }

  void push(std::int64_t row, PackedNeighbor candidate) {
    auto& bound = bounds_[static_cast<std::size_t>(row)];
    if (candidate >= bound) return;
    PackedNeighbor* slots = slots_.data() + row * capacity_;
    auto& count = counts_[static_cast<std::size_t>(row)];
    if (k_ <= sorted_k) {
      std::int64_t i = count < k_ ? count++ : k_ - 1;
      for (; i > 0 && slots[i - 1] > candidate; --i) slots[i] = slots[i - 1];
      slots[i] = candidate;
      if (count == k_) lower(bound, slots[k_ - 1]);
      return;
    }
    slots[count++] = candidate;
    if (count == capacity_) select(slots, count, bound);
  }

  /// Finds the bound of what the list holds, where that is k rows or more.
  void settle(std::int64_t row) {
    auto& count = counts_[static_cast<std::size_t>(row)];
    if (k_ > sorted_k && count >= k_) select(slots_.data() + row * capacity_, count, bounds_[static_cast<std::size_t>(row)]);
  }

  /// What list `row` holds, in no order: among it its k nearest so far.
  std::span<const PackedNeighbor> held(std::int64_t row) const {
    return {slots_.data() + row * capacity_, static_cast<std::size_t>(counts_[static_cast<std::size_t>(row)])};
  }

  /// Sorts list `row` and returns it; `count` gets its length, at most k.
  const PackedNeighbor* finish(std::int64_t row, std::int64_t& count) {
    PackedNeighbor* slots = slots_.data() + row * capacity_;
    auto& used = counts_[static_cast<std::size_t>(row)];
    if (used > k_) select(slots, used, bounds_[static_cast<std::size_t>(row)]);
    if (k_ > sorted_k) std::sort(slots, slots + used);
    count = used;
    return slots;
  }

 private:
  // Up to here an insertion moves fewer bytes than a selection would amortise.
  static constexpr std::int64_t sorted_k = 64;

  void select(PackedNeighbor* slots, std::int32_t& count, PackedNeighbor& bound) const {
    std::nth_element(slots, slots + k_ - 1, slots + count);
    count = static_cast<std::int32_t>(k_);
    lower(bound, slots[k_ - 1]);
  }
  static void lower(PackedNeighbor& bound, PackedNeighbor to) {
    if (to < bound) std::atomic_ref(bound).store(to, std::memory_order_relaxed);
  }

  std::int64_t k_ = 0;
  std::int64_t capacity_ = 0;
  std::vector<PackedNeighbor> slots_;
  std::vector<std::int32_t> counts_;
  std::vector<PackedNeighbor> bounds_;
};

}  // namespace gigaknn::cpu
