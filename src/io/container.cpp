#include "io/container.hpp"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <utility>

#include "core/threads.hpp"
#include "io/container_layout.hpp"
#include "io/mapped_file.hpp"

namespace gigaknn {
namespace layout = container_layout;
namespace {

struct ElementType {
  Element element;
  std::size_t bytes;
  std::string_view name;
};
constexpr ElementType element_types[] = {
    {Element::u8, 1, "u8"},   {Element::i8, 1, "i8"},   {Element::f16, 2, "f16"},
    {Element::f32, 4, "f32"}, {Element::i32, 4, "i32"}, {Element::u32, 4, "u32"},
    {Element::i64, 8, "i64"}, {Element::u64, 8, "u64"}, {Element::f64, 8, "f64"},
    {Element::bf16, 2, "bf16"}};

const ElementType* find_type(std::uint32_t code) {
  for (const ElementType& type : element_types) {
    if (static_cast<std::uint32_t>(type.element) == code) return &type;
  }
  return nullptr;
}

std::string name_at(const FileBytes& file, std::uint64_t offset) {
  value_at<std::uint64_t>(file, offset + 8, "a name");
  const std::string_view field(reinterpret_cast<const char*>(file.bytes.data() + offset),
                               layout::name_bytes);
  return printable(field.substr(0, std::min(field.find('\0'), field.size())));
}

[[noreturn]] void fail_at_block(const FileBytes& file, const BadBlock& bad) {
  fail_at(file, bad.offset, "the block of section '", bad.section,
          "' that begins here is damaged: its checksum is wrong");
}

}  // namespace

std::size_t size_of(Element element) {
  return find_type(static_cast<std::uint32_t>(element))->bytes;
}
std::string_view name_of(Element element) {
  return find_type(static_cast<std::uint32_t>(element))->name;
}

Container Container::open(const std::filesystem::path& path) {
  return open(map_file(path));
}

bool is_container(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;  // a pipe would be waited for
  std::string begin(layout::magic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), static_cast<std::streamsize>(begin.size())) && begin == layout::magic;
}

Container Container::open(FileBytes file) {
  Container container;
  container.file_ = std::move(file);
  container.read_header();
  return container;
}

void Container::read_header() {
  for (std::size_t i = 0; i < layout::magic.size(); ++i) {
    require_at(value_at<char>(file_, i, "the magic") == layout::magic[i], file_, i,
               "not a gigaknn container: the first 8 bytes are not its magic");
  }
  const auto version = value_at<std::uint32_t>(file_, layout::version_at, "the container version");
  require(version == layout::version, Fault::unsupported, file_.name, ": byte ", layout::version_at,
          ": container version ", version, " is not supported, expected ", layout::version);
  const auto count = value_at<std::uint32_t>(file_, layout::section_count_at, "the section count");
  const auto checksum = checksum_ = value_at<std::uint64_t>(file_, layout::checksum_at, "the header");
  const auto table = value_at<std::uint64_t>(file_, layout::table_offset_at, "the table's offset");
  const auto bytes = value_at<std::uint64_t>(file_, layout::file_bytes_at, "the file size");
  require_at(bytes == file_.size(), file_, layout::file_bytes_at, "the header says ", bytes,
             " bytes, but the file has ", file_.size(), " bytes");
  require_at(table >= layout::header_bytes && table <= bytes, file_, layout::table_offset_at,
             "the table is said to begin at byte ", table, ", expected ", layout::header_bytes,
             " to ", bytes);
  require_at(count <= (bytes - table) / layout::entry_bytes, file_, layout::section_count_at, count,
             " sections do not fit a table of ", bytes - table, " bytes");

  XXH3_state_t* state = XXH3_createState();
  require(state != nullptr, Fault::out_of_memory, "no memory for a checksum");
  XXH3_64bits_reset(state);
  XXH3_64bits_update(state, file_.bytes.data(), layout::checksum_at);
  XXH3_64bits_update(state, file_.bytes.data() + table, bytes - table);
  const std::uint64_t actual = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  require_at(actual == checksum, file_, layout::checksum_at,
             "the checksum of header and table is wrong: they were damaged");
  schema_ = name_at(file_, layout::schema_at);
  schema_version_ = value_at<std::uint32_t>(file_, layout::schema_version_at, "the schema version");
  read_table(table, count);
}

// Sections must stand exactly where the writer puts them, so none overlaps another or the table.
void Container::read_table(std::uint64_t table_offset, std::uint32_t count) {
  std::uint64_t next = layout::header_bytes;
  std::uint64_t blocks = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t entry = table_offset + i * layout::entry_bytes;
    Section section = read_entry(entry, next);
    require_at(section.bytes <= table_offset - next, file_, entry + layout::section_bytes_at,
               "section '", section.name, "' has ", section.bytes, " bytes, expected at most ",
               table_offset - next);
    next = layout::aligned(next + section.bytes);
    require_at(next <= table_offset, file_, entry, "section '", section.name,
               "' runs into the table");
    blocks += container_blocks_of(section.bytes);
    sections_.push_back(std::move(section));
  }
  require_at(next == table_offset, file_, layout::table_offset_at, "the table begins at byte ",
             table_offset, ", expected ", next);
  checksums_offset_ = table_offset + count * layout::entry_bytes;
  require_at(blocks == (file_.size() - checksums_offset_) / 8 &&
                 (file_.size() - checksums_offset_) % 8 == 0,
             file_, checksums_offset_, blocks, " block checksums expected, but ",
             file_.size() - checksums_offset_, " bytes are there");
}

