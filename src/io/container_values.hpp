// Matrices, vectors and names in a container.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>

#include "io/container.hpp"

namespace gigaknn {

/// Of vectors: f32, f16, bf16, u8 or i8.
Element element_of(DType dtype);

/// Throws Error: corrupt_file where the container holds another schema, and unsupported where its version is another.
void require_schema(const Container& file, std::string_view schema, std::uint32_t version);

void add_matrix(ContainerWriter& writer, std::string_view name, MatrixRef rows);

/// A section as [rows, cols]; valid as long as a copy of `file.file()`. Throws Error: corrupt_file where there is none, or no vectors.
MatrixRef matrix_in(const Container& file, std::string_view name);

/// The values of a section; valid as long. Throws Error: corrupt_file where there is none of this element.
template <class T>
std::span<const T> values_in(const Container& file, std::string_view name, Element element) {
  const std::span<const std::byte> bytes = file.bytes_of(file.section(name, element));
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

/// A metric's name takes so many bytes, padded with zeros.
inline constexpr std::uint64_t metric_name_bytes = 16;
void append_metric(std::string& bytes, Metric metric);
/// Throws Error: corrupt_file where no metric is called so.
Metric metric_at(const FileBytes& file, std::uint64_t offset);

}  // namespace gigaknn
