// As much of GoogleTest as the conformance tests use, for machines that have nvcc and nothing else
// (bench/gpu/run.sh). A program of tests takes substrings of the names it shall run; without any it
// runs all.
#pragma once

#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace testing {

struct Entry {
  std::string name;
  std::function<void()> run;
};
inline std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}
inline std::vector<std::function<void()>>&
expansions() {  // of parameterized tests, once all are known
  static std::vector<std::function<void()>> all;
  return all;
}
inline int failures = 0;
inline bool failed_here = false;

class AssertionResult {
 public:
  explicit AssertionResult(bool success) : success_(success) {}
  template <class T>
  AssertionResult& operator<<(const T& part) {
    std::ostringstream text;
    text << part;
    message_ += text.str();
    return *this;
  }
  explicit operator bool() const { return success_; }
  const std::string& message() const { return message_; }

 private:
  bool success_;
  std::string message_;
};
inline AssertionResult AssertionSuccess() {
  return AssertionResult(true);
}
inline AssertionResult AssertionFailure() {
  return AssertionResult(false);
}
inline AssertionResult result_of(AssertionResult result) {
  return result;
}
inline AssertionResult result_of(bool value) {
  return AssertionResult(value);
}

/// Reports a failure at the end of the statement.
class Failure {
 public:
  Failure(const char* file, int line, const std::string& what) {
    text_ << file << ':' << line << ": " << what << ' ';
  }
  ~Failure() {
    std::printf("%s\n", text_.str().c_str());
    failed_here = true;
  }
  template <class T>
  Failure& operator<<(const T& part) {
    text_ << part;
    return *this;
  }

 private:
  std::ostringstream text_;
};

/// Of an assertion: `return Return() = Failure(...) << ...` leaves a function without a value.
struct Return {
  void operator=(const Failure&) const {}
};

template <class Type, class Call>
bool throws(Call call) {
  try {
    call();
  } catch (const Type&) {
    return true;
  }
  return false;
}

class Test {
 public:
  virtual ~Test() = default;
  virtual void TestBody() = 0;
};

template <class T>
class TestWithParam : public Test {
 public:
  using ParamType = T;
  static const T& GetParam() { return *current(); }
  static const T*& current() {
    static const T* param = nullptr;
    return param;
  }
};

template <class T>
struct TestParamInfo {
  T param;
  std::size_t index;
};

template <class Container>
auto ValuesIn(const Container& container) {
  return std::vector<std::decay_t<decltype(*container.begin())>>(container.begin(),
                                                                 container.end());
}

template <class Suite>
struct Parameterized {
  using T = typename Suite::ParamType;
  struct Pattern {
    std::string name;
    std::function<void()> run;
  };
  static std::vector<Pattern>& patterns() {
    static std::vector<Pattern> all;
    return all;
  }
  template <class Namer>
  static bool instantiate(const std::string& prefix, std::vector<T> values, Namer namer) {
    expansions().push_back([=] {
      for (std::size_t i = 0; i < values.size(); ++i) {
        for (const Pattern& pattern : patterns()) {
          entries().push_back(
              {prefix + "/" + pattern.name + "/" + namer(TestParamInfo<T>{values[i], i}),
               [value = values[i], run = pattern.run] {
                 Suite::current() = &value;
                 run();
               }});
        }
      }
    });
    return true;
  }
};

inline int run_all(int argc, char** argv) {
  for (const auto& expand : expansions()) expand();
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const Entry& entry : entries()) std::printf("%s\n", entry.name.c_str());
    return 0;
  }
  int ran = 0;
  for (const Entry& entry : entries()) {
    bool wanted = argc <= 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || entry.name.find(argv[i]) != std::string::npos;
    if (!wanted) continue;
    ++ran;
    failed_here = false;
    try {
      entry.run();
    } catch (const std::exception& error) {
      Failure("", 0, "exception") << error.what();
    }
    if (failed_here) {
      ++failures;
      std::printf("[  FAILED  ] %s\n", entry.name.c_str());
    }
    std::fflush(stdout);
  }
  std::printf("%d tests ran, %d failed\n", ran, failures);
  return failures > 0 || ran == 0;
}

}  // namespace testing

#define TEST(suite, test)                                                                     \
  struct suite##_##test : testing::Test {                                                     \
    void TestBody() override;                                                                 \
  };                                                                                          \
  static const bool suite##_##test##_is_known =                                               \
      (testing::entries().push_back({#suite "." #test, [] { suite##_##test().TestBody(); }}), \
       true);                                                                                 \
  void suite##_##test::TestBody()
#define TEST_P(suite, test)                                          \
  struct suite##_##test : suite {                                    \
    void TestBody() override;                                        \
  };                                                                 \
  static const bool suite##_##test##_is_known =                      \
      (testing::Parameterized<suite>::patterns().push_back(          \
           {#suite "." #test, [] { suite##_##test().TestBody(); }}), \
       true);                                                        \
  void suite##_##test::TestBody()
#define INSTANTIATE_TEST_SUITE_P(prefix, suite, values, namer) \
  static const bool prefix##_##suite##_is_known =              \
      testing::Parameterized<suite>::instantiate(#prefix, values, namer)

#define GIGAKNN_EXPECT(condition, what)                                                \
  if (const testing::AssertionResult result = testing::result_of(condition); result) { \
  } else                                                                               \
    testing::Failure(__FILE__, __LINE__, what) << result.message() << ' '
#define EXPECT_TRUE(condition) GIGAKNN_EXPECT(condition, "expected: " #condition)
#define EXPECT_FALSE(condition) GIGAKNN_EXPECT(!(condition), "expected not: " #condition)
#define EXPECT_EQ(a, b) GIGAKNN_EXPECT((a) == (b), "expected: " #a " == " #b)
#define EXPECT_NE(a, b) GIGAKNN_EXPECT((a) != (b), "expected: " #a " != " #b)
#define EXPECT_LT(a, b) GIGAKNN_EXPECT((a) < (b), "expected: " #a " < " #b)
#define EXPECT_LE(a, b) GIGAKNN_EXPECT((a) <= (b), "expected: " #a " <= " #b)
#define EXPECT_GT(a, b) GIGAKNN_EXPECT((a) > (b), "expected: " #a " > " #b)
#define EXPECT_GE(a, b) GIGAKNN_EXPECT((a) >= (b), "expected: " #a " >= " #b)
#define GIGAKNN_ASSERT(condition, what)                                                \
  if (const testing::AssertionResult result = testing::result_of(condition); result) { \
  } else                                                                               \
    return testing::Return() =                                                         \
               testing::Failure(__FILE__, __LINE__, what) << result.message() << ' '
#define ASSERT_TRUE(condition) GIGAKNN_ASSERT(condition, "expected: " #condition)
#define ASSERT_LE(a, b) GIGAKNN_ASSERT((a) <= (b), "expected: " #a " <= " #b)
#define ASSERT_LT(a, b) GIGAKNN_ASSERT((a) < (b), "expected: " #a " < " #b)
#define EXPECT_NO_THROW(statement)                                      \
  GIGAKNN_EXPECT(!testing::throws<std::exception>([&] { statement; }), \
                 "expected no exception: " #statement)
#define EXPECT_THROW(statement, Type)                        \
  GIGAKNN_EXPECT(testing::throws<Type>([&] { statement; }), \
                 "expected an exception: " #statement)
#define SCOPED_TRACE(message)  // failures here are few and found again where GoogleTest is
#define ADD_FAILURE() testing::Failure(__FILE__, __LINE__, "failure")
