// Writing JSON: enough for reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/core/status.h"

namespace etwgpu {

/// Appends to one string; the caller opens and closes objects and arrays in the right order.
class JsonWriter {
 public:
  void beginObject() { open('{'); }
  void endObject() { close('}'); }
  void beginArray() { open('['); }
  void endArray() { close(']'); }
  void key(std::string_view name) {
    comma();
    quote(name);
    text_ += ':';
    first_ = true;
  }
  void string(std::string_view s) { comma(), quote(s); }
  void number(int64_t v) { comma(), text_ += std::to_string(v); }
  void number(uint64_t v) { comma(), text_ += std::to_string(v); }
  void number(int v) { number(int64_t(v)); }
  /// JSON has no infinities and no NaN: they become strings.
  void number(double v) {
    if (v != v || v - v != 0) return string(v != v ? "nan" : v > 0 ? "inf" : "-inf");
    comma(), text_ += format("%.17g", v);
  }
  void boolean(bool v) { comma(), text_ += v ? "true" : "false"; }
  void null() { comma(), text_ += "null"; }
  template <class T>
  void field(std::string_view name, T v) {
    key(name);
    number(v);
  }
  void field(std::string_view name, std::string_view v) { key(name), string(v); }
  void field(std::string_view name, const std::string& v) { key(name), string(v); }
  void field(std::string_view name, const char* v) { key(name), string(v); }
  void field(std::string_view name, bool v) { key(name), boolean(v); }
  std::string take() { return std::move(text_); }

 private:
  void comma() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  void open(char c) { comma(), text_ += c, first_ = true; }
  void close(char c) { text_ += c, first_ = false; }
  /// Bytes outside of ASCII pass as they are where they form UTF-8; others, which damaged files have, become "?".
  void quote(std::string_view s);
  std::string text_;
  bool first_ = true;
};

}  // namespace etwgpu
