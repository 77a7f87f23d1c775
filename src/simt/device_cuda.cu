// Streams, events and memory of CUDA's devices. Memory comes from the driver's pool (cudaMallocAsync), which keeps some of what
// was given back as long as anything is in use: a search's scratch then costs no call of the driver's.
#include "simt/device.hpp"

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/require.hpp"
#include "simt/boxes.cuh"
#include "simt/simt.cuh"

namespace gigaknn::simt {

struct Stream {
  cudaStream_t stream;
  int device;
};
struct Event {
  cudaEvent_t event;
};

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // it is told now
  fail(error == cudaErrorMemoryAllocation ? Fault::out_of_memory : Fault::device, what, ": ",
       cudaGetErrorString(error));
}

constexpr std::uint64_t most_kept_bytes = std::uint64_t{1} << 30;  // of what was given back, and no more than a 64th of the device's memory

cudaMemPool_t pool_of(int device) {
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, device), "the device has no pool of memory");
  return pool;
}

// What the device has; asked once, for it takes long. 0: not known.
std::uint64_t all_memory(int device) noexcept {
  static std::array<std::atomic<std::uint64_t>, 64> known = {};
  const auto at = static_cast<std::size_t>(device) % known.size();
  std::size_t free_bytes = 0, all_bytes = 0;
  if (known[at] == 0 && cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess) known[at] = all_bytes;
  return known[at];
}

// Gives back what the pool holds beyond what is in use and what it may keep: nothing, if nothing is in use. Where the device has failed,
// whoever waits for it is told: not from here, where streams end.
void trim(int device) noexcept {
  cudaMemPool_t pool = nullptr;
  std::uint64_t held = 0, used = 0;
  const auto asked = [&] {
    return cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess &&
           cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &held) == cudaSuccess &&
           cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used) == cudaSuccess;
  };
  if (asked() && held > used && (used == 0 || held - used > most_kept_bytes / 16)) {
    const std::uint64_t kept = used == 0 ? 0 : std::min<std::uint64_t>(most_kept_bytes, all_memory(device) / 64);
    if (held > used + kept) cudaMemPoolTrimTo(pool, used + kept);
  }
  cudaGetLastError();
}

Stream& stream_of(Stream* stream) {
  static Stream by_default{nullptr, 0};
  return stream ? *stream : by_default;
}

// What the runtime does not tell of contexts.
struct Driver {
  decltype(&cuCtxGetCurrent) get_current = nullptr;
  decltype(&cuCtxSetCurrent) set_current = nullptr;
  decltype(&cuDevicePrimaryCtxGetState) get_state = nullptr;

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return;
    get_current = reinterpret_cast<decltype(get_current)>(dlsym(library, "cuCtxGetCurrent"));
    set_current = reinterpret_cast<decltype(set_current)>(dlsym(library, "cuCtxSetCurrent"));
    get_state = reinterpret_cast<decltype(get_state)>(dlsym(library, "cuDevicePrimaryCtxGetState"));
  }
};
const Driver& driver() {
  static const Driver found;
  return found;
}

