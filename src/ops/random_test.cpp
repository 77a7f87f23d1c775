// Random cases against the reference.
//
// GIGAKNN_TEST_SEED and GIGAKNN_TEST_ROUNDS steer it; GIGAKNN_TEST_SECONDS makes it go on for so long (`./check --full`
// does). A failure prints what repeats it.
#include "ops/conformance.hpp"

#include <chrono>
#include <cstdlib>
#include <iostream>

#include "core/require.hpp"

namespace gigaknn {
namespace {

using namespace test;

using Clock = std::chrono::steady_clock;

std::uint64_t from_environment(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

/// Calls `check` with one maker after another: GIGAKNN_TEST_ROUNDS of them, then on for GIGAKNN_TEST_SECONDS.
template <class Check>
void repeat(std::uint64_t fallback_rounds, Check&& check) {
  const std::uint64_t seed = from_environment("GIGAKNN_TEST_SEED", 20240601);
  const std::uint64_t rounds = from_environment("GIGAKNN_TEST_ROUNDS", fallback_rounds);
  const auto end = Clock::now() + std::chrono::seconds(from_environment("GIGAKNN_TEST_SECONDS", 0));
  std::uint64_t round = 0;
  for (; (round < rounds || Clock::now() < end) && !testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(join_text("repeat with GIGAKNN_TEST_SEED=", seed + round, " GIGAKNN_TEST_ROUNDS=1"));
    CaseMaker maker(seed + round);
    check(maker);
  }
  testing::Test::RecordProperty("rounds", static_cast<int>(round));
  std::cout << round << " random cases" << std::endl;
}

void check_any_op(CaseMaker& maker, Case c) {
  switch (maker.draw(5)) {
    case 0:
      c.n = std::min<std::int64_t>(c.n, 1000);
      check_self_nearest(c);
      break;
    case 1:
      check_first_self(c);
      break;
    case 2:
      c.q = std::min<std::int64_t>(c.q, 10);
      check_within_radius(c);
      break;
    case 3:
      check_pair_distances(c);
      break;
    default:
      check_nearest_rows(c);
  }
}

TEST(Random, cases_equal_the_reference) {
  repeat(150, [](CaseMaker& maker) {
    const Subject subject = subjects()[maker.draw(subjects().size())];
    Case c = maker.make(subject, static_cast<std::int64_t>(maker.draw(10000)), 4e6);
    c.kind = static_cast<Kind>(maker.draw(kind_count));
    c.n = 1 + static_cast<std::int64_t>(maker.draw(static_cast<std::uint64_t>(c.n)));
    c.d = 1 + static_cast<std::int64_t>(maker.draw(static_cast<std::uint64_t>(c.d)));
    c.k = 1 + static_cast<std::int64_t>(maker.draw(static_cast<std::uint64_t>(c.n + 1)));
    check_any_op(maker, c);
  });
}

// Enough rows for a filter on codes, which is where a bound could be wrong; every k, batch and number of threads.
TEST(Random, filters_lose_nothing) {
#if defined(GIGAKNN_SANITIZED)
  constexpr std::uint64_t rounds = 20;
#else
  constexpr std::uint64_t rounds = 60;
#endif
  repeat(rounds, [](CaseMaker& maker) {
    constexpr Metric metrics[] = {Metric::l2, Metric::euclidean, Metric::inner_product, Metric::cosine,
                                  Metric::hellinger, Metric::l1};
    constexpr std::int64_t dims[] = {1, 2, 3, 4, 5, 16, 17, 18, 20, 32, 33, 63, 64, 65, 127, 128, 129, 257, 300};
    Case c;
    c.metric = metrics[maker.draw(std::size(metrics))];
    c.dtype = static_cast<DType>(maker.draw(4));
    if (maker.draw(2) == 0) c.dtype = DType::f32;
    c.kind = static_cast<Kind>(maker.draw(kind_count));
    c.d = dims[maker.draw(std::size(dims))];
    if (maker.draw(40) == 0) c.d = 3000;
    c.n = 512 + static_cast<std::int64_t>(maker.draw(maker.draw(8) == 0 ? 3000 : 600));
    c.q = 1 + static_cast<std::int64_t>(maker.draw(maker.draw(4) == 0 ? 900 : 40));
    const double most = 8e6;
    c.q = std::max<std::int64_t>(1, std::min(c.q, static_cast<std::int64_t>(most / static_cast<double>(c.n * c.d))));
    const std::uint64_t k_limits[] = {1, 10, 100, 400, static_cast<std::uint64_t>(c.n) + 3};
    c.k = 1 + static_cast<std::int64_t>(maker.draw(k_limits[maker.draw(std::size(k_limits))]));
    c.seed = maker.draw(1u << 30);
    c.threads = 1 + static_cast<int>(maker.draw(8));
    c.hints.k = maker.draw(2) == 0 ? c.k : 1 + static_cast<std::int64_t>(maker.draw(1000));
    c.hints.queries = 2 + static_cast<std::int64_t>(maker.draw(100000));
    c.hints.batch = c.q;
    c.strided = maker.draw(4) == 0;
    check_any_op(maker, c);
  });
}

}  // namespace
}  // namespace gigaknn
