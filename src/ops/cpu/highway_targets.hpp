// The instruction sets that Highway compiles for: AVX2, AVX-512 (Ice Lake, Zen 4 and newer), NEON and plain C++. Included
// before foreach_target.h by each file that it compiles once a target.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_WANT_AVX3_DL
