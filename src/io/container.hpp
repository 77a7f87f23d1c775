// The project's own container: named sections that can be mapped, each block under a checksum.
//
//        0  header, 64 bytes          magic, versions, schema name, where the table is, checksum
//       64  section 0                 padded with zeros to a multiple of 64
//        .  section 1 ...
//    table  one 64-byte entry a section, then XXH3-64 of each 1 MiB block of section 0, section 1,
//    ...
//
// docs/formats.md draws it to the byte. Nothing in it depends on time, host or threads: same
// contents, same bytes. Every byte of the file is under a checksum or must be zero.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gigaknn/progress.hpp>

#include "io/file_bytes.hpp"
#include "io/output_file.hpp"

namespace gigaknn {

/// Element types of sections; the numbers are those in the file and never change.
enum class Element : std::uint32_t {
  u8 = 1,
  i8 = 2,
  f16 = 3,
  f32 = 4,
  i32 = 5,
  u32 = 6,
  i64 = 7,
  u64 = 8,
  f64 = 9,
  bf16 = 10
};

std::size_t size_of(Element element);
std::string_view name_of(Element element);

/// A matrix [rows, cols] in a container.
struct Section {
  std::string name;
  Element element = Element::u8;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::uint64_t offset = 0;  ///< in the file, a multiple of 64
  std::uint64_t bytes = 0;  ///< rows * cols * size_of(element)
};

/// Whether a file begins as a container, whatever it is called.
bool is_container(const std::filesystem::path& path);

inline constexpr std::uint64_t container_block_bytes = std::uint64_t{1} << 20;

/// Writes a container; it appears under its name at `finish`, whole.
class ContainerWriter {
 public:
  /// `schema`: 1 to 16 letters, digits, '_' or '-'. Throws Error: io, invalid_argument.
  ContainerWriter(const std::filesystem::path& path, std::string_view schema,
                  std::uint32_t schema_version);
  ~ContainerWriter();

  /// Begins a section, whose bytes `append` then brings in pieces of any size.
  void begin_section(std::string_view name, Element element, std::uint64_t rows,
                     std::uint64_t cols);
  void append(const void* data, std::size_t bytes);
  /// Both in one.
  void add_section(std::string_view name, Element element, std::uint64_t rows, std::uint64_t cols,
                   const void* data);
  /// Throws Error: invalid_argument (the last section lacks bytes), io.
  void finish();

 private:
  struct BlockHash;
  void end_section();

  OutputFile file_;
  std::string schema_;
  std::uint32_t schema_version_;
  std::vector<Section> sections_;
  std::vector<std::uint64_t> checksums_;
  std::uint64_t open_bytes_ = 0;  ///< bytes of the last section that are still to come
  std::unique_ptr<BlockHash> hash_;
};

/// Of a section that is so long.
inline std::uint64_t container_blocks_of(std::uint64_t bytes) { return (bytes + container_block_bytes - 1) / container_block_bytes; }

/// A block that is not what was written.
struct BadBlock {
  std::string section;
  std::uint64_t offset = 0;  ///< in the file
};

/// Whether pages that have been looked at stay in this process's memory, or go at once, so that a file of any size takes little.
enum class AfterReading : std::uint8_t { keep, release };

/// A container opened for reading. Opening checks the header and the table, not the sections'
/// contents.
class Container {
 public:
  /// Throws Error: io, corrupt_file, unsupported (a later version).
  static Container open(const std::filesystem::path& path);
  static Container open(FileBytes file);

  const std::string& schema() const { return schema_; }
  std::uint32_t schema_version() const { return schema_version_; }
  const std::vector<Section>& sections() const { return sections_; }
  const FileBytes& file() const { return file_; }

  /// The section called `name` with `element`; throws Error: corrupt_file where there is none.
  const Section& section(std::string_view name, Element element) const;
  const Section* find_section(std::string_view name) const;
  /// Its mapped bytes; valid as long as a copy of `file()`.
  std::span<const std::byte> bytes_of(const Section& section) const;

  /// Of header and table, which has the checksums of all blocks: other contents have another.
  std::uint64_t checksum() const { return checksum_; }

  /// Compares every block with its checksum, and the padding with zero; the first bad one, if any.
  std::optional<BadBlock> find_bad_block(const RunOptions& run = {}, AfterReading then = AfterReading::keep) const;
  /// Throws Error: corrupt_file where `find_bad_block` finds one.
  void verify(const RunOptions& run = {}, AfterReading then = AfterReading::keep) const;
  /// As `verify`, for one block of a section: its bytes from `block` * container_block_bytes on.
  void verify_block(const Section& section, std::uint64_t block) const;
  bool is_good(const Section& section, std::uint64_t block) const;

 private:
  std::uint64_t first_checksum_of(const Section& section) const;
  bool has_checksum(const Section& section, std::uint64_t first_checksum, std::uint64_t block) const;
  void read_header();
  void read_table(std::uint64_t table_offset, std::uint32_t count);
  Section read_entry(std::uint64_t offset, std::uint64_t section_offset) const;

  FileBytes file_;
  std::string schema_;
  std::uint32_t schema_version_ = 0;
  std::uint64_t checksum_ = 0;
  std::vector<Section> sections_;
  std::uint64_t checksums_offset_ = 0;
};

}  // namespace gigaknn
