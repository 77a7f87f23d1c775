// What an index is made of, as a line of text: Faiss's factory strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <gigaknn/matrix.hpp>

namespace gigaknn {

/// What is done to rows before they stand in lists.
struct TransformRecipe {
  enum class Kind { pca, random_rotation, opq };
  Kind kind = Kind::pca;
  std::int64_t dims = 0;   ///< that are left; 0: all
  std::int64_t parts = 0;  ///< of opq
  bool whiten = false;     ///< of pca
  bool rotated = false;    ///< pca with a rotation at random behind it
};

struct IndexRecipe {
  bool inverted = true;         ///< false: full vectors that are all looked at
  std::int64_t lists = 0;       ///< 0: as many as suit
  std::int64_t code_bytes = 0;  ///< of product codes; 0: none
  int code_bits = 8;            ///< of a part of these
  bool each_dim = false;        ///< product codes of one dimension a part, whose bytes depend on the dimensions: SQ4, SQ6, SQ8d
  int rabitq_bits = 0;          ///< of a dimension, of codes of RaBitQ; 0: none
  DType listed = DType::f32;    ///< of rows that are quantized: i8, f16 or bf16; f32: none are
  bool refine = false;          ///< full vectors behind what lists hold, where that is something else
  std::optional<TransformRecipe> transform = std::nullopt;

  bool codes() const { return code_bytes > 0 || each_dim || rabitq_bits > 0; }
  bool keeps_rows() const { return refine || (!codes() && listed == DType::f32 && !transform); }
};

/// "Flat", or what rows become before the lists, the lists, what these hold, and full vectors behind it:
///
///   PCA64, PCAR64, PCAW64, RR, RR64, OPQ16, OPQ20_80, or nothing | IVF1024, IVF | Flat, PQ16, PQ32x4, PQ32x6, SQ8, SQfp16, SQbf16, SQ8d,
///   SQ6, SQ4, RaBitQ4 | RFlat, or nothing
///
/// Flat has RFlat behind it where rows are transformed; before RaBitQ rows are rotated: nothing is RR, PCA64 is PCAR64. Throws Error:
/// unsupported where a word is known but not built, invalid_argument where it says nothing.
IndexRecipe parse_recipe(const std::string& text);

}  // namespace gigaknn
