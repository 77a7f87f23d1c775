#include <gigaknn/gigaknn.hpp>

#include "commit.hpp"

namespace gigaknn {

const char* version() { return GIGAKNN_VERSION; }
const char* commit() { return GIGAKNN_COMMIT; }

}  // namespace gigaknn
