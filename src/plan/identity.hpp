// What tells one plan's inputs from another's.
#pragma once

#include <cstdint>
#include <string>

#include <gigaknn/plan.hpp>

namespace gigaknn {

/// Of the shape and some rows.
std::uint64_t base_checksum_of(MatrixRef base);
/// Of all that the plan says.
std::string plan_checksum_of(const GraphPlan& plan);

}  // namespace gigaknn