CUcontext current_context() noexcept {
  CUcontext context = nullptr;
  return driver().get_current && driver().get_current(&context) == CUDA_SUCCESS ? context : nullptr;
}
// To make a device the current one is, from CUDA 12 on, to give it a context, which takes some hundred megabytes of its memory: not one that
// nobody has used.
bool has_context(int device) noexcept {
  unsigned flags = 0;
  int active = 0;
  return driver().get_state && driver().get_state(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

class Accounts {
 public:
  void take(void* memory, std::size_t bytes, int device) {
    const std::lock_guard lock(mutex_);
    blocks_[memory] = {bytes, device};
  }
  /// Counts `bytes` as used, or refuses.
  void reserve(std::size_t bytes, int device) {
    const std::lock_guard lock(mutex_);
    MemoryUse& use = uses_[device];
    require(use.budget_bytes == 0 || use.bytes + bytes <= use.budget_bytes, Fault::out_of_memory,
            "a device budget of ", use.budget_bytes, " bytes is too small: ", use.bytes,
            " are in use and ", bytes, " more are needed");
    use.bytes += bytes;
    use.peak_bytes = use.bytes > use.peak_bytes ? use.bytes : use.peak_bytes;
  }
  void cancel(std::size_t bytes, int device) {
    const std::lock_guard lock(mutex_);
    uses_[device].bytes -= bytes;
  }
  void give_back(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(memory);
    require(block != blocks_.end(), Fault::device,
            "release of memory that the device did not give");
    uses_[block->second.device].bytes -= block->second.bytes;
    blocks_.erase(block);
  }
  void set_budget(std::size_t bytes, int device) {
    const std::lock_guard lock(mutex_);
    uses_[device].budget_bytes = bytes;
  }
  MemoryUse use(int device) {
    const std::lock_guard lock(mutex_);
    return uses_[device];
  }

 private:
  struct Block {
    std::size_t bytes;
    int device;
  };
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::unordered_map<int, MemoryUse> uses_;
};

Accounts& accounts() {
  static Accounts& all = *new Accounts;  // outlives every buffer
  return all;
}

// Large copies between a device and pageable memory of the host: the driver's own go through one thread, at a fraction of what the bus can
// do. Here several copy to and from pinned pieces, while others of these travel.
class StagedCopies {
 public:
  static constexpr std::size_t least_bytes = std::size_t{2} << 20;

  void run(std::byte* to, const std::byte* from, std::size_t bytes, bool to_device, cudaStream_t stream, int device) {
    if (!to_device) check(cudaStreamSynchronize(stream), "work on the device failed");  // and not behind the lock
    const std::lock_guard lock(mutex_);
    auto& pieces = pieces_[device];
    std::vector<std::thread> threads;
    threads.reserve(copiers - 1);
    // Of little so many that what the first copier has read travels while all read on.
    const std::size_t step = std::clamp(bytes / (4 * copiers) / 4096 * 4096, least_step, piece_bytes);
    const std::size_t all = (bytes + step - 1) / step;
    std::atomic<std::size_t> next = 0;
    std::array<cudaError_t, copiers> failed = {};
    const auto copy = [&](int copier) {
      cudaError_t error = cudaSetDevice(device);  // of a thread of its own, or the one that is on it already
      std::array<Piece, 2>& own = pieces[static_cast<std::size_t>(copier)];
      std::array<std::size_t, 2> under_way = {all, all};
      const auto finish = [&](std::size_t i) {
        if (error == cudaSuccess) error = cudaEventSynchronize(own[i].copied);
        if (!to_device && under_way[i] < all && error == cudaSuccess) {
          std::memcpy(to + under_way[i] * step, own[i].memory, std::min(step, bytes - under_way[i] * step));
        }
        under_way[i] = all;
      };
      for (Piece& piece : own) {
        if (error == cudaSuccess && !piece.memory) {
          error = cudaHostAlloc(reinterpret_cast<void**>(&piece.memory), piece_bytes, cudaHostAllocDefault);
        }
        if (error == cudaSuccess && !piece.copied) error = cudaEventCreateWithFlags(&piece.copied, cudaEventDisableTiming);
      }
      std::size_t turn = 0;
      for (std::size_t at = next++; at < all && error == cudaSuccess; at = next++, turn = 1 - turn) {
        finish(turn);
        const std::size_t begin = at * step, size = std::min(step, bytes - begin);
        if (to_device) std::memcpy(own[turn].memory, from + begin, size);
        if (error == cudaSuccess) {
          error = to_device ? cudaMemcpyAsync(to + begin, own[turn].memory, size, cudaMemcpyDefault, stream)
                            : cudaMemcpyAsync(own[turn].memory, from + begin, size, cudaMemcpyDefault, stream);
        }
        if (error == cudaSuccess) error = cudaEventRecord(own[turn].copied, stream);
        under_way[turn] = at;
      }
      if (!to_device) {
        finish(turn);
        finish(1 - turn);
      }
      failed[static_cast<std::size_t>(copier)] = error;
    };
    try {
      for (int copier = 1; copier < copiers; ++copier) threads.emplace_back(copy, copier);
    } catch (const std::system_error&) {
      // Those that there are do it.
    }
    copy(0);
    for (std::thread& thread : threads) thread.join();
    for (const cudaError_t error : failed) {
      if (error != cudaSuccess) cudaStreamSynchronize(stream);  // no piece is under way
      check(error, "a copy failed");
    }
  }

 private:
  static constexpr int copiers = 4;
  static constexpr std::size_t piece_bytes = std::size_t{2} << 20, least_step = std::size_t{256} << 10;
  struct Piece {
    std::byte* memory = nullptr;
    cudaEvent_t copied = nullptr;
  };
  std::mutex mutex_;
  std::map<int, std::array<std::array<Piece, 2>, copiers>> pieces_;  // by device, 16 MiB of each; for as long as the process lives
};

StagedCopies& staged_copies() {
  static StagedCopies& all = *new StagedCopies;
  return all;
}

// Streams that nobody has: to create and destroy one takes as long as a search of one query. No more than there ever were at a time.
class IdleStreams {
 public:
  Stream* take(int device) {
    const std::lock_guard lock(mutex_);
    std::vector<Stream*>& idle = idle_[device];
    if (idle.empty()) return nullptr;
    Stream* const stream = idle.back();
    idle.pop_back();
    return stream;
  }
  bool keep(Stream* stream) noexcept try {
    const std::lock_guard lock(mutex_);
    idle_[stream->device].push_back(stream);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<Stream*>> idle_;
};
IdleStreams& idle_streams() {
  static IdleStreams& all = *new IdleStreams;  // outlives every stream
  return all;
}

// Pinned pieces that nobody has: to pin memory takes longer than to copy to it.
class IdlePieces {
 public:
  void* take(int device) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<void*>& idle = idle_[device];
      if (!idle.empty()) {
        void* const piece = idle.back();
        idle.pop_back();
        return piece;
      }
    }
    void* piece = nullptr;
    const OnDevice on(device);
    check(cudaHostAlloc(&piece, piece_bytes, cudaHostAllocDefault), "the host has no memory left to pin");
    return piece;
  }
  void give_back(void* piece, int device) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      std::vector<void*>& idle = idle_[device];
      if (idle.size() < most_idle) return idle.push_back(piece);
    } catch (const std::bad_alloc&) {
    }
    cudaFreeHost(piece);
  }

 private:
  static constexpr std::size_t most_idle = 16;  // 64 MiB
  std::mutex mutex_;
  std::map<int, std::vector<void*>> idle_;
};
IdlePieces& idle_pieces() {
  static IdlePieces& all = *new IdlePieces;  // outlives every search
  return all;
}

