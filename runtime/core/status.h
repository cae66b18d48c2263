// Errors as values: the runtime is built without exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace etwgpu {

/// What went wrong. The names are part of the public API: the web and Python bindings turn each into an error class.
enum class Code : uint8_t {
  ok,
  invalid_argument,      // the caller passed something the method does not accept
  invalid_program,       // the file is damaged or was never a program
  not_a_program,         // an HTML page, a Git-LFS pointer, an archive …
  unsupported_version,   // written by a newer exporter
  unsupported_operator,  // no kernel serves an operator of the program
  data_missing,          // a weight is not in the program and no .ptd with it was given
  out_of_memory,
  limit_exceeded,  // a limit of the device or a configured cap
  no_adapter,
  device_lost,
  gpu_error,
  io_error,
  cancelled,
  saved_state,  // a saved state of another model, or a damaged one
  non_finite,   // LoadOptions::check_values has found a NaN or an infinity
  internal,
};
constexpr int kCodeCount = int(Code::internal) + 1;

/// Stable lower-case name, e.g. "invalid_program".
std::string_view codeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result() : status_(Code::internal, "empty result") {}  // coroutine promises need a default
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}
  Result(Code code, std::string message) : status_(code, std::move(message)) {}
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

namespace detail {
inline Status asStatus(Status s) { return s; }
template <class T>
Status asStatus(const Result<T>& r) {
  return r.status();
}
}  // namespace detail

/// printf into a std::string: the runtime has neither iostreams nor std::format, which cost size in Wasm.
std::string format(const char* fmt, ...) __attribute__((format(printf, 1, 2)));

#define ETWGPU_CONCAT_(a, b) a##b
#define ETWGPU_CONCAT(a, b) ETWGPU_CONCAT_(a, b)

/// Returns the error of a Status or Result expression from the enclosing function.
#define ETWGPU_TRY(expr)                                                                                  \
  do {                                                                                                    \
    if (auto etwgpu_status = ::etwgpu::detail::asStatus(expr); !etwgpu_status.ok()) return etwgpu_status; \
  } while (0)
/// `ETWGPU_ASSIGN(auto x, f())`: the value of a Result, or its error from the enclosing function.
#define ETWGPU_ASSIGN(decl, expr) ETWGPU_ASSIGN_(ETWGPU_CONCAT(etwgpu_result_, __LINE__), decl, expr, return )
#define ETWGPU_ASSIGN_(tmp, decl, expr, ret) \
  auto tmp = (expr);                         \
  if (!tmp.ok()) ret tmp.status();           \
  decl = std::move(tmp).value()
/// The same inside a coroutine.
#define ETWGPU_CO_TRY(expr)                                                                                  \
  do {                                                                                                       \
    if (auto etwgpu_status = ::etwgpu::detail::asStatus(expr); !etwgpu_status.ok()) co_return etwgpu_status; \
  } while (0)
#define ETWGPU_CO_ASSIGN(decl, expr) ETWGPU_ASSIGN_(ETWGPU_CONCAT(etwgpu_result_, __LINE__), decl, expr, co_return )

}  // namespace etwgpu
