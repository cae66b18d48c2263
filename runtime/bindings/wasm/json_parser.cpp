// parseJson by JavaScript's own JSON.parse, which costs the download nothing. The host writes what it has read as
// web/src/worker/json.ts says.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "runtime/program/json_value.h"

extern "C" {
/// Malloced bytes, or 0 where `text` is no JSON or nested deeper than 64.
extern uint8_t* etwgpu_parse_json(const char* text, int length);
}

namespace etwgpu {
namespace {

struct Free {
  void operator()(uint8_t* p) const { std::free(p); }
};

class Reader {
 public:
  explicit Reader(const uint8_t* at) : at_(at) {}

  void read(JsonValue& v) {
    v.kind = JsonValue::Kind(*at_++);
    switch (v.kind) {
      case JsonValue::Kind::null:
        break;
      case JsonValue::Kind::boolean:
        v.boolean = *at_++;
        break;
      case JsonValue::Kind::number:
        std::memcpy(&v.number, at_, sizeof v.number);
        at_ += sizeof v.number;
        break;
      case JsonValue::Kind::string:
        v.string = text();
        break;
      case JsonValue::Kind::array:
        v.items.resize(count());
        for (JsonValue& item : v.items) read(item);
        break;
      case JsonValue::Kind::object:
        v.members.resize(count());
        for (auto& [name, member] : v.members) {
          name = text();
          read(member);
        }
    }
  }

 private:
  uint32_t count() {
    uint32_t n;
    std::memcpy(&n, at_, sizeof n);
    at_ += sizeof n;
    return n;
  }
  std::string text() {
    const uint32_t n = count();
    at_ += n;
    return {reinterpret_cast<const char*>(at_ - n), n};
  }

  const uint8_t* at_;
};

}  // namespace

Result<JsonValue> parseJson(std::string_view text) {
  const std::unique_ptr<uint8_t, Free> bytes(etwgpu_parse_json(text.data(), int(text.size())));
  if (!bytes) return Status(Code::invalid_program, "no JSON");
  JsonValue value;
  Reader(bytes.get()).read(value);
  return value;
}

}  // namespace etwgpu
