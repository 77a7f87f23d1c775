#include "watch.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "options.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

constexpr double redraw_s = 0.1;  // fast enough to look alive
constexpr double log_every_s = 5;  // slow enough for a log
constexpr double end_deadline_s = 0.8;  // a second is promised

std::atomic<Progress*> interruptible{nullptr};

extern "C" void cancel_on_signal(int) {
  // Lock-free atomics only: this is a signal handler.
  if (Progress* progress = interruptible.load()) progress->cancel();
}

void handle_signals(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;  // nohup and background jobs stay as they are
    sigaction(signal, &action, nullptr);
  }
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

double now_s() {
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Watch::Watch(bool quiet)
    : quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      progress_([this](std::string_view stage, std::int64_t done, std::int64_t total) {
        take_report(stage, done, total);
      }) {
  interruptible.store(&progress_);
  handle_signals(cancel_on_signal);
  ticker_ = std::thread([this] { tick(); });
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  ticker_.join();
  handle_signals(SIG_DFL);
  interruptible.store(nullptr);
  erase_line();
}

void Watch::begin(std::string_view stage) {
  take_report(stage, 0, 0);
}

void Watch::end() {
  const std::lock_guard lock(mutex_);
  if (!stages_.empty() && active_) stages_.back().ended_s = now_s();
  active_ = false;
  erase_line();
}

void Watch::check() const {
  require(!progress_.cancelled(), Fault::cancelled, "interrupted");
}

double Watch::seconds_in(std::string_view prefix) const {
  const std::lock_guard lock(mutex_);
  double seconds = 0;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    if (!std::string_view(stages_[i].name).starts_with(prefix)) continue;
    const bool running = active_ && i + 1 == stages_.size();
    seconds += (running ? now_s() : stages_[i].ended_s) - stages_[i].started_s;
  }
  return seconds;
}

void Watch::take_report(std::string_view stage, std::int64_t done, std::int64_t total) {
  const std::lock_guard lock(mutex_);
  if (!active_ || stages_.back().name != stage) {
    const double now = now_s();
    if (active_) stages_.back().ended_s = now;
    stages_.push_back({std::string(stage), now, now});
  }
  active_ = true;
  done_ = done;
  total_ = total;
}

void Watch::tick() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, std::chrono::duration<double>(redraw_s),
                            [this] { return stopping_; })) {
    end_if_stuck();
    const double every_s = terminal_ ? redraw_s : log_every_s;
    if (quiet_ || !active_ || now_s() - last_drawn_s_ < every_s) continue;
    if (terminal_ || now_s() - stages_.back().started_s >= log_every_s) draw_line();
  }
}

void Watch::draw_line() {
  std::string text = one_line(line());
  if (terminal_) {
    const auto columns = static_cast<std::size_t>(terminal_columns());
    if (text.size() >= columns) text.resize(columns - 1);
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    drawn_ = true;
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  std::fflush(stderr);
  last_drawn_s_ = now_s();
}

std::string Watch::line() const {
  const Stage& stage = stages_.back();
  const double elapsed_s = now_s() - stage.started_s;
  std::string text = "  " + stage.name;
  if (total_ <= 0) return text + "  " + format_seconds(elapsed_s);
  const double fraction =
      std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
  if (terminal_) {
    constexpr int width = 24;
    const int filled = static_cast<int>(fraction * width);
    text += " [" + std::string(static_cast<std::size_t>(filled), '#') +
            std::string(static_cast<std::size_t>(width - filled), '.') + "]";
  }
  text += "  " + std::to_string(static_cast<int>(100 * fraction)) + " %";
  if (done_ > 0 && elapsed_s > 0) {
    text += "  " + rate_text(static_cast<double>(done_) / elapsed_s);
    text += "  " + format_seconds(elapsed_s * (1 - fraction) / std::max(fraction, 1e-9)) + " left";
  }
  return text;
}

void Watch::erase_line() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

void Watch::end_if_stuck() {
  if (!progress_.cancelled()) return;
  if (cancelled_since_s_ < 0) cancelled_since_s_ = now_s();
  if (now_s() - cancelled_since_s_ < end_deadline_s) return;
  erase_line();
  std::fputs("gigaknn: interrupted\n", stderr);
  std::fflush(stderr);
  _exit(exit_cancelled);
}

}  // namespace gigaknn::cli
