// What an index is made of, as a line of text: Faiss's factory strings.
#pragma once

#include <cstdint>
#include <string>

namespace gigaknn {

struct IndexRecipe {
  std::int64_t lists = 0;  ///< 0: as many as suit
};

/// "IVF1024,Flat" or "IVF,Flat". Throws Error: unsupported where a word is known but not built, invalid_argument where it says nothing.
IndexRecipe parse_recipe(const std::string& text);

}  // namespace gigaknn
