// Task<T>: a lazily started coroutine. Loading and running are tasks that WebGPU callbacks and data sources drive;
// nothing here blocks, so the same code runs in a browser worker and under a native event pump.
#pragma once

#include <coroutine>
#include <cstdlib>
#include <type_traits>
#include <utility>

namespace etwgpu {

template <class T>
class Task;

namespace detail {

struct PromiseBase {
  std::coroutine_handle<> continuation;
  std::suspend_always initial_suspend() noexcept { return {}; }
  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    template <class P>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<P> h) noexcept {
      const auto next = h.promise().continuation;
      return next ? next : std::noop_coroutine();
    }
    void await_resume() noexcept {}
  };
  FinalAwaiter final_suspend() noexcept { return {}; }
  void unhandled_exception() { std::abort(); }
};

template <class T>
struct Promise : PromiseBase {
  T value{};
  Task<T> get_return_object();
  template <class U>
  void return_value(U&& v) {
    value = T(std::forward<U>(v));
  }
};
template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() {}
};

}  // namespace detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
    handle_.promise().continuation = caller;
    return handle_;
  }
  T await_resume() {
    if constexpr (!std::is_void_v<T>) return std::move(handle_.promise().value);
  }

  /// For the outermost task: runs to the first suspension. Then poll done() or chain a detached task.
  void start() { handle_.resume(); }
  bool done() const { return handle_.done(); }
  T take() { return await_resume(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

namespace detail {
template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}
}  // namespace detail

/// Awaits an operation that reports through a callback. `start(Completion*)` begins it and must arrange exactly one
/// `completion->resolve(value)`, which may happen inside start itself.
template <class R>
struct Completion {
  R value{};
  bool done = false, waiting = false;
  std::coroutine_handle<> handle;
  void resolve(R v) {
    value = std::move(v);
    done = true;
    if (waiting) handle.resume();
  }
};
template <class R, class Start>
struct CallbackAwaiter {
  Start start;
  Completion<R> completion;
  bool await_ready() const { return false; }
  bool await_suspend(std::coroutine_handle<> h) {
    completion.handle = h;
    start(&completion);
    if (completion.done) return false;  // resolved inside the call: go on without suspending
    completion.waiting = true;
    return true;
  }
  R await_resume() { return std::move(completion.value); }
};
template <class R, class Start>
CallbackAwaiter<R, Start> awaitCallback(Start start) {
  return {std::move(start), {}};
}

}  // namespace etwgpu
