// In place of hdf5.cpp where the build has no HDF5 (GIGAKNN_HDF5=OFF: the wheel).
#include "hdf5.hpp"

#include "core/require.hpp"

namespace gigaknn::cli {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path) {
  fail(Fault::unsupported, path.string(), ": this gigaknn was built without HDF5; h5py reads such files in Python");
}

}  // namespace

void require_hdf5(const std::filesystem::path& path) { refuse(path); }
std::vector<Hdf5Part> list_hdf5(const std::filesystem::path& path) { refuse(path); }
Matrix read_hdf5_matrix(const std::filesystem::path& path, const std::string&, std::size_t) { refuse(path); }
Neighbors read_hdf5_neighbors(const std::filesystem::path& path) { refuse(path); }
std::optional<std::string> read_hdf5_distance(const std::filesystem::path& path) { refuse(path); }
void write_hdf5_neighbors(const Neighbors&, const std::filesystem::path& path) { refuse(path); }

}  // namespace gigaknn::cli
