// Writing small JSON objects.
#pragma once

#include <string>
#include <string_view>

namespace etwgpu {

class JsonObject {
 public:
  JsonObject& text(std::string_view key, std::string_view value);
  JsonObject& number(std::string_view key, double value);
  JsonObject& flag(std::string_view key, bool value);
  /// `value` is JSON.
  JsonObject& raw(std::string_view key, std::string_view value);
  std::string take() { return out_ + "}"; }

 private:
  std::string out_ = "{";
};

/// With quotes.
std::string jsonString(std::string_view text);

}  // namespace etwgpu
