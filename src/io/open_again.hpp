#pragma once

#include <filesystem>

#include <gigaknn/dataset.hpp>

namespace gigaknn {

/// As Dataset::open, of a file that was opened before: of .fvecs and .bvecs, whose rows have their dimension each, which takes reading the
/// whole file, that of the first and of the last is looked at.
Dataset open_again(const std::filesystem::path& path);

}  // namespace gigaknn
