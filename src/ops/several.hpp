// Several devices as one: each holds the whole base and answers its share of the queries, or each
// holds a part of the base (a shard), or groups of devices hold shards and share the queries. Lists
// are merged in the total order, so the result is that of one device, bit for bit.
#pragma once

#include <memory>
#include <vector>

#include "ops/ops.hpp"

namespace gigaknn {

/// `shards` divides the number of devices. Borrows `devices`.
/// Throws Error: invalid_argument.
std::unique_ptr<Ops> make_several(std::vector<const Ops*> devices, int shards);

}  // namespace gigaknn
