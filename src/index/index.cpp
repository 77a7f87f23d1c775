// What an index that does not change says of changes.
#include <gigaknn/index.hpp>

#include <algorithm>

#include "core/require.hpp"

namespace gigaknn {
namespace {

[[noreturn]] void fail_fixed(const char* what) { fail(Fault::unsupported, "an index of this kind cannot ", what); }

}  // namespace

void Index::add(MatrixRef, std::span<const RowId>, const RunOptions&) { fail_fixed("take more rows"); }
void Index::update(MatrixRef, std::span<const RowId>, const RunOptions&) { fail_fixed("replace rows"); }
void Index::remove(std::span<const RowId>) { fail_fixed("lose rows"); }
Matrix Index::reconstruct(std::span<const RowId>) const { fail_fixed("give rows back: they are the caller's"); }
std::vector<RowId> Index::ids_at(const std::shared_ptr<const Moment>&) const {
  std::vector<RowId> numbers(static_cast<std::size_t>(rows()));
  std::generate(numbers.begin(), numbers.end(), [next = std::int64_t{0}]() mutable { return RowId{next++}; });
  return numbers;
}
std::int64_t Index::next_id() const { return rows(); }
void Index::save(const std::filesystem::path&, const RunOptions&) const { fail_fixed("be saved: search the vectors themselves"); }

}  // namespace gigaknn
