// The floating-point mode that bounds and promises of equal bytes are made for.
#pragma once

#include <cfenv>

namespace gigaknn {

/// While it lives, its thread rounds to nearest and computes with subnormals, whatever the caller has set: a thread that takes them for
/// zeros (torch.set_flush_denormal, anything linked with -ffast-math) loses more than bounds allow for, and true neighbours with it.
/// Flags that are raised meanwhile are not kept.
class UsualFloats {
 public:
  UsualFloats() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~UsualFloats() { std::fesetenv(&before_); }
  UsualFloats(const UsualFloats&) = delete;
  UsualFloats& operator=(const UsualFloats&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace gigaknn
