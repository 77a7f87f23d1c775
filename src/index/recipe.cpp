#include "index/recipe.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/require.hpp"
#include "io/file_bytes.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn {
namespace {

constexpr std::string_view allowed = "allowed: Flat, or IVF<lists>, or IVF alone: as many as suit, of Flat, PQ<bytes>, PQ<parts>x4 (of an even number of parts), PQ<parts>x6 (of a multiple of 4), "
    "SQ8, SQfp16, SQbf16, SQ8d, SQ6, SQ4 or RaBitQ<1 to 8 bits>, with ,RFlat behind it or not, and before it PCA<dims>, PCAR<dims>, PCAW<dims>, RR, RR<dims>, OPQ<parts>, OPQ<parts>_<dims> or nothing; "
    "IVF<lists>,Flat has RFlat behind it only if something stands before it, and RaBitQ has no OPQ before it";

// Without the blanks around commas, and with Faiss's other names for what is the same here: full vectors behind, and ids, which every index
// has.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  for (std::string& word : words) {
    word.erase(0, std::min(word.find_first_not_of(' '), word.size()));
    word.erase(word.find_last_not_of(' ') + 1);
    if (word == "Refine(Flat)") word = "RFlat";
  }
  if (words.size() > 1 && (words.front() == "IDMap" || words.front() == "IDMap2")) words.erase(words.begin());
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
  if (const auto dims = number_behind(word, "PCAR")) return TransformRecipe{Kind::pca, *dims, 0, false, true};
  if (const auto parts = number_behind(word, "OPQ")) return TransformRecipe{Kind::opq, 0, *parts};
  const std::size_t bar = std::min(word.find('_'), word.size());
  const auto parts = number_behind(word.substr(0, bar), "OPQ"), dims = number_behind(word.substr(bar), "_");
  return parts && dims ? std::optional(TransformRecipe{Kind::opq, *dims, *parts}) : std::nullopt;
}

// "RaBitQ", "RaBitQ4"; 0: it is not that.
int rabitq_bits_of(std::string_view word) {
  if (word == "RaBitQ") return 1;
  const std::int64_t bits = number_behind(word, "RaBitQ").value_or(0);
  return bits <= 8 ? static_cast<int>(bits) : 0;
}

// What lists hold. False: it is not that, or not after what stands before it.
bool read_listed(std::string_view word, IndexRecipe& recipe) {
  if (word == "Flat") return recipe.transform || !recipe.refine;
  if (word == "SQ4" || word == "SQ6" || word == "SQ8d") {  // fitted to each dimension, as product codes of so many parts
    recipe.each_dim = true;
    recipe.code_bits = word[2] - '0';
    return true;
  }
  if (word == "SQ8") recipe.listed = DType::i8;
  if (word == "SQfp16") recipe.listed = DType::f16;
  if (word == "SQbf16") recipe.listed = DType::bf16;
  if (recipe.listed != DType::f32) return true;
  recipe.rabitq_bits = rabitq_bits_of(word);
  if (recipe.rabitq_bits > 0) {
    if (!recipe.transform) recipe.transform = TransformRecipe{TransformRecipe::Kind::random_rotation};
    recipe.transform->rotated = recipe.transform->kind == TransformRecipe::Kind::pca;
    return recipe.transform->kind != TransformRecipe::Kind::opq;
  }
  // Faiss names a layout beside the codes, or that they are not sorted by what they stand for, as no codes are here.
  if (word.ends_with("x4fs") || word.ends_with("np")) word.remove_suffix(2);
  recipe.code_bits = word.ends_with("x4") ? 4 : word.ends_with("x6") ? 6 : 8;
  if (word.size() > 2 && word[word.size() - 2] == 'x' && is_part_bits(word.back() - '0')) word.remove_suffix(2);
  const std::int64_t parts = number_behind(word, "PQ").value_or(0);
  recipe.code_bytes = std::min(parts, std::int64_t{1} << 40) * recipe.code_bits / 8;  // too many are refused with what they are for
  return recipe.code_bytes > 0 && parts % parts_together(recipe.code_bits) == 0;
}

// None: these words are no recipe that is built.
std::optional<IndexRecipe> recipe_of(std::span<const std::string> words) {
  if (words.size() == 1 && words[0] == "Flat") return IndexRecipe{.inverted = false};
  IndexRecipe recipe;
  if (words.size() > 1) recipe.transform = transform_of(words.front());
  if (recipe.transform) words = words.subspan(1);
  const auto lists = number_behind(words.front(), "IVF");
  if (!lists && words.front() != "IVF") return std::nullopt;
  recipe.lists = lists.value_or(0);
  recipe.refine = words.size() == 3 && words[2] == "RFlat";
  if (words.size() != (recipe.refine ? 3u : 2u) || !read_listed(words[1], recipe)) return std::nullopt;
  return recipe;
}

bool is_known(std::string_view word) {
  constexpr std::string_view known[] = {"PCA", "OPQ", "PQ",  "SQ",    "RaBitQ", "RQ",    "LSQ",    "ITQ",  "RR", "HNSW",
                                        "NSG", "IMI", "LSH", "RFlat", "Refine", "IDMap", "L2norm", "Flat", "IVF"};
  return std::any_of(std::begin(known), std::end(known), [&](std::string_view name) { return word.starts_with(name); });
}

// What to take instead of words that are often asked for; empty: nothing.
std::string instead_of(std::span<const std::string> words) {
  const auto bits_of = [](std::string_view word) { return number_behind(word, "RaBitQ").value_or(0); };
  for (const std::string_view word : words) {
    if (bits_of(word) > 8) return join_text(word, ": at most 8 bits a dimension");
    if (word.starts_with("OPQ") && words.back().starts_with("RaBitQ")) {
      return join_text(word, ": PCA or RR, since what stands before RaBitQ is rotated at random");
    }
  }
  if (words.size() == 3 && words[1] == "Flat" && words[2] == "RFlat") return "Flat,RFlat: Flat alone, whose lists hold full vectors";
  return {};
}

}  // namespace

IndexRecipe parse_recipe(const std::string& text) {
  const std::vector<std::string> words = words_of(text);
  if (const auto recipe = recipe_of(words)) return *recipe;
  for (const std::string& word : words) {
    require(is_known(word), Fault::invalid_argument, "recipe '", printable(text), "': '", printable(word), "' says nothing; ", allowed);
  }
  const std::string instead = instead_of(words);
  fail(Fault::unsupported, "recipe '", printable(text), "' is not built; ",
       instead.empty() ? "" : "take instead of " + printable(instead) + "; ", allowed);
}

}  // namespace gigaknn
