#include "runtime/program/json_value.h"

namespace etwgpu {

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

std::optional<uint64_t> JsonValue::count() const {
  if (kind != Kind::number || !(number >= 0 && number <= 0x1p53) || number != double(uint64_t(number))) return {};
  return uint64_t(number);
}

}  // namespace etwgpu
