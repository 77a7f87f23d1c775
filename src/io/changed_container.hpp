// For tests: containers whose checksums are right and whose contents are not.
#pragma once

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "io/container.hpp"

namespace gigaknn::test {

/// What is done to a section and its bytes; one that loses its name is left out.
using SectionChange = std::function<void(Section&, std::string&)>;

inline void write_changed(const Container& whole, const std::filesystem::path& path, std::string_view name, const SectionChange& change) {
  ContainerWriter writer(path, whole.schema(), whole.schema_version());
  for (Section section : whole.sections()) {
    std::string bytes(reinterpret_cast<const char*>(whole.bytes_of(section).data()), section.bytes);
    if (section.name == name) change(section, bytes);
    if (!section.name.empty()) writer.add_section(section.name, section.element, section.rows, section.cols, bytes.data());
  }
  writer.finish();
}

inline SectionChange resized(std::uint64_t rows, std::uint64_t cols) {
  return [=](Section& section, std::string& bytes) {
    section.rows = rows;
    section.cols = cols;
    bytes.resize(rows * cols * size_of(section.element));
  };
}

template <class T>
SectionChange put(std::size_t offset, const T& value) {
  return [=](Section&, std::string& bytes) { std::memcpy(bytes.data() + offset, &value, sizeof value); };
}

inline SectionChange left_out() {
  return [](Section& section, std::string&) { section.name.clear(); };
}

}  // namespace gigaknn::test
