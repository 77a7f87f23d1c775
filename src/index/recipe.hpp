// What an index is made of, as a line of text: Faiss's factory strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gigaknn {

/// What is done to rows before they stand in lists.
struct TransformRecipe {
  enum class Kind { pca, random_rotation, opq };
  Kind kind = Kind::pca;
  std::int64_t dims = 0;   ///< that are left; 0: all
  std::int64_t parts = 0;  ///< of opq
  bool whiten = false;     ///< of pca
};

struct IndexRecipe {
  bool inverted = true;         ///< false: full vectors that are all looked at
  std::int64_t lists = 0;       ///< 0: as many as suit
  std::int64_t code_bytes = 0;  ///< of product codes; 0: none
  int code_bits = 8;            ///< of a part of these
  int rabitq_bits = 0;          ///< of a dimension, of codes of RaBitQ; 0: none
  bool scalar = false;          ///< quantized rows, a byte a dimension, with full vectors behind them
  std::int64_t reduced_dims = 0;  ///< of these, that PCA leaves; 0: all, as they stand
  bool refine = false;          ///< codes, or transformed rows, with full vectors behind them
  std::optional<TransformRecipe> transform = std::nullopt;  ///< of full vectors and codes

  bool codes() const { return code_bytes > 0 || rabitq_bits > 0; }
};

/// "Flat", "IVF1024,Flat", "IVF,Flat", "IVF1024,PQ16", "IVF1024,PQ32x4", "IVF1024,PQ16,RFlat", "PCA48,IVF1024,SQ8,RFlat" or "IVF1024,SQ8,RFlat";
/// IVF64,RaBitQ4, and this with ,RFlat, behind RR, RR64 or nothing, which is RR; before IVF..,Flat, IVF..,PQ16 and these with ,RFlat "PCA64", "PCAW64", "RR", "RR64", "OPQ16" or "OPQ20_80". Throws Error: unsupported where a word is known but not built, invalid_argument where it says nothing.
IndexRecipe parse_recipe(const std::string& text);

}  // namespace gigaknn