bool is_pageable(const void* memory) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeUnregistered;
}

double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

TimedWork::TimedWork(const char* name, Stream* stream) : name_(name), stream_(stream), begin_ms_(0) {
  if (!launches_are_timed()) return;
  cudaStreamSynchronize(stream_of(stream).stream);
  begin_ms_ = now_ms();
}
TimedWork::~TimedWork() {
  if (launches_are_timed()) {
    cudaStreamSynchronize(stream_of(stream_).stream);  // what failed, the next call tells
    count_launch(name_, now_ms() - begin_ms_);
  } else if (name_[0] != '(') {
    count_launch(name_);
  }
}

std::string device_kind() {
  return "cuda";
}
int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}
std::string device_name(int device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "the device does not answer");
  return properties.name;
}
int multiprocessors(int device) {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "the device does not answer");
  return count;
}

std::size_t shared_bytes_a_block(int device) {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "the device does not answer");
  return static_cast<std::size_t>(bytes);
}
bool streams_products() {
  const char* asked = std::getenv("GIGAKNN_WARPGROUPS");
  return !asked || std::atoi(asked) >= 2;
}
BoxMap map_boxes(const std::byte* data, std::int64_t rows, std::int64_t row_bytes) {
  static_assert(sizeof(BoxMap) == sizeof(CUtensorMap) && alignof(BoxMap) >= alignof(CUtensorMap));
  // Of the driver, whose library may be absent where this is loaded.
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
          "the driver does not answer");
    require(result == cudaDriverEntryPointSuccess && found, Fault::device, "the driver knows no tensor maps");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  BoxMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(rows)};
  const cuuint64_t pitch[] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[] = {group_row_bytes, group_rows_b};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result = encode(reinterpret_cast<CUtensorMap*>(&map), CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<std::byte*>(data),
                                 sizes, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(result == CUDA_SUCCESS, Fault::device, "a tensor map could not be made: ", static_cast<int>(result));
  return map;
}
bool has_warpgroup_products(int device) {
  if (const char* asked = std::getenv("GIGAKNN_WARPGROUPS"); asked && std::atoi(asked) == 0)
    return false;
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "the device does not answer");
  return major == 9;
}
std::size_t free_memory(int device) {
  const OnDevice on(device);
  std::size_t free_bytes = 0;
  std::size_t all_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &all_bytes), "the device does not answer");
  return free_bytes;
}

