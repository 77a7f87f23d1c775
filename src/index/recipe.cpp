#include "index/recipe.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/require.hpp"
#include "io/file_bytes.hpp"

namespace gigaknn {
namespace {

constexpr std::string_view allowed = "allowed: Flat, IVF<lists>,Flat and IVF<lists>,PQ<bytes> or PQ<parts>x4 (of an even number of parts) with ,RFlat or without and PCA<dims>,IVF<lists>,SQ8,RFlat with PCA<dims>, or without, and IVF<lists>,RaBitQ or RaBitQ<1, 2, 4 or 8 bits> with ,RFlat or without, behind RR, RR<dims> or nothing; "
    "IVF alone: lists as suit; before IVF<lists>,Flat and PQ: PCA<dims>, PCAW<dims>, RR, RR<dims>, OPQ<parts> or OPQ<parts>_<dims>";

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

// The number of a word that is `name` and a number from 1 on.
std::optional<std::int64_t> number_behind(std::string_view word, std::string_view name) {
  if (!word.starts_with(name)) return std::nullopt;
  const std::string_view digits = word.substr(name.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 1) return std::nullopt;
  return number;
}

std::optional<TransformRecipe> transform_of(std::string_view word) {
  using Kind = TransformRecipe::Kind;
  if (word == "RR") return TransformRecipe{Kind::random_rotation};
  if (const auto dims = number_behind(word, "RR")) return TransformRecipe{Kind::random_rotation, *dims};
  if (const auto dims = number_behind(word, "PCA")) return TransformRecipe{Kind::pca, *dims};
  if (const auto dims = number_behind(word, "PCAW")) return TransformRecipe{Kind::pca, *dims, 0, true};
  if (const auto parts = number_behind(word, "OPQ")) return TransformRecipe{Kind::opq, 0, *parts};
  const std::size_t bar = std::min(word.find('_'), word.size());
  const auto parts = number_behind(word.substr(0, bar), "OPQ"), dims = number_behind(word.substr(bar), "_");
  return parts && dims ? std::optional(TransformRecipe{Kind::opq, *dims, *parts}) : std::nullopt;
}

// "RaBitQ", "RaBitQ4"; 0: it is not that.
int rabitq_bits_of(std::string_view word) {
  if (word == "RaBitQ") return 1;
  const std::int64_t bits = number_behind(word, "RaBitQ").value_or(0);
  return bits == 1 || bits == 2 || bits == 4 || bits == 8 ? static_cast<int>(bits) : 0;
}

bool is_known(std::string_view word) {
  constexpr std::string_view known[] = {"PCA", "OPQ", "PQ", "SQ", "RaBitQ", "RQ", "LSQ", "ITQ", "RR", "HNSW", "NSG", "IMI", "LSH", "RFlat", "Refine", "IDMap", "L2norm", "Flat", "IVF"};
  return std::any_of(std::begin(known), std::end(known), [&](std::string_view name) { return word.starts_with(name); });
}

}  // namespace

IndexRecipe parse_recipe(const std::string& text) {
  const std::vector<std::string> words = words_of(text);
  IndexRecipe recipe;
  recipe.transform = words.size() > 1 ? transform_of(words.front()) : std::nullopt;
  const std::span<const std::string> rest = std::span(words).subspan(recipe.transform ? 1 : 0);  // the lists, what they hold, what stands behind
  const auto lists = number_behind(rest.front(), "IVF");
  const bool inverted = rest.front() == "IVF" || lists.has_value();
  if (inverted) recipe.lists = lists.value_or(0);
  recipe.refine = rest.size() == 3 && rest[2] == "RFlat";
  const bool reduces = !recipe.transform || (recipe.transform->kind == TransformRecipe::Kind::pca && !recipe.transform->whiten);
  if (inverted && reduces && recipe.refine && rest[1] == "SQ8") {
    recipe.scalar = true;
    recipe.refine = false;
    if (recipe.transform) recipe.reduced_dims = recipe.transform->dims;
    recipe.transform.reset();
    return recipe;
  }
  if (inverted && rest.size() >= 2 && rest[1] == "Flat" && (rest.size() == 2 || (recipe.refine && recipe.transform))) return recipe;
  if (words.size() == 1 && words[0] == "Flat") return {.inverted = false};
  std::string_view codes = rest.size() > 1 ? rest[1] : std::string_view();
  if (codes.ends_with("x4fs")) codes.remove_suffix(2);  // Faiss names a layout beside the codes
  const bool nibbles = codes.ends_with("x4");
  if (nibbles) codes.remove_suffix(2);
  const std::int64_t parts = number_behind(codes, "PQ").value_or(0);
  if (inverted && parts > 0 && (!nibbles || parts % 2 == 0) && (rest.size() == 2 || recipe.refine)) {
    recipe.code_bytes = nibbles ? parts / 2 : parts;
    recipe.code_bits = nibbles ? 4 : 8;
    return recipe;
  }
  const bool turned = !recipe.transform || recipe.transform->kind == TransformRecipe::Kind::random_rotation;
  recipe.rabitq_bits = rest.size() > 1 ? rabitq_bits_of(rest[1]) : 0;
  if (inverted && turned && recipe.rabitq_bits > 0 && (rest.size() == 2 || recipe.refine)) {
    if (!recipe.transform) recipe.transform = TransformRecipe{TransformRecipe::Kind::random_rotation};
    return recipe;
  }
  for (const std::string& word : words) {
    require(is_known(word), Fault::invalid_argument, "recipe '", printable(text), "': '", printable(word), "' says nothing; ", allowed);
  }
  fail(Fault::unsupported, "recipe '", printable(text), "' is not built; ", allowed);
}

}  // namespace gigaknn
