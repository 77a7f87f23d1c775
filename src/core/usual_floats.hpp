// The floating-point mode that bounds and promises of equal bytes are made for.
#pragma once

#ifdef __SSE2__
#include <immintrin.h>
#else
#include <cfenv>
#endif

namespace gigaknn {

/// While it lives, its thread rounds to nearest and computes with subnormals, whatever the caller has set: a thread that takes them for
/// zeros (torch.set_flush_denormal, anything linked with -ffast-math) loses more than bounds allow for, and true neighbours with it.
/// The flags of exceptions are nobody's.
class UsualFloats {
 public:
#ifdef __SSE2__
  // A few cycles, where <cfenv> takes hundreds; nearly always there is nothing to do.
  UsualFloats() : before_(_mm_getcsr()) {
    if (!is_usual()) _mm_setcsr(usual);
  }
  ~UsualFloats() {
    if (!is_usual()) _mm_setcsr(before_);
  }
#else
  UsualFloats() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~UsualFloats() { std::fesetenv(&before_); }
#endif
  UsualFloats(const UsualFloats&) = delete;
  UsualFloats& operator=(const UsualFloats&) = delete;

 private:
#ifdef __SSE2__
  static constexpr unsigned usual = 0x1F80, flags = 0x3F;  // no exception is raised, to nearest, subnormals neither read nor written as zeros
  bool is_usual() const { return (before_ & ~flags) == usual; }
  unsigned before_;
#else
  std::fenv_t before_;
#endif
};

}  // namespace gigaknn
