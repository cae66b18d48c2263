// Reading JSON: the headers of safetensors files and small configurations.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/status.h"

namespace etwgpu {

struct JsonMember;

struct JsonValue {
  enum class Kind : uint8_t { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0;
  std::string string;
  std::vector<JsonValue> items;     // of an array
  std::vector<JsonMember> members;  // of an object, in their order

  bool is(Kind k) const { return kind == k; }
  /// nullptr where it is no object or has no such member.
  const JsonValue* find(std::string_view key) const;
  /// A whole number from 0 to 2^53, or nullopt.
  std::optional<uint64_t> count() const;
};

// no std::pair: that needs a complete type where it is named, for clang 14 with libstdc++ 12
struct JsonMember {
  std::string name;
  JsonValue value;
};

/// invalid_program with the position for what is no JSON text (RFC 8259), or nested deeper than 64.
Result<JsonValue> parseJson(std::string_view text);

}  // namespace etwgpu
