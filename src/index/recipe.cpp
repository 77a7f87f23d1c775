#include "index/recipe.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "core/require.hpp"
#include "io/file_bytes.hpp"

namespace gigaknn {
namespace {

constexpr std::string_view allowed = "allowed: Flat, IVF<lists>,Flat and IVF<lists>,PQ<bytes> or PQ<parts>x4 (of an even number of parts) with ,RFlat or without and PCA<dims>,IVF<lists>,SQ8,RFlat with PCA<dims>, or without; IVF alone: lists as suit";

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

bool is_known(std::string_view word) {
  constexpr std::string_view known[] = {"PCA", "OPQ", "PQ", "SQ", "RaBitQ", "RQ", "LSQ", "ITQ", "RR", "HNSW", "NSG", "IMI", "LSH", "RFlat", "Refine", "IDMap", "L2norm", "Flat", "IVF"};
  return std::any_of(std::begin(known), std::end(known), [&](std::string_view name) { return word.starts_with(name); });
}

}  // namespace

IndexRecipe parse_recipe(const std::string& text) {
  std::vector<std::string> words = words_of(text);
  IndexRecipe recipe;
  if (const auto dims = number_behind(words.front(), "PCA"); dims && words.size() > 1) {
    recipe.reduced_dims = *dims;
    words.erase(words.begin());
  }
  const auto lists = number_behind(words.front(), "IVF");
  const bool inverted = words.front() == "IVF" || lists.has_value();
  if (inverted) recipe.lists = lists.value_or(0);
  recipe.scalar = inverted && words.size() == 3 && words[1] == "SQ8" && words[2] == "RFlat";
  if (recipe.scalar) return recipe;
  const bool plain = inverted && recipe.reduced_dims == 0;
  if (plain && words.size() == 2 && words[1] == "Flat") return recipe;
  if (words.size() == 1 && words[0] == "Flat" && recipe.reduced_dims == 0) return {.inverted = false};
  std::string_view codes = words.size() > 1 ? words[1] : std::string_view();
  if (codes.ends_with("x4fs")) codes.remove_suffix(2);  // Faiss names a layout beside the codes
  const bool nibbles = codes.ends_with("x4");
  if (nibbles) codes.remove_suffix(2);
  const std::int64_t parts = number_behind(codes, "PQ").value_or(0);
  recipe.refine = words.size() == 3 && words[2] == "RFlat";
  if (plain && parts > 0 && (!nibbles || parts % 2 == 0) && (words.size() == 2 || recipe.refine)) {
    recipe.code_bytes = nibbles ? parts / 2 : parts;
    recipe.code_bits = nibbles ? 4 : 8;
    return recipe;
  }
  for (const std::string& word : words) {
    require(is_known(word), Fault::invalid_argument, "recipe '", printable(text), "': '", printable(word), "' says nothing; ", allowed);
  }
  fail(Fault::unsupported, "recipe '", printable(text), "' is not built; ", allowed);
}

}  // namespace gigaknn
