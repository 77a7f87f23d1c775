#include "index/recipe.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "core/require.hpp"
#include "io/file_bytes.hpp"

namespace gigaknn {
namespace {

constexpr std::string_view allowed = "allowed: IVF<lists>,Flat and IVF,Flat";

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

bool is_known(std::string_view word) {
  constexpr std::string_view known[] = {"PCA", "OPQ", "PQ", "SQ", "RaBitQ", "RQ", "LSQ", "ITQ", "RR", "HNSW", "NSG", "IMI", "LSH", "RFlat", "Refine", "IDMap", "L2norm", "Flat", "IVF"};
  return std::any_of(std::begin(known), std::end(known), [&](std::string_view name) { return word.starts_with(name); });
}

}  // namespace

IndexRecipe parse_recipe(const std::string& text) {
  const std::vector<std::string> words = words_of(text);
  IndexRecipe recipe;
  const std::string_view first = words.front();
  const bool inverted = first.starts_with("IVF");
  const std::string_view digits = inverted ? first.substr(3) : std::string_view();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), recipe.lists);
  const bool number = digits.empty() || (error == std::errc() && end == digits.data() + digits.size() && recipe.lists >= 1);
  if (inverted && number && words.size() == 2 && words[1] == "Flat") return recipe;
  for (const std::string& word : words) {
    require(is_known(word), Fault::invalid_argument, "recipe '", printable(text), "': '", printable(word), "' says nothing; ", allowed);
  }
  fail(Fault::unsupported, "recipe '", printable(text), "' is not built; ", allowed);
}

}  // namespace gigaknn
