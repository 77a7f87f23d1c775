#include <gigaknn/large_memory.hpp>

#include <sys/mman.h>

#include <cstdlib>

namespace gigaknn {
namespace {

constexpr std::size_t alignment = 64;  // a cache line, and one AVX-512 register
constexpr std::size_t large_page = std::size_t{2} << 20;

}  // namespace

void* allocate_large(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(-1) / 2) throw std::bad_alloc();
  const std::size_t aligned_to = bytes < 2 * large_page ? alignment : large_page;
  void* const memory = std::aligned_alloc(aligned_to, (bytes / aligned_to + 1) * aligned_to);
  if (!memory) throw std::bad_alloc();
  // Whole ones alone, so that not more becomes resident than is written. Where the system has none, nothing is lost.
  if (aligned_to == large_page) madvise(memory, bytes / large_page * large_page, MADV_HUGEPAGE);
  return memory;
}

void free_large(void* memory) noexcept { std::free(memory); }

}  // namespace gigaknn
