#include "io/container_values.hpp"

#include <algorithm>

namespace gigaknn {
namespace {

struct ElementOf {
  DType dtype;
  Element element;
};
constexpr ElementOf elements[] = {
    {DType::f32, Element::f32}, {DType::f16, Element::f16}, {DType::bf16, Element::bf16}, {DType::u8, Element::u8}, {DType::i8, Element::i8}};

}  // namespace

Element element_of(DType dtype) {
  return std::find_if(std::begin(elements), std::end(elements), [&](const ElementOf& e) { return e.dtype == dtype; })->element;
}

void require_schema(const Container& file, std::string_view schema, std::uint32_t version) {
  require_at(file.schema() == schema, file.file(), 16, "holds '", file.schema(), "', expected '", schema, "'");
  require(file.schema_version() == version, Fault::unsupported, file.file().name, ": byte 32: ", schema, " version ", file.schema_version(),
          " is not supported, expected ", version);
}

void add_matrix(ContainerWriter& writer, std::string_view name, MatrixRef rows) {
  writer.add_section(name, element_of(rows.dtype), static_cast<std::uint64_t>(rows.rows), static_cast<std::uint64_t>(rows.cols), rows.data);
}

MatrixRef matrix_in(const Container& file, std::string_view name) {
  const Section* section = file.find_section(name);
  require_at(section != nullptr, file.file(), 0, "has no section '", name, "'");
  const auto* found =
      std::find_if(std::begin(elements), std::end(elements), [&](const ElementOf& e) { return e.element == section->element; });
  require_at(found != std::end(elements), file.file(), section->offset, "section '", name, "' holds ", name_of(section->element),
             ", no vectors");
  return {file.bytes_of(*section).data(), static_cast<std::int64_t>(section->rows), static_cast<std::int64_t>(section->cols), found->dtype};
}

void append_metric(std::string& bytes, Metric metric) {
  std::string name(name_of(metric));
  name.resize(metric_name_bytes, '\0');
  bytes += name;
}

Metric metric_at(const FileBytes& file, std::uint64_t offset) {
  std::string name(reinterpret_cast<const char*>(file.bytes.data() + offset), metric_name_bytes);
  name.resize(std::min(name.find('\0'), name.size()));
  for (const Metric metric : all_metrics()) {
    if (name_of(metric) == name) return metric;
  }
  fail_at(file, offset, "unknown metric '", printable(name), "'");
}

}  // namespace gigaknn
