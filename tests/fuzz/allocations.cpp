#include "tests/fuzz/allocations.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> g_live{0}, g_peak{0};

void add(int64_t bytes) {
  const int64_t live = g_live += bytes;
  int64_t peak = g_peak;
  while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
  }
}

}  // namespace

namespace etwgpu::fuzz {

void startCounting() {
  g_live = 0;
  g_peak = 0;
}
uint64_t peakBytes() { return uint64_t(g_peak.load()); }

}  // namespace etwgpu::fuzz

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ETWGPU_ASAN 1
#endif
#endif

#ifdef ETWGPU_ASAN
// The sanitizer's hooks see malloc and calloc, too, and leave its own checks of new and delete alone.
#include <sanitizer/allocator_interface.h>

namespace {
const int g_installed =
    __sanitizer_install_malloc_and_free_hooks([](const volatile void*, size_t bytes) { add(int64_t(bytes)); },
                                              [](const volatile void* p) {
                                                if (p) add(-int64_t(__sanitizer_get_allocated_size(p)));
                                              });
}  // namespace
#else
// glibc lets a program replace malloc itself only with care; new and calloc's callers in the runtime are what matters,
// and HostBuffer's calloc counts itself against the cap.
void* operator new(size_t bytes) {
  void* p = std::malloc(bytes ? bytes : 1);
  if (!p) std::abort();
  add(int64_t(malloc_usable_size(p)));
  return p;
}
void operator delete(void* p) noexcept {
  if (p) add(-int64_t(malloc_usable_size(p)));
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }
#endif
