// What refuses, of devices that have no such op. Beside the devices alone, so that these link without the rest of the library.
#include "ops/ops.hpp"

#include "core/require.hpp"

namespace gigaknn {

UnusableRows Ops::unusable_rows(MatrixRef) const {
  fail(Fault::unsupported, "rows in the memory of a GPU are searched on it, not on ", name());
}

}  // namespace gigaknn
