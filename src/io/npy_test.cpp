#include "io/npy.hpp"

#include <string>

#include "io/format.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

class Npy : public FileTest {
 protected:
  // A version-1 file with this dictionary and `data` behind it.
  std::filesystem::path npy(const std::string& dictionary,
                            const std::string& data = std::string(24, '\1'), char version = 1) {
    std::string bytes = "\x93NUMPY";
    bytes.push_back(version);
    bytes.push_back('\0');
    if (version == 1) append_value(bytes, static_cast<std::uint16_t>(dictionary.size()));
    if (version != 1) append_value(bytes, static_cast<std::uint32_t>(dictionary.size()));
    return file("a.npy", bytes + dictionary + data);
  }
  static std::string dictionary(const std::string& descr, const std::string& shape,
                                const std::string& order = "False") {
    return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  }
};

TEST_F(Npy, AllVersionsOrdersOfKeysAndSpellingsAreRead) {
  for (const char version : {'\1', '\2', '\3'}) {
    EXPECT_EQ(
        read_vectors(npy(dictionary("<f4", "(2, 3)"), std::string(24, '\1'), version)).matrix.cols,
        3);
  }
  EXPECT_EQ(read_vectors(npy("{\"shape\":(3L,2L),\"fortran_order\":False,\"descr\":\"=i4\"}"))
                .matrix.rows,
            3);
  EXPECT_EQ(read_vectors(npy(dictionary("|u1", "(24, 1)"))).matrix.rows, 24);
  EXPECT_EQ(read_vectors(npy(dictionary(">i1", "(1, 24)"))).matrix.dtype, DType::i8);
}

TEST_F(Npy, OneDimensionIsOneColumn) {
  const VectorRows rows = read_vectors(npy(dictionary("<i8", "(3,)")));
  EXPECT_EQ(rows.matrix.rows, 3);
  EXPECT_EQ(rows.matrix.cols, 1);
  EXPECT_EQ(read_vectors(npy(dictionary("<i8", "(3,)", "True"))).matrix.rows, 3);
}

TEST_F(Npy, ValuesAtAnOddOffsetAreCopied) {
  std::string data;
  for (int i = 0; i < 6; ++i) append_value(data, static_cast<float>(i));
  std::string text = dictionary("<f4", "(2, 3)");
  for (int pad = 0; pad < 8; ++pad, text += ' ') {
    const VectorRows rows = read_vectors(npy(text, data));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(rows.matrix.data) % 4, 0u);
    EXPECT_EQ(rows.matrix.row<float>(1)[2], 5.0f);
  }
}

TEST_F(Npy, WhatIsNotSupportedIsNamed) {
  const auto refused = [&](const std::string& text, const std::string& part) {
    expect_error(
        Fault::unsupported, [&] { read_vectors(npy(text)); }, file("a.npy").string(), part);
  };
  refused(dictionary("<f4", "(2, 3)", "True"),
          "Fortran order is not supported, save numpy.ascontiguousarray");
  refused(dictionary(">f4", "(2, 3)"),
          "big-endian values (>f4) are not supported, save them as '<f4'");
  refused(dictionary("|O", "(2, 3)"),
          "npy type '|O' is not supported, expected one of f4 f2 u1 i1 i4 i8");
  refused(dictionary("<f8", "(3,)"), "npy type '<f8'");
  refused(dictionary("|V2", "(3,)"), "npy type '|V2' is not supported, expected one of f4 f2 u1 i1 i4 i8, or <V2 for bfloat16");
  refused(dictionary(">V2", "(3,)"), "big-endian values (>V2)");
  refused(dictionary("", "(3,)"), "npy type ''");
  refused(dictionary("?f4", "(3,)"), "npy type '?f4'");
  refused(dictionary("<f4", "()"), "0 dimensions, expected 1 or 2");
  refused(dictionary("<f4", "(1, 2, 3)"), "3 dimensions, expected 1 or 2");
  refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}",
          "structured npy arrays");
  expect_error(
      Fault::unsupported, [&] { read_vectors(npy(dictionary("<f4", "(2, 3)"), "", '\4')); },
      "byte 6: npy version 4 is not supported, expected 1 to 3");
}

TEST_F(Npy, DamagedHeadersAreNamed) {
  const auto refused = [&](const std::string& text, const std::string& part) {
    expect_error(
        Fault::corrupt_file, [&] { read_vectors(npy(text)); }, file("a.npy").string(), ": byte ",
        part);
  };
  refused("", "expected '{' in the npy header, found its end");
  refused("[]", "expected '{' in the npy header, found '['");
  refused("{}", "the npy header lacks 'descr'");
  refused("{'descr': '<f4'}", "lacks 'fortran_order'");
  refused("{'descr': '<f4', 'fortran_order': False}", "lacks 'shape'");
  refused("{'descr': '<f4', 'descr': '<f4'}", "has 'descr' twice");
  refused("{'color': 3}", "unknown key 'color'");
  refused("{'descr", "a string in the npy header has no end");
  refused("{descr", "expected a quoted string");
  refused("{'descr' '<f4'}", "expected ':'");
  refused("{'descr': '<f4' 'shape'}", "expected ','");
  refused("{'fortran_order': Maybe}", "fortran_order is 'Maybe', expected True or False");
  refused("{'shape': (2, x)}", "expected a number in the shape");
  refused("{'shape': (2; 3)}", "expected ','");
  refused("{'shape': (99999999999999999999, 3)}",
          "a dimension in the npy header exceeds 9223372036854775807");
  refused(dictionary("<f4", "(2, 3)") + "x", "text after the dictionary");
  refused(dictionary("<f4", "(9223372036854775807, 9223372036854775807)"),
          "need 85070591730234615847396907784232501249 values");
  refused(dictionary("<f4", "(0, 3)"), "0 rows");
  refused(dictionary("<f4", "(3, 0)"), "0 columns");
  expect_error(
      Fault::corrupt_file, [&] { read_vectors(file("b.npy", "\x93NUMPX..........")); },
      "byte 5: not an npy file");
  expect_error(
      Fault::corrupt_file,
      [&] { read_vectors(file("b.npy", std::string("\x93NUMPY\1\0\xff\xff{}", 12))); },
      "byte 8: the npy header has 65535 bytes, but the file has only 2 after byte 10");
}

}  // namespace
}  // namespace gigaknn
