// A curve of recall in the file of an index: sections "curve_of" and "curve", which may be absent (docs/formats.md).
#pragma once

#include <optional>
#include <string_view>

#include <gigaknn/tune.hpp>

#include "io/container.hpp"

namespace gigaknn {

inline constexpr std::string_view curve_facts_section = "curve_of", curve_points_section = "curve";

/// Throws Error: invalid_argument for what `curve_in` would refuse.
void require_curve(const RecallCurve& curve);
void add_curve(ContainerWriter& writer, const RecallCurve& curve);

/// None where there is none. Throws Error: corrupt_file.
std::optional<RecallCurve> curve_in(const Container& file);

}  // namespace gigaknn
