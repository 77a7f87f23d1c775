#include "io/container.hpp"

#include <xxhash.h>

#include <string>
#include <vector>

#include "io/container_layout.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace layout = container_layout;
namespace {

class Containers : public FileTest {
 protected:
  std::filesystem::path write_small() const {
    ContainerWriter writer(file("a.gknn"), "test", 3);
    writer.add_section("rows", Element::f32, 5, 3, std::vector<float>(15, 1.5f).data());
    writer.add_section("empty", Element::i64, 0, 7, nullptr);
    writer.add_section("labels", Element::u8, 1, 70, std::string(70, 'x').data());
    writer.finish();
    return file("a.gknn");
  }
  // Changes fields and gives the header its right checksum again: what a damaged writer could
  // leave.
  template <class T>
  static std::string with(std::string bytes, std::uint64_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    std::uint64_t table;
    std::memcpy(&table, bytes.data() + layout::table_offset_at, sizeof table);
    if (table > bytes.size()) return bytes;
    const std::string covered = bytes.substr(0, layout::checksum_at) + bytes.substr(table);
    const std::uint64_t checksum = XXH3_64bits(covered.data(), covered.size());
    std::memcpy(bytes.data() + layout::checksum_at, &checksum, sizeof checksum);
    return bytes;
  }
  void refused(const std::string& bytes, Fault fault, const std::string& part) const {
    const auto path = file("bad.gknn", bytes);
    expect_error(
        fault, [&] { Container::open(path).verify(); }, path.string(), ": byte ", part);
  }
};

TEST_F(Containers, SectionsComeBackAligned) {
  const Container container = Container::open(write_small());
  EXPECT_EQ(container.schema(), "test");
  EXPECT_EQ(container.schema_version(), 3u);
  ASSERT_EQ(container.sections().size(), 3u);
  const Section& rows = container.section("rows", Element::f32);
  EXPECT_EQ(rows.rows, 5u);
  EXPECT_EQ(rows.cols, 3u);
  EXPECT_EQ(rows.bytes, 60u);
  for (const Section& section : container.sections()) EXPECT_EQ(section.offset % 64, 0u);
  float value;
  std::memcpy(&value, container.bytes_of(rows).data() + 56, sizeof value);
  EXPECT_EQ(value, 1.5f);
  EXPECT_EQ(container.find_section("empty")->bytes, 0u);
  EXPECT_EQ(container.find_section("none"), nullptr);
  EXPECT_FALSE(container.find_bad_block());
}

TEST_F(Containers, AMissingOrOtherSectionIsNamed) {
  const Container container = Container::open(write_small());
  expect_error(
      Fault::corrupt_file, [&] { container.section("none", Element::u8); },
      "section 'none' is missing");
  expect_error(
      Fault::corrupt_file, [&] { container.section("rows", Element::i32); },
      "section 'rows' holds f32, expected i32");
}

TEST_F(Containers, PiecesOfAnySizeGiveTheSameFile) {
  std::vector<std::uint8_t> data(2 * container_block_bytes + 12345);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i * i >> 7);
  std::string first;
  for (const std::size_t piece : {data.size(), std::size_t{1} << 20, std::size_t{99991}}) {
    ContainerWriter writer(file("a.gknn"), "test", 1);
    writer.begin_section("data", Element::u8, 1, data.size());
    for (std::size_t at = 0; at < data.size(); at += piece)
      writer.append(data.data() + at, std::min(piece, data.size() - at));
    writer.finish();
    if (first.empty()) first = bytes_of(file("a.gknn"));
    EXPECT_TRUE(bytes_of(file("a.gknn")) == first) << piece;
  }
}

TEST_F(Containers, TheFirstBadBlockIsFound) {
  const std::vector<std::uint8_t> data(5 * container_block_bytes / 2, 7);
  ContainerWriter writer(file("a.gknn"), "test", 1);
  writer.add_section("small", Element::u8, 1, 10, data.data());
  writer.add_section("data", Element::u8, 1, data.size(), data.data());
  writer.finish();
  const std::string whole = bytes_of(file("a.gknn"));
  for (const std::uint64_t block : {0, 1, 2}) {
    std::string bytes = whole;
    const std::uint64_t begin = 128 + block * container_block_bytes;
    bytes[begin + 100] ^= 1;
    bytes[whole.size() - 200] ^= 1;  // in the last block as well
    const auto bad = Container::open(file("bad.gknn", bytes)).find_bad_block();
    ASSERT_TRUE(bad);
    EXPECT_EQ(bad->section, "data");
    EXPECT_EQ(bad->offset, begin);
  }
  std::string bytes = whole;
  bytes[74] = 1;  // padding behind "small"
  EXPECT_EQ(Container::open(file("bad.gknn", bytes)).find_bad_block()->offset, 74u);
  refused(bytes, Fault::corrupt_file,
          "byte 74: the block of section 'small' that begins here is damaged");
}

