#include "learn/scalar_codewords.hpp"

#include <algorithm>

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Values that are one beside the other, sorted.
struct Cell {
  std::size_t begin, end;
  double mean = 0, lost = 0;  // the sum of the squares of what values differ from the mean

  // Of the values themselves, not of sums from the first on: one far away would leave nothing of the others.
  Cell(std::span<const float> sorted, std::size_t from, std::size_t to) : begin(from), end(to) {
    for (std::size_t i = begin; i < end; ++i) mean += static_cast<double>(sorted[i]);
    mean /= static_cast<double>(end - begin);
    for (std::size_t i = begin; i < end; ++i) lost += (static_cast<double>(sorted[i]) - mean) * (static_cast<double>(sorted[i]) - mean);
  }
  bool operator<(const Cell& other) const { return lost < other.lost || (lost == other.lost && begin > other.begin); }
};

std::size_t end_below(std::span<const float> sorted, double value) {
  return at(std::upper_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
}

// Cells that lose most are cut at their mean: in the best codes all cells lose as much (Panter, Dite 1951), however values lie.
std::vector<float> begin_codewords(std::span<const float> sorted, std::int64_t count) {
  std::vector<Cell> heap = {{sorted, 0, sorted.size()}};
  while (std::ssize(heap) < count && heap.front().lost > 0) {
    std::pop_heap(heap.begin(), heap.end());
    const Cell cell = heap.back();
    const std::size_t middle = std::clamp(end_below(sorted, cell.mean), cell.begin + 1, cell.end - 1);
    heap.back() = Cell(sorted, cell.begin, middle);
    std::push_heap(heap.begin(), heap.end());
    heap.emplace_back(sorted, middle, cell.end);
    std::push_heap(heap.begin(), heap.end());
  }
  std::vector<float> words;
  for (const Cell& cell : heap) words.push_back(static_cast<float>(cell.mean));
  words.resize(at(count), sorted.back());  // there are fewer values
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace

std::vector<float> fit_scalar_codewords(std::span<float> values, std::int64_t count, int rounds) {
  for (float& value : values) value += 0.0f;  // -0 is 0: sorting leaves these in no order of its own
  std::sort(values.begin(), values.end());
  std::vector<float> words = begin_codewords(values, count);
  std::vector<std::size_t> ends(at(count)), before;  // of the values that are nearest to each
  for (int round = 0; round < rounds; ++round) {
    for (std::int64_t word = 0; word + 1 < count; ++word) {
      ends[at(word)] = end_below(values, (static_cast<double>(words[at(word)]) + static_cast<double>(words[at(word + 1)])) / 2);
    }
    ends.back() = values.size();
    if (ends == before) break;
    before = ends;
    for (std::size_t word = 0, begin = 0; word < words.size(); begin = ends[word++]) {
      if (ends[word] > begin) words[word] = static_cast<float>(Cell(values, begin, ends[word]).mean);
    }
  }
  return words;
}

std::size_t scalar_codewords_bytes(std::int64_t count) { return 2 * at(count) * (sizeof(Cell) + sizeof(std::size_t) + sizeof(float)); }

}  // namespace gigaknn
