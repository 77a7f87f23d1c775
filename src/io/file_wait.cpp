#include "io/file_wait.hpp"

namespace gigaknn {
namespace {

thread_local double waited = 0;

}  // namespace

double file_wait_seconds() { return waited; }

FileWait::~FileWait() { waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

}  // namespace gigaknn
