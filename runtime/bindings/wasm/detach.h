// Starting a task that nobody awaits: the outermost call of an asynchronous function of the C API.
#pragma once

#include <coroutine>
#include <cstdlib>
#include <utility>

#include "runtime/core/task.h"

namespace etwgpu {

namespace detail {
/// A coroutine that starts at once and frees itself at its end.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::abort(); }
  };
};
}  // namespace detail

/// Runs `task` as far as it goes now; `done(value)` is called once, inside this call or from a later callback.
template <class T, class Done>
detail::Detached detach(Task<T> task, Done done) {
  done(co_await task);
}

}  // namespace etwgpu
