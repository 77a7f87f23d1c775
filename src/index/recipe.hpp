// What an index is made of, as a line of text: Faiss's factory strings.
#pragma once

#include <cstdint>
#include <string>

namespace gigaknn {

struct IndexRecipe {
  bool inverted = true;         ///< false: full vectors that are all looked at
  std::int64_t lists = 0;       ///< 0: as many as suit
  std::int64_t code_bytes = 0;  ///< of product codes; 0: full vectors
  int code_bits = 8;            ///< of a part of these
  bool scalar = false;          ///< quantized rows, a byte a dimension, with full vectors behind them
  std::int64_t reduced_dims = 0;  ///< of these, that PCA leaves; 0: all, as they stand
  bool refine = false;          ///< product codes with full vectors behind them
};

/// "Flat", "IVF1024,Flat", "IVF,Flat", "IVF1024,PQ16", "IVF1024,PQ32x4", "IVF1024,PQ16,RFlat", "PCA48,IVF1024,SQ8,RFlat" or "IVF1024,SQ8,RFlat". Throws Error: unsupported where a word is known but not built, invalid_argument where it says nothing.
IndexRecipe parse_recipe(const std::string& text);

}  // namespace gigaknn
