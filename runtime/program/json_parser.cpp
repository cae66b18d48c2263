// parseJson natively; where JavaScript is at hand, its JSON.parse is asked instead (bindings/wasm/json_parser.cpp).
#include <cstdlib>

#include "runtime/program/json_value.h"

namespace etwgpu {
namespace {

constexpr int kMaxDepth = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<JsonValue> run() {
    JsonValue value;
    if (!parse(value, 0) || (space(), at_ < text_.size()))
      return Status(Code::invalid_program, format("no JSON: wrong at character %zu", at_));
    return value;
  }

 private:
  void space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }

  bool parse(JsonValue& v, int depth) {
    space();
    if (at_ >= text_.size() || depth > kMaxDepth) return false;
    switch (text_[at_]) {
      case '{':
        return object(v, depth);
      case '[':
        return array(v, depth);
      case '"':
        v.kind = JsonValue::Kind::string;
        return string(v.string);
      case 't':
      case 'f':
        v.kind = JsonValue::Kind::boolean;
        v.boolean = text_[at_] == 't';
        return word(v.boolean ? "true" : "false");
      case 'n':
        return word("null");
      default:
        return number(v);
    }
  }

  bool object(JsonValue& v, int depth) {
    v.kind = JsonValue::Kind::object;
    ++at_;
    if (take('}')) return true;
    do {
      space();
      v.members.emplace_back();
      auto& [key, member] = v.members.back();
      if (at_ >= text_.size() || text_[at_] != '"' || !string(key) || !take(':') || !parse(member, depth + 1))
        return false;
    } while (take(','));
    return take('}');
  }

  bool array(JsonValue& v, int depth) {
    v.kind = JsonValue::Kind::array;
    ++at_;
    if (take(']')) return true;
    do {
      v.items.emplace_back();
      if (!parse(v.items.back(), depth + 1)) return false;
    } while (take(','));
    return take(']');
  }

  bool number(JsonValue& v) {
    const size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    const std::string digits(text_.substr(at_, end - at_));  // terminated, as strtod wants it
    if (digits.empty() || digits[0] == '+' || digits[0] == '.') return false;
    char* stop = nullptr;
    v.kind = JsonValue::Kind::number;
    v.number = std::strtod(digits.c_str(), &stop);
    if (stop != digits.c_str() + digits.size()) return false;
    at_ = end;
    return true;
  }

  bool hex4(uint32_t& code) {
    if (text_.size() - at_ < 4) return false;
    code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = text_[at_++];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return false;
      code = code << 4 | uint32_t(digit);
    }
    return true;
  }

  static void utf8(uint32_t code, std::string& out) {
    if (code < 0x80) {
      out += char(code);
    } else if (code < 0x800) {
      out += {char(0xc0 | code >> 6), char(0x80 | (code & 63))};
    } else if (code < 0x10000) {
      out += {char(0xe0 | code >> 12), char(0x80 | (code >> 6 & 63)), char(0x80 | (code & 63))};
    } else {
      out += {char(0xf0 | code >> 18), char(0x80 | (code >> 12 & 63)), char(0x80 | (code >> 6 & 63)),
              char(0x80 | (code & 63))};
    }
  }

  bool escape(std::string& out) {
    if (at_ >= text_.size()) return false;
    const char c = text_[at_++];
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      out += kMeanings[i];
      return true;
    }
    uint32_t code = 0, low = 0;
    if (c != 'u' || !hex4(code)) return false;
    if (code >= 0xd800 && code < 0xe000) {  // a pair of surrogates
      if (code >= 0xdc00 || !word("\\u") || !hex4(low) || low < 0xdc00 || low >= 0xe000) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    utf8(code, out);
    return true;
  }

  bool string(std::string& out) {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_++];
      if (uint8_t(c) < 0x20) return false;
      if (c != '\\') {
        out += c;
      } else if (!escape(out)) {
        return false;
      }
    }
    if (at_ >= text_.size()) return false;
    ++at_;
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<JsonValue> parseJson(std::string_view text) { return Parser(text).run(); }

}  // namespace etwgpu