Section Container::read_entry(std::uint64_t entry, std::uint64_t section_offset) const {
  Section section;
  section.name = name_at(file_, entry + layout::section_name_at);
  section.offset =
      value_at<std::uint64_t>(file_, entry + layout::section_offset_at, "a section offset");
  section.bytes =
      value_at<std::uint64_t>(file_, entry + layout::section_bytes_at, "a section size");
  section.rows =
      value_at<std::uint64_t>(file_, entry + layout::section_rows_at, "a section's rows");
  section.cols =
      value_at<std::uint64_t>(file_, entry + layout::section_cols_at, "a section's columns");
  const auto code = value_at<std::uint32_t>(file_, entry + layout::element_at, "an element type");
  const ElementType* type = find_type(code);
  require_at(type != nullptr, file_, entry + layout::element_at, "element type ", code,
             " of section '", section.name, "' is unknown, expected 1 to ",
             std::size(element_types));
  section.element = type->element;
  require_at(section.offset == section_offset, file_, entry + layout::section_offset_at,
             "section '", section.name, "' begins at byte ", section.offset, ", expected ",
             section_offset);
  const WideSize elements = WideSize{section.rows} * section.cols;
  require_at(elements <= std::numeric_limits<std::uint64_t>::max() / type->bytes &&
                 elements * type->bytes == section.bytes,
             file_, entry + layout::section_bytes_at, "section '", section.name, "' of ",
             section.rows, " x ", section.cols, " ", type->name, " cannot have ", section.bytes,
             " bytes");
  return section;
}

const Section* Container::find_section(std::string_view name) const {
  for (const Section& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

const Section& Container::section(std::string_view name, Element element) const {
  const Section* section = find_section(name);
  require_at(section != nullptr, file_, layout::section_count_at, "section '", name,
             "' is missing");
  require_at(section->element == element, file_, section->offset, "section '", name, "' holds ",
             name_of(section->element), ", expected ", name_of(element));
  return *section;
}

std::span<const std::byte> Container::bytes_of(const Section& section) const {
  return file_.bytes.subspan(section.offset, section.bytes);
}

bool Container::has_checksum(const Section& section, std::uint64_t first_checksum, std::uint64_t block) const {
  const std::uint64_t begin = block * container_block_bytes;
  const std::uint64_t size = std::min(container_block_bytes, section.bytes - begin);
  const auto expected = value_at<std::uint64_t>(file_, first_checksum + block * 8, "a checksum");
  return XXH3_64bits(file_.bytes.data() + section.offset + begin, size) == expected;
}

std::optional<BadBlock> Container::find_bad_block(const RunOptions& run, AfterReading then) const {
  std::uint64_t first_checksum = checksums_offset_;
  for (const Section& section : sections_) {
    const std::uint64_t blocks = container_blocks_of(section.bytes);
    std::atomic<std::uint64_t> bad{blocks};
    parallel_for(
        run, static_cast<std::int64_t>(blocks), 1, [&](std::int64_t block, std::int64_t, int) {
          const auto number = static_cast<std::uint64_t>(block);
          const bool good = has_checksum(section, first_checksum, number);
          if (then == AfterReading::release) {
            const std::uint64_t begin = number * container_block_bytes;
            release_mapped(file_.bytes.data() + section.offset + begin, std::min(container_block_bytes, section.bytes - begin));
          }
          if (good) return;
          for (std::uint64_t lowest = bad;
               number < lowest && !bad.compare_exchange_weak(lowest, number);) {
          }
        });
    if (bad < blocks) return BadBlock{section.name, section.offset + bad * container_block_bytes};
    const std::uint64_t end = section.offset + section.bytes;
    for (std::uint64_t i = end; i < layout::aligned(end); ++i) {
      if (file_.bytes[i] != std::byte{0}) return BadBlock{section.name, i};
    }
    first_checksum += blocks * 8;
  }
  return std::nullopt;
}

void Container::verify(const RunOptions& run, AfterReading then) const {
  if (const std::optional<BadBlock> bad = find_bad_block(run, then)) fail_at_block(file_, *bad);
}

std::uint64_t Container::first_checksum_of(const Section& section) const {
  std::uint64_t first = checksums_offset_;
  for (const Section& other : sections_) {
    if (other.offset < section.offset) first += container_blocks_of(other.bytes) * 8;
  }
  return first;
}

bool Container::is_good(const Section& section, std::uint64_t block) const {
  return has_checksum(section, first_checksum_of(section), block);
}

void Container::verify_block(const Section& section, std::uint64_t block) const {
  if (!is_good(section, block)) fail_at_block(file_, {section.name, section.offset + block * container_block_bytes});
}

}  // namespace gigaknn
