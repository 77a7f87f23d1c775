#include <gigaknn/large_memory.hpp>

#include <sys/mman.h>

#include <cstdlib>

namespace gigaknn {
namespace {

constexpr std::size_t alignment = 64;  // a cache line, and one AVX-512 register

}  // namespace

void* allocate_large(std::size_t bytes) {
  void* memory = nullptr;
  const bool large = bytes >= least_large_bytes;
  if (bytes > static_cast<std::size_t>(-1) / 2 || posix_memalign(&memory, large ? large_page_bytes : alignment, bytes + alignment) != 0) {
    throw std::bad_alloc();
  }
  // Whole pages alone, so that what is written from end to end takes no more than it did. Where the system has none, nothing is lost.
  if (large) madvise(memory, bytes / large_page_bytes * large_page_bytes, MADV_HUGEPAGE);
  return memory;
}

void free_large(void* memory) noexcept { std::free(memory); }

}  // namespace gigaknn