int device_of_memory(const void* memory) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();  // older drivers do not know memory of the host
    return -1;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged ? attributes.device : -1;
}

namespace {

// Whose memory it is, where it is another device's than the stream's; else -1.
int other_device(const void* memory, const Stream* stream) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    cudaGetLastError();
    return -1;
  }
  return attributes.type == cudaMemoryTypeDevice && attributes.device != device_of(stream) ? attributes.device : -1;
}

}  // namespace

Stream* create_stream(int device) {
  const OnDevice on(device);
  if (Stream* const idle = idle_streams().take(device)) return idle;
  std::uint64_t never = ~std::uint64_t{0};  // destroy_stream does it
  check(cudaMemPoolSetAttribute(pool_of(device), cudaMemPoolAttrReleaseThreshold, &never), "the device's pool cannot be set");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "no stream could be created");
  return new Stream{stream, device};
}
int device_of(const Stream* stream) {
  return stream ? stream->device : 0;
}
void destroy_stream(Stream* stream) {
  const OnDevice on(stream->device, std::nothrow);
  const bool works = cudaStreamSynchronize(stream->stream) == cudaSuccess;
  trim(stream->device);
  if (works && idle_streams().keep(stream)) return;
  cudaStreamDestroy(stream->stream);
  delete stream;
}
void synchronize(Stream* stream) {
  check(cudaStreamSynchronize(OnStream(stream)), "work on the device failed");
}

void synchronize_foreign(int device, std::uintptr_t stream) {
  const OnDevice on(device);
  check(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(stream)), "work on the caller's stream failed");
}
void synchronize_device(int device) {
  const OnDevice on(device);
  check(cudaDeviceSynchronize(), "work on the device failed");
}

Event* create_event(int device) {
  const OnDevice on(device);
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "no event could be created");
  return new Event{event};
}
void destroy_event(Event* event) {
  cudaEventDestroy(event->event);
  delete event;
}
void record(Event* event, Stream* stream) {
  check(cudaEventRecord(event->event, OnStream(stream)), "an event cannot be recorded");
}
void wait(Stream* stream, Event* event) {
  check(cudaStreamWaitEvent(OnStream(stream), event->event, 0), "a stream cannot wait for an event");
}
void await(Event* event) {
  check(cudaEventSynchronize(event->event), "work on the device failed");
}
double milliseconds_between(Event* from, Event* to) {
  float elapsed = 0;
  await(to);
  check(cudaEventElapsedTime(&elapsed, from->event, to->event), "the events hold no time");
  return elapsed;
}

void set_memory_budget(std::size_t bytes, int device) {
  accounts().set_budget(bytes, device);
}
MemoryUse memory_use(int device) {
  return accounts().use(device);
}

