// What an index that does not change says of changes.
#include <gigaknn/index.hpp>

#include "core/require.hpp"

namespace gigaknn {
namespace {

[[noreturn]] void fail_fixed(const char* what) { fail(Fault::unsupported, "an index of this kind cannot ", what); }

}  // namespace

void Index::add(MatrixRef, std::span<const RowId>, const RunOptions&) { fail_fixed("take more rows"); }
void Index::update(MatrixRef, std::span<const RowId>, const RunOptions&) { fail_fixed("replace rows"); }
void Index::remove(std::span<const RowId>) { fail_fixed("lose rows"); }
Matrix Index::reconstruct(std::span<const RowId>) const { fail_fixed("give rows back: they are the caller's"); }
std::vector<RowId> Index::ids() const {
  std::vector<RowId> ids;
  for (std::int64_t row = 0; row < rows(); ++row) ids.push_back(RowId{row});
  return ids;
}
std::int64_t Index::next_id() const { return rows(); }
void Index::save(const std::filesystem::path&, const RunOptions&) const { fail_fixed("be saved: search the vectors themselves"); }

}  // namespace gigaknn
