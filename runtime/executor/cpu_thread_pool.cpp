// The thread pool of the CPU executor: a static partition, the caller works too. Between the regions of one run the
// workers spin for a while, since waking a sleeper costs as much as the arithmetic of a small layer (45 µs in a
// browser). On a busy machine a worker may not get a core in time, and a browser may never start it: then the caller
// takes its part over, and whoever waits sleeps instead of keeping the core from the one that is waited for.
#include <algorithm>
#include <memory>

#include "runtime/executor/cpu_kernel.h"

#if !defined(__EMSCRIPTEN__) || defined(__EMSCRIPTEN_PTHREADS__)
#define ETWGPU_CPU_THREADS 1
#include <atomic>
#include <chrono>
#include <thread>
#if defined(__EMSCRIPTEN__)
#include <emscripten/threading.h>
#endif
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
bool maySleep() { return !emscripten_is_main_browser_thread(); }  // a page's own thread must not wait
#else
void waitOn(std::atomic<int>& a, int old) { a.wait(old); }
void wakeAll(std::atomic<int>& a) { a.notify_all(); }
bool maySleep() { return true; }
#endif

void pauseBriefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long to spin for a change: serial parts of a run are shorter, and after a run nothing comes for long.
constexpr auto kSpin = std::chrono::microseconds(50), kSpinInRun = std::chrono::microseconds(200);

/// Spins until `done()`; false after about that time.
template <class Done>
bool spinUntil(Done done, std::chrono::microseconds longest) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < 512; ++i) {
      if (done()) return true;
      pauseBriefly();
    }
    if (std::chrono::steady_clock::now() - start > longest) return false;
  }
}

/// What the caller and the workers share. A worker holds it too: in a browser one may start late, or never, and then
/// the pool ends without it.
class Shared {
 public:
  explicit Shared(int threads) : threads_(threads), claims_(static_cast<size_t>(threads)) {}

  void runRegion(int64_t count, int64_t grain, int64_t pieces, const std::function<void(int64_t, int64_t)>& fn) {
    job_ = {&fn, count, grain, pieces};
    left_.store(threads_, std::memory_order_relaxed);
    publish();
    for (int part = 0; part < threads_; ++part) claimAndRun(part, epoch_.load(std::memory_order_relaxed));
    waitForOthers();
  }
  void setRunning(bool running) { running_.store(running, std::memory_order_relaxed); }
  void stop() {
    stop_ = true;
    publish();
  }
  bool hasStarted(int part) const { return claims_[static_cast<size_t>(part)].started.load(); }

  void work(int part) {
    claims_[static_cast<size_t>(part)].started.store(true);
    int seen = 0;
    for (;;) {
      const auto changed = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
      while (!changed()) {
        if (spinUntil(changed, running_.load(std::memory_order_relaxed) ? kSpinInRun : kSpin)) break;
        sleepers_.fetch_add(1);
        if (epoch_.load() == seen) waitOn(epoch_, seen);
        sleepers_.fetch_sub(1);
      }
      seen = epoch_.load(std::memory_order_acquire);
      if (stop_) return;
      claimAndRun(part, seen);
    }
  }

 private:
  struct Job {
    const std::function<void(int64_t, int64_t)>* fn = nullptr;
    int64_t count = 0, grain = 1, pieces = 0;
  };
  struct alignas(64) Claim {
    std::atomic<int> epoch{0};  // the last region whose part was begun
    std::atomic<bool> started{false};
  };
  void publish() {
    epoch_.fetch_add(1);
    if (sleepers_.load() != 0) wakeAll(epoch_);  // no system call while everybody spins
  }
  /// Runs a part of the region `epoch`, unless somebody else has begun it. At the end of a region every part is
  /// claimed: who comes late finds nothing of it, and does not touch the job of a later one.
  void claimAndRun(int part, int epoch) {
    int before = static_cast<int>(static_cast<unsigned>(epoch) - 1);
    if (!claims_[static_cast<size_t>(part)].epoch.compare_exchange_strong(before, epoch)) return;
    const int64_t b = job_.pieces * part / threads_ * job_.grain;
    const int64_t e = std::min(job_.pieces * (part + 1) / threads_ * job_.grain, job_.count);
    if (b < e) (*job_.fn)(b, e);
    if (left_.fetch_sub(1) == 1 && callerSleeps_.load()) wakeAll(left_);
  }
  void waitForOthers() {
    const auto done = [this] { return left_.load(std::memory_order_acquire) == 0; };
    while (!spinUntil(done, kSpin)) {  // a worker lost its core in the middle of its part
      if (!maySleep()) continue;
      callerSleeps_ = true;
      if (const int left = left_.load()) waitOn(left_, left);
      callerSleeps_ = false;
    }
  }

  const int threads_;
  Job job_;
  std::atomic<bool> stop_{false}, running_{false}, callerSleeps_{false};
  alignas(64) std::atomic<int> epoch_{0};
  alignas(64) std::atomic<int> left_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::vector<Claim> claims_;
};

class SpinningPool final : public ThreadPool {
 public:
  explicit SpinningPool(int threads) : threads_(threads), shared_(std::make_shared<Shared>(threads)) {
    for (int part = 1; part < threads_; ++part) {
      workers_.emplace_back([shared = shared_, part] { shared->work(part); });
    }
  }
  ~SpinningPool() override {
    shared_->stop();
    for (int part = 1; part < threads_; ++part) {
      std::thread& worker = workers_[static_cast<size_t>(part - 1)];
      if (shared_->hasStarted(part)) {
        worker.join();
      } else {
        worker.detach();
      }
    }
  }
  int threads() const override { return threads_; }

  void parallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) override {
    if (count <= 0) return;
    grain = std::max<int64_t>(grain, 1);
    const int64_t pieces = (count + grain - 1) / grain;
    if (pieces == 1 || inside_) return fn(0, count);  // a region inside a region is serial
    inside_ = true;
    shared_->runRegion(count, grain, pieces, fn);
    inside_ = false;
  }
  void beginRun() override { shared_->setRunning(true); }
  void endRun() override { shared_->setRunning(false); }

 private:
  const int threads_;
  bool inside_ = false;  // only the caller's thread opens regions
  std::shared_ptr<Shared> shared_;
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
