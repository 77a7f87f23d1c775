// What tells one plan's inputs from another's.
#pragma once

#include <cstdint>
#include <string>

#include <gigaknn/plan.hpp>

namespace gigaknn {

/// Of the shape and some rows.
std::uint64_t base_checksum_of(MatrixRef base);
/// Throws Error: invalid_data unless `base` is still that of the plan.
void require_same_base(const GraphPlan& plan, MatrixRef base);
/// Of all that the plan says.
std::string plan_checksum_of(const GraphPlan& plan);

}  // namespace gigaknn
