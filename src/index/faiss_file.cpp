#include "index/faiss_file.hpp"

#include <algorithm>
#include <cmath>

#include "core/elements.hpp"
#include "core/require.hpp"

namespace gigaknn {
namespace {

struct MetricName {
  std::int32_t number;
  std::string_view name;
};
constexpr MetricName metric_names[] = {
    {faiss_inner_product, "INNER_PRODUCT"}, {faiss_l2, "L2"}, {2, "L1"}, {3, "Linf"}, {4, "Lp"}, {20, "Canberra"}, {21, "BrayCurtis"},
    {22, "JensenShannon"}, {23, "Jaccard"}, {24, "NaNEuclidean"}, {25, "GOWER"},
};

constexpr std::string_view scalar_names[] = {
    "QT_8bit", "QT_4bit", "QT_8bit_uniform", "QT_4bit_uniform", "QT_fp16", "QT_8bit_direct", "QT_6bit", "QT_bf16", "QT_8bit_direct_signed",
};

}  // namespace

std::string tree_of(const FaissIndex& index) {
  std::string parts;
  const auto add = [&](const FaissPart& part) {
    if (part) parts += (parts.empty() ? "" : ", ") + tree_of(*part);
  };
  if (const auto* map = std::get_if<FaissIdMap>(&index.what)) add(map->index);
  if (const auto* refine = std::get_if<FaissRefine>(&index.what)) {
    add(refine->base);
    add(refine->refine);
  }
  if (const auto* chain = std::get_if<FaissPreTransform>(&index.what)) {
    for (const FaissTransform& transform : chain->chain) {
      parts += (parts.empty() ? "" : ", ") + transform.kind;
      if (transform.cols_in > 0) parts += join_text(' ', transform.cols_in, " -> ", transform.cols_out);
    }
    add(chain->index);
  }
  return parts.empty() ? index.kind : index.kind + '(' + parts + ')';
}

const FaissIvf* inverted_file_in(const FaissIndex& index) {
  const auto within = [](const FaissPart& part) { return part ? inverted_file_in(*part) : nullptr; };
  if (const auto* map = std::get_if<FaissIdMap>(&index.what)) return within(map->index);
  if (const auto* refine = std::get_if<FaissRefine>(&index.what)) return within(refine->base);
  if (const auto* chain = std::get_if<FaissPreTransform>(&index.what)) return within(chain->index);
  return std::get_if<FaissIvf>(&index.what);
}

std::string_view faiss_metric_name(std::int32_t metric) {
  const auto* found =
      std::find_if(std::begin(metric_names), std::end(metric_names), [&](const MetricName& m) { return m.number == metric; });
  return found == std::end(metric_names) ? std::string_view() : found->name;
}

std::int32_t faiss_metric_of(Metric metric, const std::string& name) {
  if (metric == Metric::l2 || metric == Metric::euclidean) return faiss_l2;
  if (metric == Metric::inner_product) return faiss_inner_product;
  fail(Fault::unsupported, name, ": Faiss has no such index by ", name_of(metric), ", allowed: l2 euclidean inner_product",
       metric == Metric::cosine ? " (of rows that are made of length 1 inner_product finds the same)" : "");
}

std::optional<std::int64_t> not_of_length_one(MatrixRef centroids) {
  constexpr double rounding = 1e-5;  // of float32 over thousands of dimensions, and far below what moves a query to another list
  for (std::int64_t list = 0; list < centroids.rows; ++list) {
    if (!(std::abs(squared_norm_of(centroids, list) - 1) <= rounding)) return list;
  }
  return std::nullopt;
}

std::string_view name_of(FaissScalarType type) { return scalar_names[static_cast<std::size_t>(type)]; }

const FaissIndex* vectors_alone(const FaissIndex& root) {
  const auto* const map = std::get_if<FaissIdMap>(&root.what);
  const FaissIndex& index = map ? *map->index : root;
  return root.whole && (std::holds_alternative<FaissFlat>(index.what) || std::holds_alternative<FaissScalarRows>(index.what)) ? &index
                                                                                                                              : nullptr;
}

}  // namespace gigaknn
