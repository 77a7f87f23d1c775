#include "simt/warp_operation.hpp"

#include <algorithm>
#include <cstring>

#include "simt/fiber.hpp"

namespace gigaknn::simt {
namespace {

// By hand and volatile: the thread sanitizer watches calls of memcpy and memcmp even where this file is not instrumented,
// and would take the scheduler for a thread that races. The two common sizes compile to a move.
void move_bytes(void* to, const void* from, unsigned count) {
  if (count == 4) {
    __builtin_memcpy(to, from, 4);
    return;
  }
  if (count == 8) {
    __builtin_memcpy(to, from, 8);
    return;
  }
  for (unsigned i = 0; i < count; ++i) {
    static_cast<volatile char*>(to)[i] = static_cast<const volatile char*>(from)[i];
  }
}
bool same_bytes(const void* a, const void* b, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (static_cast<const volatile char*>(a)[i] != static_cast<const volatile char*>(b)[i]) return false;
  }
  return true;
}

int number_of(const Request& request) {
  int value;
  move_bytes(&value, request.in, 4);
  return value;
}

template <class T>
void answer(Request* const requests[], std::uint32_t members, T value) {
  for_lanes(members, [&](unsigned lane) { move_bytes(requests[lane]->out, &value, sizeof value); });
}

std::uint32_t votes_of(Request* const requests[], std::uint32_t members) {
  std::uint32_t votes = 0;
  for_lanes(members, [&](unsigned lane) { votes |= std::uint32_t{number_of(*requests[lane]) != 0} << lane; });
  return votes;
}

template <class Fold>
void reduce(Request* const requests[], std::uint32_t members, Fold fold) {
  const auto wide = [&](unsigned lane) {
    const int value = number_of(*requests[lane]);
    return requests[lane]->argument ? std::int64_t{value} : std::int64_t{static_cast<unsigned>(value)};
  };
  std::int64_t result = wide(static_cast<unsigned>(std::countr_zero(members)));
  for_lanes(members & (members - 1), [&](unsigned lane) { result = fold(result, wide(lane)); });
  answer(requests, members, static_cast<int>(result));
}

// The lane that a shuffle reads; its own where the other lies outside its part of the warp.
unsigned source_of(const Request& request, unsigned lane) {
  const auto width = static_cast<unsigned>(request.width);
  const auto argument = static_cast<unsigned>(request.argument);
  const unsigned low = lane & ~(width - 1);
  const unsigned high = low + width;
  switch (request.op) {
    case WarpOp::shfl: return low + (argument & (width - 1));
    case WarpOp::shfl_xor: return (lane ^ argument) < high ? lane ^ argument : lane;
    case WarpOp::shfl_up: return lane >= low + argument ? lane - argument : lane;
    default: return lane + argument < high ? lane + argument : lane;
  }
}

void match(Request* const requests[], std::uint32_t members) {
  for_lanes(members, [&](unsigned lane) {
    std::uint32_t same = 0;
    for_lanes(members, [&](unsigned other) {
      same |= std::uint32_t{same_bytes(requests[lane]->in, requests[other]->in, requests[lane]->bytes)} << other;
    });
    move_bytes(requests[lane]->out, &same, sizeof same);
  });
}

}  // namespace

void fill_with_poison(void* p, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 4) {
    move_bytes(static_cast<char*>(p) + i, &poison, static_cast<unsigned>(std::min<std::size_t>(4, bytes - i)));
  }
}

void perform(Request* const requests[], std::uint32_t members) {
  const Request& request = *requests[std::countr_zero(members)];
  switch (request.op) {
    case WarpOp::sync: return;
    case WarpOp::ballot: return answer(requests, members, votes_of(requests, members));
    case WarpOp::any: return answer(requests, members, int{votes_of(requests, members) != 0});
    case WarpOp::all: return answer(requests, members, int{votes_of(requests, members) == members});
    case WarpOp::add: return reduce(requests, members, [](std::int64_t a, std::int64_t b) { return a + b; });
    case WarpOp::min: return reduce(requests, members, [](std::int64_t a, std::int64_t b) { return std::min(a, b); });
    case WarpOp::max: return reduce(requests, members, [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
    case WarpOp::bit_and: return reduce(requests, members, [](std::int64_t a, std::int64_t b) { return a & b; });
    case WarpOp::bit_or: return reduce(requests, members, [](std::int64_t a, std::int64_t b) { return a | b; });
    case WarpOp::bit_xor: return reduce(requests, members, [](std::int64_t a, std::int64_t b) { return a ^ b; });
    case WarpOp::match: return match(requests, members);
    case WarpOp::custom: {
      const void* in[warp_lanes] = {};
      void* out[warp_lanes] = {};
      for_lanes(members, [&](unsigned lane) {
        in[lane] = requests[lane]->in;
        out[lane] = requests[lane]->out;
      });
      const Unwatched unwatched;
      return request.custom(in, out);
    }
    default: break;
  }
  for_lanes(members, [&](unsigned lane) {
    const unsigned source = source_of(*requests[lane], lane);
    if (members >> source & 1) {
      move_bytes(requests[lane]->out, requests[source]->in, request.bytes);
    } else {
      fill_with_poison(requests[lane]->out, request.bytes);  // CUDA: undefined
    }
  });
}

const char* name_of(WarpOp op) {
  static constexpr const char* names[] = {"__syncwarp", "__ballot_sync", "__any_sync", "__all_sync",
                                          "shfl", "shfl_up", "shfl_down", "shfl_xor",
                                          "reduce_add", "reduce_min", "reduce_max", "reduce_and",
                                          "reduce_or", "reduce_xor", "match_any", "a warp operation"};
  return names[static_cast<int>(op)];
}

}  // namespace gigaknn::simt
