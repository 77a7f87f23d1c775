#include "simt/fiber.hpp"

#include <sys/mman.h>

#include <new>

#ifdef GIGAKNN_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef GIGAKNN_SIMT_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
#endif

namespace gigaknn::simt {
namespace {

constexpr std::size_t page = 4096;

// A call that returns when another fiber jumps back. A real call (noipa): only callee-saved registers live over it, and
// they are named as clobbered, so that the compiler saves what it needs on this stack.
[[gnu::noinline]]
#ifndef __clang__
[[gnu::noipa]]
#endif
void jump(Fiber* from, Fiber* to) {
#if defined(__x86_64__)
  asm volatile(
      "leaq 1f(%%rip), %%rax\n\t"
      "movq %%rsp, 0(%0)\n\t"
      "movq %%rax, 8(%0)\n\t"
      "movq %%rbp, 16(%0)\n\t"
      "movq 0(%1), %%rsp\n\t"
      "movq 16(%1), %%rbp\n\t"
      "jmpq *8(%1)\n"
      "1:"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
#elif defined(__aarch64__)
  register Fiber* a asm("x0") = from;
  register Fiber* b asm("x1") = to;
  asm volatile(
      "mov x9, sp\n\t"
      "adr x10, 1f\n\t"
      "stp x9, x10, [%0]\n\t"
      "str x29, [%0, #16]\n\t"
      "ldp x9, x10, [%1]\n\t"
      "ldr x29, [%1, #16]\n\t"
      "mov sp, x9\n\t"
      "br x10\n"
      "1:"
      : "+r"(a), "+r"(b)
      :
      : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x19",
        "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "v8", "v9", "v10", "v11", "v12", "v13",
        "v14", "v15", "memory", "cc");
#else
#error "jump() knows x86-64 and AArch64"
#endif
}

}  // namespace

void make_stack(Fiber& fiber) {
  void* memory =
      mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  fiber.stack = static_cast<char*>(memory);
  fiber.stack_bytes = stack_bytes;
  fiber.stack_pointer = fiber.stack + page;
  if (mprotect(memory, page, PROT_NONE) != 0) {
    free_stack(fiber);
    throw std::bad_alloc();
  }
#ifdef GIGAKNN_SIMT_TSAN
  fiber.tsan = __tsan_create_fiber(0);
#endif
}

void free_stack(Fiber& fiber) {
  if (fiber.stack) munmap(fiber.stack, stack_bytes);
  fiber.stack = nullptr;
}

void restart(Fiber& fiber, void (*entry)(), std::size_t stagger) {
  // Functions open what they closed when they return: what is closed belongs to those that the last life never returned from.
  char* const top = fiber.stack + stack_bytes;
  char* const left_at = static_cast<char*>(fiber.stack_pointer);
  open_memory(left_at, static_cast<std::size_t>(top - left_at));
  // As after a call: 8 bytes below a multiple of 16.
  fiber.stack_pointer = top - stagger / 16 * 16 - 8;
#if defined(__aarch64__)
  fiber.stack_pointer = top - stagger / 16 * 16 - 16;
#endif
  fiber.resume_at = reinterpret_cast<void*>(entry);
  fiber.frame_pointer = nullptr;
}

void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool last) {
#ifdef GIGAKNN_SIMT_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
  if (last) from.fake_stack = nullptr;
#endif
  self = to.device_thread;
#ifdef GIGAKNN_SIMT_TSAN
  __tsan_switch_to_fiber(to.tsan, __tsan_switch_to_fiber_no_sync);
#endif
  jump(&from, &to);
#ifdef GIGAKNN_SIMT_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void entered([[maybe_unused]] Fiber& own, [[maybe_unused]] Fiber& home) {
#ifdef GIGAKNN_SIMT_ASAN
  const void* bottom = nullptr;
  std::size_t size = 0;
  // The stack on which the sanitizer keeps locals to find their use after return serves all lives of a fiber: a new one is
  // a system call, and a block has hundreds of fibers.
  __sanitizer_finish_switch_fiber(own.fake_stack, &bottom, &size);
  if (home.stack_bytes == 0) {
    home.stack = static_cast<char*>(const_cast<void*>(bottom));
    home.stack_bytes = size;
  }
#endif
}

void adopt([[maybe_unused]] Fiber& home) {
#ifdef GIGAKNN_SIMT_TSAN
  home.tsan = __tsan_get_current_fiber();
#endif
}

void abandon([[maybe_unused]] Fiber& fiber, [[maybe_unused]] Fiber& home, [[maybe_unused]] void* place) {
#ifdef GIGAKNN_SIMT_TSAN
  __tsan_switch_to_fiber(fiber.tsan, __tsan_switch_to_fiber_no_sync);
  __tsan_release(place);
  __tsan_switch_to_fiber(home.tsan, __tsan_switch_to_fiber_no_sync);
  __tsan_destroy_fiber(fiber.tsan);
  fiber.tsan = __tsan_create_fiber(0);
#endif
}

#ifdef GIGAKNN_SIMT_TSAN
void happened(void* place) { __tsan_release(place); }
void sees(void* place) { __tsan_acquire(place); }
Unwatched::Unwatched() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
Unwatched::~Unwatched() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
void happened(void*) {}
void sees(void*) {}
Unwatched::Unwatched() = default;
Unwatched::~Unwatched() = default;
#endif

#ifdef GIGAKNN_SIMT_ASAN
void close_memory(void* p, std::size_t bytes) { __asan_poison_memory_region(p, bytes); }
void open_memory(void* p, std::size_t bytes) { __asan_unpoison_memory_region(p, bytes); }
#else
void close_memory(void*, std::size_t) {}
void open_memory(void*, std::size_t) {}
#endif

}  // namespace gigaknn::simt
