#include <gigaknn/large_memory.hpp>

#include <sys/mman.h>

#include <cstdlib>

namespace gigaknn {
namespace {

constexpr std::size_t alignment = 64;  // a cache line, and one AVX-512 register
constexpr std::size_t large_page = std::size_t{2} << 20;
constexpr std::size_t least_large = 16 * large_page;  // from which on a page more, for where it begins, is little

}  // namespace

void* allocate_large(std::size_t bytes) {
  void* memory = nullptr;
  const bool large = bytes >= least_large;
  if (bytes > static_cast<std::size_t>(-1) / 2 || posix_memalign(&memory, large ? large_page : alignment, bytes + alignment) != 0) throw std::bad_alloc();
  // Whole pages alone, so that what is written from end to end takes no more than it did. Where the system has none, nothing is lost.
  if (large) madvise(memory, bytes / large_page * large_page, MADV_HUGEPAGE);
  return memory;
}

void free_large(void* memory) noexcept { std::free(memory); }

}  // namespace gigaknn
