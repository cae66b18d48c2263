#include "runtime/core/status.h"

#include <cstdarg>
#include <cstdio>

namespace etwgpu {

std::string_view codeName(Code code) {
  static constexpr std::string_view kNames[kCodeCount] = {"ok",
                                                          "invalid_argument",
                                                          "invalid_program",
                                                          "not_a_program",
                                                          "unsupported_version",
                                                          "unsupported_operator",
                                                          "data_missing",
                                                          "out_of_memory",
                                                          "limit_exceeded",
                                                          "no_adapter",
                                                          "device_lost",
                                                          "gpu_error",
                                                          "io_error",
                                                          "cancelled",
                                                          "saved_state",
                                                          "non_finite",
                                                          "internal"};
  return kNames[size_t(code)];
}

std::string format(const char* fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  const int n = std::vsnprintf(nullptr, 0, fmt, args);
  va_end(args);
  std::string s(size_t(n < 0 ? 0 : n), '\0');
  if (n > 0) std::vsnprintf(s.data(), s.size() + 1, fmt, again);
  va_end(again);
  return s;
}

}  // namespace etwgpu