bool allocations_are_slow() { return true; }
void* allocate(std::size_t bytes, Stream* stream) {
  const int device = device_of(stream);
  accounts().reserve(bytes, device);
  void* memory = nullptr;
  const TimedWork timed("(allocate)", stream);
  try {
    check(cudaMallocAsync(&memory, bytes > 0 ? bytes : 1, OnStream(stream)),
          "the device has no memory left");
  } catch (...) {
    accounts().cancel(bytes, device);
    throw;
  }
  accounts().take(memory, bytes, device);
  return memory;
}
void release(void* memory, Stream* stream) {
  accounts().give_back(memory);
  const Stream& of = stream_of(stream);
  const OnDevice on(of.device, std::nothrow);
  const TimedWork timed("(release)", stream);
  cudaFreeAsync(memory, of.stream);
}
void copy(void* to, const void* from, std::size_t bytes, Stream* stream) {
  if (bytes == 0) return;
  const TimedWork timed("(copy)", stream);
  if (bytes >= StagedCopies::least_bytes) {
    const bool to_device = is_pageable(from);
    if (to_device != is_pageable(to)) {
      return staged_copies().run(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, to_device, OnStream(stream),
                                 device_of(stream));
    }
  }
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, OnStream(stream)), "a copy failed");
}
void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t row_bytes, std::size_t rows, Stream* stream) {
  if (rows == 0 || row_bytes == 0) return;
  // What a pool gave out other devices reach by a peer's copy alone. Not run on a machine of several GPUs yet.
  const int source = other_device(from, stream);
  const auto copy_piece = [&](void* piece_to, const void* piece_from, std::size_t bytes) {
    if (source < 0) return copy(piece_to, piece_from, bytes, stream);
    check(cudaMemcpyPeerAsync(piece_to, device_of(stream), piece_from, source, bytes, OnStream(stream)), "a copy between devices failed");
  };
  if (rows == 1 || (to_pitch == row_bytes && from_pitch == row_bytes)) return copy_piece(to, from, rows * row_bytes);
  constexpr std::size_t most_pitch = 0x7FFFFFFF;  // cudaDevAttrMaxPitch
  if (source >= 0 || std::max(to_pitch, from_pitch) > most_pitch) {
    for (std::size_t i = 0; i < rows; ++i) {
      copy_piece(static_cast<std::byte*>(to) + i * to_pitch, static_cast<const std::byte*>(from) + i * from_pitch, row_bytes);
    }
    return;
  }
  const TimedWork timed("(copy)", stream);
  check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows, cudaMemcpyDefault,
                          OnStream(stream)),
        "a copy failed");
}
void fill(void* to, int byte, std::size_t bytes, Stream* stream) {
  if (bytes == 0) return;
  const TimedWork timed("(fill)", stream);
  check(cudaMemsetAsync(to, byte, bytes, OnStream(stream)), "a fill failed");
}

void* take_piece(int device) { return idle_pieces().take(device); }
void give_back_piece(void* piece, int device) noexcept { idle_pieces().give_back(piece, device); }

OnDevice::OnDevice(int device, std::nothrow_t) noexcept : device_(device), before_(device), context_(current_context()) {
  if (!context_ && cudaGetDevice(&before_) != cudaSuccess) before_ = device;
  error_ = cudaSetDevice(device);
}
OnDevice::OnDevice(int device) : OnDevice(device, std::nothrow) { check(error_, "the device cannot be used"); }
OnDevice::~OnDevice() {
  if (context_) {  // which may be one that the caller made
    if (current_context() != context_) driver().set_current(static_cast<CUcontext>(context_));
  } else if (before_ != device_ && has_context(before_)) {
    cudaSetDevice(before_);
  }
}
OnStream::OnStream(Stream* stream) : on_(stream_of(stream).device), stream_(stream_of(stream).stream) {}
void allow_shared_memory(const void* kernel, std::size_t bytes, Stream* stream) {
  static std::mutex mutex;
  static auto& allowed = *new std::map<std::pair<const void*, int>, std::size_t>;
  const std::lock_guard lock(mutex);
  std::size_t& most = allowed[{kernel, device_of(stream)}];
  if (bytes <= most) return;
  const cudaError_t refused = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (refused != cudaSuccess) cudaGetLastError();
  require(refused == cudaSuccess, Fault::device, "a kernel cannot have ", bytes, " bytes of shared memory");
  most = bytes;
}

}  // namespace gigaknn::simt
