#include <gigaknn/gigaknn.hpp>

int main() {
  const float points[] = {0, 0, 3, 4, 6, 8};
  const gigaknn::MatrixRef base(points, 3, 2, gigaknn::DType::f32);
  const auto index = gigaknn::make_flat_index(base);
  const auto found = index->search(base, 2);
  // Row 1 is 25 (squared) away from both others: the smaller id is first.
  return found.ids[3] == gigaknn::RowId{0} && found.distances[3] == 25 ? 0 : 1;
}
