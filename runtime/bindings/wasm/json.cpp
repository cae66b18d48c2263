#include "runtime/bindings/wasm/json.h"

#include "runtime/core/status.h"

namespace etwgpu {

std::string jsonString(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += format("\\u%04x", c);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

JsonObject& JsonObject::raw(std::string_view key, std::string_view value) {
  if (out_.size() > 1) out_ += ",";
  out_ += jsonString(key) + ":";
  out_ += value;
  return *this;
}
JsonObject& JsonObject::text(std::string_view key, std::string_view value) { return raw(key, jsonString(value)); }
JsonObject& JsonObject::number(std::string_view key, double value) { return raw(key, format("%.17g", value)); }
JsonObject& JsonObject::flag(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }

}  // namespace etwgpu
