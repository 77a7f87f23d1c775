// Memory of what may be large: matrices, lists of neighbours.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace gigaknn {

inline constexpr std::size_t large_page_bytes = std::size_t{2} << 20;
inline constexpr std::size_t least_large_bytes = 16 * large_page_bytes;  ///< from which on a page more, for where it begins, is little

/// Aligned to 64 bytes and not written. Where it is large the system is asked for large pages, which are there sooner, since there are
/// fewer of them, and are found faster. Throws std::bad_alloc.
void* allocate_large(std::size_t bytes);
void free_large(void* memory) noexcept;

/// An allocator of it. Elements that are made without a value have none until they are written.
template <class T>
struct LargeMemory {
  using value_type = T;

  LargeMemory() = default;
  template <class U>
  LargeMemory(const LargeMemory<U>&) {}

  T* allocate(std::size_t n) {
    if (n > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(allocate_large(n * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t) noexcept { free_large(memory); }
  template <class U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Values>
  void construct(U* at, Values&&... values) {
    ::new (static_cast<void*>(at)) U(std::forward<Values>(values)...);
  }
  template <class U>
  bool operator==(const LargeMemory<U>&) const {
    return true;
  }
};

template <class T>
using LargeVector = std::vector<T, LargeMemory<T>>;

template <class T>
bool operator==(const LargeVector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace gigaknn
