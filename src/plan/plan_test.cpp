#include <gtest/gtest.h>
TEST(Plan, Placeholder) {}
