// The thread pool of the CPU executor: a static partition, the caller works too. Between the regions of one run the
// workers spin, since waking a sleeper costs as much as the arithmetic of a small layer (45 µs in a browser); after a
// run they sleep.
#include <algorithm>
#include <memory>

#include "runtime/executor/cpu_kernel.h"

#if !defined(__EMSCRIPTEN__) || defined(__EMSCRIPTEN_PTHREADS__)
#define ETWGPU_CPU_THREADS 1
#include <atomic>
#include <chrono>
#include <thread>
#else
#define ETWGPU_CPU_THREADS 0
#endif

namespace etwgpu {
namespace {

class SerialPool final : public ThreadPool {
 public:
  int threads() const override { return 1; }
  void parallelFor(int64_t count, int64_t, const std::function<void(int64_t, int64_t)>& fn) override {
    if (count > 0) fn(0, count);
  }
};

#if ETWGPU_CPU_THREADS

#if defined(__EMSCRIPTEN__)
void waitOn(std::atomic<int>& a, int old) { __builtin_wasm_memory_atomic_wait32(reinterpret_cast<int*>(&a), old, -1); }
void wakeAll(std::atomic<int>& a) { __builtin_wasm_memory_atomic_notify(reinterpret_cast<int*>(&a), 0x7fffffff); }
#else
void waitOn(std::atomic<int>& a, int old) { a.wait(old); }
void wakeAll(std::atomic<int>& a) { a.notify_all(); }
#endif

void pauseBriefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr auto kSpin = std::chrono::microseconds(50);

/// Spins until `done()`; false after about 50 µs.
template <class Done>
bool spinUntil(Done done) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < 512; ++i) {
      if (done()) return true;
      pauseBriefly();
    }
    if (std::chrono::steady_clock::now() - start > kSpin) return false;
  }
}

class SpinningPool final : public ThreadPool {
 public:
  explicit SpinningPool(int threads) : threads_(threads) {
    for (int i = 1; i < threads_; ++i) workers_.emplace_back([this, i] { work(i); });
  }
  ~SpinningPool() override {
    stop_ = true;
    publish();
    for (auto& w : workers_) w.join();
  }
  int threads() const override { return threads_; }

  void parallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) override {
    if (count <= 0) return;
    grain = std::max<int64_t>(grain, 1);
    const int64_t pieces = (count + grain - 1) / grain;
    if (pieces == 1 || inside_) return fn(0, count);  // a region inside a region is serial
    inside_ = true;
    job_ = {&fn, count, grain, pieces};
    left_.store(threads_ - 1, std::memory_order_relaxed);
    publish();
    runPart(0);
    if (!spinUntil([this] { return left_.load(std::memory_order_acquire) == 0; })) {
      // A worker lost its core. Yielding natively lets it run; a page's thread has nothing to yield to.
      while (left_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
    }
    inside_ = false;
  }
  void beginRun() override { running_.store(true, std::memory_order_relaxed); }
  void endRun() override { running_.store(false, std::memory_order_relaxed); }

 private:
  struct Job {
    const std::function<void(int64_t, int64_t)>* fn = nullptr;
    int64_t count = 0, grain = 1, pieces = 0;
  };
  void publish() {
    epoch_.fetch_add(1);
    if (sleepers_.load() != 0) wakeAll(epoch_);  // no system call while everybody spins
  }
  void runPart(int part) {
    const int64_t b = job_.pieces * part / threads_ * job_.grain;
    const int64_t e = std::min(job_.pieces * (part + 1) / threads_ * job_.grain, job_.count);
    if (b < e) (*job_.fn)(b, e);
  }
  void work(int part) {
    int seen = 0;
    for (;;) {
      const auto changed = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
      while (!changed()) {
        if (spinUntil(changed)) break;
        if (running_.load(std::memory_order_relaxed)) {
          std::this_thread::yield();
          continue;
        }
        sleepers_.fetch_add(1);
        if (epoch_.load() == seen) waitOn(epoch_, seen);
        sleepers_.fetch_sub(1);
      }
      seen = epoch_.load(std::memory_order_acquire);
      if (stop_) return;
      runPart(part);
      left_.fetch_sub(1, std::memory_order_release);
    }
  }

  const int threads_;
  Job job_;
  bool inside_ = false;  // only the caller's thread opens regions
  std::atomic<bool> stop_{false}, running_{false};
  alignas(64) std::atomic<int> epoch_{0};
  alignas(64) std::atomic<int> left_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::vector<std::thread> workers_;
};
#endif  // ETWGPU_CPU_THREADS

}  // namespace

std::unique_ptr<ThreadPool> makeThreadPool(int threads) {
#if ETWGPU_CPU_THREADS
  if (threads > 1) return std::make_unique<SpinningPool>(std::min(threads, 64));
#endif
  (void)threads;
  return std::make_unique<SerialPool>();
}

}  // namespace etwgpu
