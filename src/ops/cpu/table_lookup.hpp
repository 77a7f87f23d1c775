// Entries of tables of bytes, many at a time: a shuffle looks up in 16 of them by a code's lowest 4 bits, and each bit above chooses
// between two halves of what was found. Of 6 bits that is 4 shuffles and 3 choices, of 8 it is 16 and 15. Included once for every target of
// Highway's foreach_target.
#include <cstdint>

#include <hwy/highway.h>

#if defined(GIGAKNN_TABLE_LOOKUP) == defined(HWY_TARGET_TOGGLE)
#ifdef GIGAKNN_TABLE_LOOKUP
#undef GIGAKNN_TABLE_LOOKUP
#else
#define GIGAKNN_TABLE_LOOKUP
#endif

HWY_BEFORE_NAMESPACE();
namespace gigaknn::cpu {
namespace HWY_NAMESPACE {
namespace {

// A code's bit `bit` as that of the sign. Shifts of 16 bits are one instruction each, where those of bytes take two: what comes in from the
// byte beside nobody looks at.
template <int bit, class U8>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<U8> sign_from(U8 tag, hwy::HWY_NAMESPACE::Vec<U8> code) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::BitCast(tag, hn::ShiftLeft<7 - bit>(hn::BitCast(hn::RepartitionToWide<U8>(), code)));
}

template <int bits, class U8>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<U8> look_up(U8 tag, const std::uint8_t* table, hwy::HWY_NAMESPACE::Vec<U8> code,
                                               hwy::HWY_NAMESPACE::Vec<U8> lowest_4) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (bits == 4) {
    return hn::TableLookupBytes(hn::LoadDup128(tag, table), lowest_4);
  } else {
    const hn::RebindToSigned<U8> i8;
    const auto low = look_up<bits - 1>(tag, table, code, lowest_4),
               high = look_up<bits - 1>(tag, table + (1 << (bits - 1)), code, lowest_4);
    return hn::BitCast(tag, hn::IfNegativeThenElse(hn::BitCast(i8, sign_from<bits - 1>(tag, code)), hn::BitCast(i8, high),
                                                   hn::BitCast(i8, low)));
  }
}

// Of a table of 2^bits entries those of codes, of which bits above are not looked at.
template <int bits, class U8>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<U8> look_up(U8 tag, const std::uint8_t* table, hwy::HWY_NAMESPACE::Vec<U8> code) {
  namespace hn = hwy::HWY_NAMESPACE;
  return look_up<bits>(tag, table, code, hn::And(code, hn::Set(tag, 15)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gigaknn::cpu
HWY_AFTER_NAMESPACE();
#endif
