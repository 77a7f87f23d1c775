#include <xxhash.h>

#include <algorithm>
#include <string>

#include "io/container.hpp"
#include "io/container_layout.hpp"
#include "io/encoding.hpp"

namespace gigaknn {
namespace layout = container_layout;
namespace {

std::string padded_name(const OutputFile& file, std::string_view name) {
  const bool fits = !name.empty() && name.size() <= layout::name_bytes;
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  require(fits && plain, Fault::invalid_argument, printable(file.path().string()), ": '",
          printable(name),
          "' cannot name a section or schema, expected 1 to 16 letters, digits, '_' or '-'");
  std::string padded(name);
  padded.resize(layout::name_bytes, '\0');
  return padded;
}

}  // namespace

struct ContainerWriter::BlockHash {
  XXH3_state_t* state = XXH3_createState();
  std::uint64_t bytes = 0;  ///< of the open block

  BlockHash() {
    require(state != nullptr, Fault::out_of_memory, "no memory for a checksum");
    XXH3_64bits_reset(state);
  }
  ~BlockHash() { XXH3_freeState(state); }
  std::uint64_t take() {
    const std::uint64_t checksum = XXH3_64bits_digest(state);
    XXH3_64bits_reset(state);
    bytes = 0;
    return checksum;
  }
};

ContainerWriter::ContainerWriter(const std::filesystem::path& path, std::string_view schema,
                                 std::uint32_t schema_version)
    : file_(path),
      schema_(padded_name(file_, schema)),
      schema_version_(schema_version),
      hash_(std::make_unique<BlockHash>()) {
  const std::string place(layout::header_bytes, '\0');
  file_.write(place.data(), place.size());
}

ContainerWriter::~ContainerWriter() = default;

void ContainerWriter::begin_section(std::string_view name, Element element, std::uint64_t rows,
                                    std::uint64_t cols) {
  end_section();
  const WideSize bytes = WideSize{rows} * cols;
  require(bytes <= (WideSize{1} << 59), Fault::invalid_argument, printable(file_.path().string()),
          ": section '", printable(name), "' of ", rows, " x ", cols, " values is too large");
  Section section{std::string(name),
                  element,
                  rows,
                  cols,
                  file_.size(),
                  static_cast<std::uint64_t>(bytes) * size_of(element)};
  padded_name(file_, name);
  open_bytes_ = section.bytes;
  sections_.push_back(std::move(section));
}

void ContainerWriter::append(const void* data, std::size_t bytes) {
  require(bytes <= open_bytes_, Fault::invalid_argument, printable(file_.path().string()), ": ",
          bytes, " bytes do not fit the ", open_bytes_, " that the section still takes");
  file_.write(data, bytes);
  open_bytes_ -= bytes;
  const auto* source = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const std::size_t part = std::min<std::size_t>(bytes, container_block_bytes - hash_->bytes);
    XXH3_64bits_update(hash_->state, source, part);
    hash_->bytes += part;
    source += part;
    bytes -= part;
    if (hash_->bytes == container_block_bytes) checksums_.push_back(hash_->take());
  }
}

void ContainerWriter::add_section(std::string_view name, Element element, std::uint64_t rows,
                                  std::uint64_t cols, const void* data) {
  begin_section(name, element, rows, cols);
  append(data, open_bytes_);
}

void ContainerWriter::end_section() {
  require(open_bytes_ == 0, Fault::invalid_argument, printable(file_.path().string()),
          ": a section lacks ", open_bytes_, " bytes");
  if (hash_->bytes > 0) checksums_.push_back(hash_->take());
  const std::string zeros(layout::aligned(file_.size()) - file_.size(), '\0');
  file_.write(zeros.data(), zeros.size());
}

void ContainerWriter::finish() {
  end_section();
  std::string table;
  for (const Section& section : sections_) {
    table += padded_name(file_, section.name);
    append_value(table, section.offset);
    append_value(table, section.bytes);
    append_value(table, section.rows);
    append_value(table, section.cols);
    append_value(table, static_cast<std::uint32_t>(section.element));
    table.append(12, '\0');
  }
  for (const std::uint64_t checksum : checksums_) append_value(table, checksum);

  std::string header(layout::magic);
  append_value(header, layout::version);
  append_value(header, static_cast<std::uint32_t>(sections_.size()));
  header += schema_;
  append_value(header, schema_version_);
  append_value(header, std::uint32_t{0});
  append_value(header, file_.size());
  append_value(header, file_.size() + table.size());
  const std::string covered = header + table;
  append_value(header, XXH3_64bits(covered.data(), covered.size()));

  file_.write(table.data(), table.size());
  file_.write_at(0, header.data(), header.size());
  file_.finish();
}

}  // namespace gigaknn
