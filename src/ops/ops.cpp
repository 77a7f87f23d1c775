// What is done on devices that have no such op of their own: some refuse. Beside the devices alone, so that these link without the rest of
// the library.
#include "ops/ops.hpp"

#include <algorithm>

#include <gigaknn/ids.hpp>

#include "core/require.hpp"

namespace gigaknn {

UnusableRows Ops::unusable_rows(MatrixRef) const {
  fail(Fault::unsupported, "rows in the memory of a GPU are searched on it, not on ", name());
}

void Ops::nearest_set(const PreparedRows& base, MatrixRef queries, std::int64_t k, RowId* ids, const RunOptions& run) const {
  Neighbors found(queries.rows, k);
  nearest_rows(base, queries, k, NeighborsOut(found), run);
  std::copy(found.ids.begin(), found.ids.end(), ids);
}

}  // namespace gigaknn
