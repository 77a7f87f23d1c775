#include "outputs.hpp"

#include <sys/statvfs.h>

#include <cstdio>
#include <map>
#include <system_error>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "io/format.hpp"
#include "io/output_file.hpp"
#include "io/shards.hpp"

namespace gigaknn::cli {
namespace {

// Links followed: a file is replaced under its name, whatever else it is called.
std::filesystem::path real_name(const std::filesystem::path& path) {
  std::error_code failed;
  const std::filesystem::path name = std::filesystem::weakly_canonical(std::filesystem::absolute(path, failed), failed);
  return failed ? path : name;
}

// The files that are read where `input` is: of a folder, or a list, those that it stands for.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& input) {
  std::error_code none;
  if (!std::filesystem::is_directory(input, none) && input.extension() != ".txt" && input.extension() != ".list") return {input};
  try {
    std::vector<std::filesystem::path> files = shards_of(input);
    files.push_back(input);
    return files;
  } catch (const Error&) {  // which its reader tells
    return {input};
  }
}

}  // namespace

bool is_within(const std::filesystem::path& output, const std::filesystem::path& folder) {
  if (output.empty() || is_stdout(output)) return false;
  const std::filesystem::path name = real_name(output), outer = real_name(folder);
  return std::mismatch(outer.begin(), outer.end(), name.begin(), name.end()).first == outer.end();
}

void check_apart(const std::vector<std::filesystem::path>& inputs, const std::vector<std::filesystem::path>& outputs) {
  std::map<std::filesystem::path, std::filesystem::path> written;  // what is called so by whom
  for (const std::filesystem::path& output : outputs) {
    if (output.empty()) continue;
    require(written.emplace(real_name(output), output).second, Fault::invalid_argument, output.string(),
            ": two results would be written there, one over the other");
  }
  if (written.empty()) return;
  for (const std::filesystem::path& input : inputs) {
    if (input.empty()) continue;
    for (const std::filesystem::path& file : files_of(input)) {
      const auto same = written.find(real_name(file));
      require(same == written.end(), Fault::invalid_argument, same == written.end() ? "" : same->second.string(), ": is read, and would be overwritten");
    }
    std::error_code none;
    if (!std::filesystem::is_directory(input, none)) continue;
    const std::filesystem::path folder = real_name(input);
    for (const auto& [name, output] : written) {
      require(name.parent_path() != folder || find_format(name) == nullptr, Fault::invalid_argument, output.string(),
              ": would be one of the files of ", input.string(), ", which are read together");
    }
  }
}

std::size_t check_output(const std::filesystem::path& path, std::size_t bytes) {
  if (path.empty() || is_stdout(path)) return 0;
  // Permission bits say nothing to root or on a read-only mount: only making the file tells.
  const OutputFile probe(path);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return 0;
  const std::size_t free_bytes = std::size_t{disk.f_bavail} * disk.f_frsize;
  require(bytes <= free_bytes, Fault::io, path.string(), ": disk full: needs ", format_bytes(bytes),
          ", the folder ", folder.string(), " has ", format_bytes(free_bytes), " free");
  return free_bytes;
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  if (is_stdout(path)) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  OutputFile file(path);
  file.write(text.data(), text.size());
  file.finish();
}

void check_page(const std::filesystem::path& path) {
  const bool named = path.empty() || path.extension() == ".html" || path.extension() == ".htm";
  require(named, Fault::invalid_argument, path.string(), ": a page is HTML: its name must end in .html");
  check_output(path, 0);
}

}  // namespace gigaknn::cli