TEST_F(Containers, EveryCutAndEveryFlippedBitIsFound) {
  const std::string whole = bytes_of(write_small());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(Container::open(file("bad", whole.substr(0, size))), Error) << size;
  }
  EXPECT_THROW(Container::open(file("bad", whole + '\0')), Error);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_THROW(Container::open(file("bad", bytes)).verify(), Error) << "bit " << bit;
  }
}

TEST_F(Containers, WrongFieldsUnderRightChecksumsAreRefused) {
  const std::string good = bytes_of(write_small());
  std::uint64_t table;
  std::memcpy(&table, good.data() + layout::table_offset_at, sizeof table);
  const std::uint64_t huge = ~std::uint64_t{0};
  refused("GKNNnot a container at all", Fault::corrupt_file, "not a gigaknn container");
  refused(with(good, layout::version_at, 2u), Fault::unsupported,
          "container version 2 is not supported, expected 1");
  refused(with(good, layout::file_bytes_at, huge), Fault::corrupt_file,
          "the header says 18446744073709551615 bytes");
  refused(with(good, layout::table_offset_at, huge), Fault::corrupt_file,
          "the table is said to begin at byte 18446744073709551615");
  refused(with(good, layout::table_offset_at, std::uint64_t{8}), Fault::corrupt_file,
          "begin at byte 8, expected 64");
  refused(with(good, layout::section_count_at, ~0u), Fault::corrupt_file,
          "4294967295 sections do not fit");
  refused(with(good, layout::section_count_at, 2u), Fault::corrupt_file,
          "the table begins at byte 256, expected 128");
  refused(with(good, table + layout::section_offset_at, std::uint64_t{128}), Fault::corrupt_file,
          "section 'rows' begins at byte 128, expected 64");
  refused(with(good, table + layout::section_rows_at, huge), Fault::corrupt_file,
          "section 'rows' of 18446744073709551615 x 3 f32 cannot have 60 bytes");
  refused(with(good, table + layout::section_bytes_at, huge), Fault::corrupt_file,
          "cannot have 18446744073709551615 bytes");
  refused(with(good, table + layout::element_at, 77u), Fault::corrupt_file,
          "element type 77 of section 'rows' is unknown, expected 1 to 10");
  // The whole section grows beyond the table, or up to it.
  std::string grown = with(good, table + layout::section_bytes_at, std::uint64_t{6000});
  refused(with(grown, table + layout::section_rows_at, std::uint64_t{500}), Fault::corrupt_file,
          "section 'rows' has 6000 bytes, expected at most 192");
  std::string longer = good + std::string(8, '\0');
  refused(with(longer, layout::file_bytes_at, std::uint64_t{longer.size()}), Fault::corrupt_file,
          "2 block checksums expected, but 24 bytes are there");
  std::string damaged = good;
  damaged[layout::schema_at] = 'X';
  refused(damaged, Fault::corrupt_file, "the checksum of header and table is wrong");
}

TEST_F(Containers, ThreadsDoNotChangeWhatIsFound) {
  const Container container = Container::open(write_small());
  for (const int threads : {1, 2, 7}) {
    RunOptions run;  // testing::Test has a RunOptions of its own
    run.threads = threads;
    EXPECT_FALSE(container.find_bad_block(run));
  }
}

TEST_F(Containers, WritersRefuseMisuse) {
  expect_error(
      Fault::invalid_argument, [&] { ContainerWriter(file("b"), "", 1); },
      "'' cannot name a section or schema");
  expect_error(
      Fault::invalid_argument, [&] { ContainerWriter(file("b"), "seventeen_letters", 1); },
      "expected 1 to 16 letters");
  ContainerWriter writer(file("b"), "test", 1);
  expect_error(
      Fault::invalid_argument, [&] { writer.begin_section("a b", Element::u8, 1, 1); },
      "'a b' cannot name");
  expect_error(
      Fault::invalid_argument, [&] { writer.begin_section("x", Element::u8, ~0ull, ~0ull); },
      "is too large");
  writer.begin_section("x", Element::u8, 1, 2);
  expect_error(
      Fault::invalid_argument, [&] { writer.append("abc", 3); }, "3 bytes do not fit the 2");
  writer.append("a", 1);
  expect_error(
      Fault::invalid_argument, [&] { writer.begin_section("y", Element::u8, 1, 1); },
      "a section lacks 1 bytes");
  expect_error(
      Fault::invalid_argument, [&] { writer.finish(); }, "a section lacks 1 bytes");
}

}  // namespace
}  // namespace gigaknn
