// Everything: #include <gigaknn/gigaknn.hpp>
#pragma once

#include <gigaknn/dataset.hpp>
#include <gigaknn/device.hpp>
#include <gigaknn/error.hpp>
#include <gigaknn/eval.hpp>
#include <gigaknn/faiss.hpp>
#include <gigaknn/graph.hpp>
#include <gigaknn/ids.hpp>
#include <gigaknn/index.hpp>
#include <gigaknn/kmeans.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/path.hpp>
#include <gigaknn/plan.hpp>
#include <gigaknn/progress.hpp>
#include <gigaknn/tune.hpp>

namespace gigaknn {

/// "0.1.0"
const char* version();
/// The commit this was built from, "unknown" outside a checkout.
const char* commit();

}  // namespace gigaknn
