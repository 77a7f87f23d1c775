#include "io/output_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>

#include "io/container.hpp"
#include "io/file_lock.hpp"
#include "io/matrix_writer.hpp"
#include "io/results.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

/// A disk that is full after `bytes` of a file, as long as this lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  struct rlimit before_ {};
  void (*handler_)(int) = nullptr;
};

class Output : public FileTest {};

TEST_F(Output, AppearsWholeUnderItsName) {
  OutputFile output(file("a"));
  output.write("hello", 5);
  const std::string large((1 << 20) + 7, 'x');
  output.write(large.data(), large.size());
  output.write("!", 1);
  output.write_at(1, "E", 1);
  EXPECT_EQ(output.size(), large.size() + 6);
  EXPECT_FALSE(std::filesystem::exists(file("a")));
  output.finish();
  EXPECT_EQ(bytes_of(file("a")), "hEllo" + large + "!");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(Output, SmallWritesCrossTheBuffer) {
  std::string expected;
  OutputFile output(file("a"));
  for (int i = 0; i < 5000; ++i) {
    const std::string line(997, static_cast<char>('a' + i % 26));
    output.write(line.data(), line.size());
    expected += line;
  }
  output.finish();
  EXPECT_EQ(bytes_of(file("a")), expected);
}

TEST_F(Output, LeavesNothingBehindUnlessFinished) {
  file("a", "old");
  {
    OutputFile output(file("a"));
    output.write("new", 3);
  }
  EXPECT_EQ(bytes_of(file("a")), "old");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(Output, ReplacesAFileAndWritesThroughALink) {
  file("a", "old");
  std::filesystem::create_symlink("a", file("link"));
  OutputFile output(file("link"));
  output.write("new", 3);
  output.finish();
  EXPECT_EQ(bytes_of(file("a")), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(file("link")));
}

TEST_F(Output, WhatWasPrivateStaysSo) {
  for (const unsigned mode : {0600u, 0640u, 0444u, 0666u}) {
    file("a", "old");
    ASSERT_EQ(::chmod(file("a").c_str(), mode), 0);
    OutputFile output(file("a"));
    output.write("new", 3);
    output.finish();
    struct stat now {};
    ASSERT_EQ(::stat(file("a").c_str(), &now), 0);
    EXPECT_EQ(now.st_mode & 0777u, mode);
    EXPECT_EQ(bytes_of(file("a")), "new");
    std::filesystem::remove(file("a"));
  }
}

TEST_F(Output, ALinkToAFileWithoutANameIsLeftAlone) {
  const auto path = file("gone", "old");
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  std::filesystem::remove(path);
  std::filesystem::create_symlink(join_text("/proc/self/fd/", descriptor), file("link"));
  expect_error(
      Fault::io, [&] { OutputFile output(file("link")); }, "link: cannot be replaced: is a link to a file without a name");
  EXPECT_TRUE(std::filesystem::is_symlink(file("link")));
  ::close(descriptor);
}

// Another user's lock, held now or left behind by a kill, may only be read.
TEST_F(Output, ALockOfAnotherUserIsWaitedFor) {
  const auto path = file("lock", "");
  ASSERT_EQ(::chmod(path.c_str(), 0444), 0);
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  auto held = std::make_unique<FileLock>(path, nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    ::chmod(folder().c_str(), 0555);  // where it is this user's
    try {
      FileLock(file("none"), nullptr);
      ::_exit(5);
    } catch (const Error&) {  // none can be made in this folder
    }
    try {
      FileLock(path, [] { throw 1; });
      ::_exit(3);
    } catch (int) {
      ::_exit(0);
    } catch (...) {
      ::_exit(4);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "it does not wait";
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
}

TEST_F(Output, TheLongestNamesAreWritten) {
  for (const std::size_t length : {232, 233, 234, 250, 255}) {
    const auto path = file(std::string(length, 'n'));
    for (const char* contents : {"one", "two"}) {  // the second in place of the first
      OutputFile output(path);
      output.write(contents, 3);
      output.finish();
      EXPECT_EQ(bytes_of(path), contents) << length;
    }
  }
}

TEST_F(Output, FoldersThatCannotBeWrittenAreNamed) {
  expect_error(
      Fault::io, [&] { OutputFile output(file("none/a")); }, file("none/a").string(),
      "cannot write: No such file or directory");
  file("file", "x");
  expect_error(
      Fault::io, [&] { OutputFile output(file("file/a")); }, "cannot write: Not a directory");
  expect_error(
      Fault::io, [&] { OutputFile output(folder()); }, "cannot be replaced: is not a regular file");
  expect_error(
      Fault::io, [&] { OutputFile output("/dev/null"); }, "/dev/null: cannot be replaced");
  expect_error(
      Fault::io, [&] { OutputFile output("/proc/gigaknn"); }, "/proc/gigaknn: cannot write");
  expect_error(
      Fault::io, [&] { OutputFile output(file(std::string(256, 'n'))); }, "cannot write: File name too long");
  if (::geteuid() == 0) return;  // root may write anywhere
  std::filesystem::permissions(
      folder(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  expect_error(
      Fault::io, [&] { OutputFile output(file("b")); }, "cannot write: Permission denied");
  std::filesystem::permissions(folder(), std::filesystem::perms::owner_all);
}

TEST_F(Output, AFullDiskIsOneErrorAndNoFile) {
  const Matrix matrix(1000, 100, DType::f32);
  Neighbors result(1000, 100);
  const FullDisk full(100000);
  const auto refused = [&](const std::string& name,
                           const std::function<void(const std::filesystem::path&)>& write) {
    expect_error(
        Fault::io, [&] { write(file(name)); },
        file(name).string() + ": cannot write: File too large");
    EXPECT_EQ(files_in_folder(), 0u) << name;
  };
  for (const char* name : {"a.fbin", "a.fvecs", "a.npy"}) {
    refused(name, [&](const auto& path) { write_matrix(matrix, path); });
  }
  refused("a.ibin", [&](const auto& path) { write_neighbors(result, path); });
  refused("a.gtbin", [&](const auto& path) { write_neighbors(result, path); });
  refused("a.gknn", [&](const auto& path) {
    ContainerWriter writer(path, "test", 1);
    writer.add_section("rows", Element::f32, 1000, 100, matrix.ref().data);
    writer.finish();
  });
}

TEST_F(Output, OfTwoResultFilesNoneAppearsWhereOneFails) {
  Neighbors result(1000, 10);  // 40 KB of ids as .ibin, 80 KB as .npy
  const FullDisk full(60000);
  expect_error(
      Fault::io, [&] { write_neighbors(result, file("ids.npy"), file("distances.fbin")); },
      "ids.npy");
  EXPECT_EQ(files_in_folder(), 0u);
}

}  // namespace
}  // namespace gigaknn
