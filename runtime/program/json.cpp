#include "runtime/program/json.h"

namespace etwgpu {
namespace {

/// Bytes of the UTF-8 sequence at the start of s, or 0 if there is none.
size_t utf8Length(std::string_view s) {
  const auto byte = [&](size_t i) { return uint8_t(s[i]); };
  const size_t n = byte(0) < 0xc2 ? 0 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : byte(0) < 0xf5 ? 4 : 0;
  if (n == 0 || s.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (byte(0) == 0xe0 && byte(1) < 0xa0) return 0;   // overlong
  if (byte(0) == 0xed && byte(1) >= 0xa0) return 0;  // surrogates
  if ((byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) >= 0x90)) return 0;
  return n;
}

}  // namespace

void JsonWriter::quote(std::string_view s) {
  text_ += '"';
  while (!s.empty()) {
    const uint8_t c = uint8_t(s[0]);
    size_t n = 1;
    if (c == '"' || c == '\\') {
      text_ += {'\\', char(c)};
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      text_ += format("\\u%04x", unsigned(c));
    } else if (c < 0x80) {
      text_ += char(c);
    } else if ((n = utf8Length(s)) != 0) {
      text_ += s.substr(0, n);
    } else {
      text_ += '?';
      n = 1;
    }
    s.remove_prefix(n);
  }
  text_ += '"';
}

}  // namespace etwgpu
