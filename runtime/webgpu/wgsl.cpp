#include "runtime/webgpu/wgsl.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "generated/wgsl_sources.h"

namespace etwgpu {
namespace {

std::string_view trim(std::string_view s) {
  const size_t begin = s.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(" \t\r") - begin + 1);
}
bool isNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool startsWithWord(std::string_view s, std::string_view word) {
  return s.starts_with(word) && (s.size() == word.size() || !isNameCharacter(s[word.size()]));
}
bool isTruthy(std::string_view value) { return !value.empty() && value != "0" && value != "false"; }

class Expander {
 public:
  Expander(const WgslVariant& variant, const WgslLookup& lookup) : variant_(variant), lookup_(lookup) {}

  Result<std::string> run() {
    if (variant_.file.empty()) {
      ETWGPU_TRY(expand(variant_.source, "generated source"));
    } else {
      ETWGPU_TRY(include(variant_.file, "the kernel"));
    }
    for (const auto& [name, value] : variant_.defines) {
      if (!used_.contains(name)) return error(variant_.file, 0, format("%s is defined but not used", name.c_str()));
    }
    return head_ + body_;
  }

 private:
  struct Branch {
    bool outer;  // whether the text around the condition is taken
    bool taken;  // whether the current branch is
    bool any;    // whether some branch was
    bool had_else;
  };

  Status error(std::string_view file, int line, const std::string& message) const {
    return Status(Code::internal, format("kernel %s: %.*s:%d: %s", variant_.name.c_str(), int(file.size()), file.data(),
                                         line, message.c_str()));
  }

  Status include(std::string_view name, std::string_view from) {
    if (!included_.emplace(name).second) return {};
    const std::string_view text = lookup_(name);
    if (text.empty()) {
      return error(from, 0, format("there is no WGSL file \"%.*s\"", int(name.size()), name.data()));
    }
    return expand(text, name);
  }

  Status expand(std::string_view text, std::string_view file, int line_number = 0) {
    std::vector<Branch> branches;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_number;
      const std::string_view content = trim(line);
      const bool taken = !skipping_ && (branches.empty() || (branches.back().outer && branches.back().taken));
      if (content.starts_with("#for")) {
        ETWGPU_TRY(repeat(content.substr(4), text, taken, file, line_number));
      } else if (content.starts_with('#')) {
        ETWGPU_TRY(directive(content, taken, branches, file, line_number));
      } else {
        ETWGPU_TRY(emit(line, content, taken, file, line_number));
      }
    }
    if (!branches.empty()) return error(file, line_number, "#if without #endif");
    return {};
  }

  /// `#for NAME FIRST END`: takes the lines up to the matching #endfor off the text and expands them for every number
  /// in [FIRST, END).
  Status repeat(std::string_view head, std::string_view& text, bool taken, std::string_view file, int& line) {
    const int first_line = line;
    std::string_view rest = text;
    int depth = 1;
    size_t length = 0;
    while (!rest.empty() && depth > 0) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view content = trim(rest.substr(0, end));
      if (content.starts_with("#for")) ++depth;
      if (content.starts_with("#endfor")) --depth;
      if (depth > 0) length += std::min(end + 1, rest.size());
      rest.remove_prefix(std::min(end + 1, rest.size()));
      ++line;
    }
    if (depth > 0) return error(file, first_line, "#for without #endfor");
    const std::string_view body = text.substr(0, length);
    text = rest;
    std::vector<std::string> words;
    for (head = trim(head); !head.empty();) {
      const size_t end = std::min(head.find(' '), head.size());
      words.emplace_back(head.substr(0, end));
      head = trim(head.substr(end));
    }
    int64_t bounds[2] = {0, 0};
    if (words.size() != 3 || locals_.contains(words[0])) return error(file, first_line, "bad #for");
    for (size_t i = 0; i < 2; ++i) {
      if (!number(words[i + 1], bounds[i]) && taken)
        return error(file, first_line, format("\"%s\" is no number", words[i + 1].c_str()));
    }
    // names in text that is left out count as used
    const bool skipped = skipping_;
    skipping_ = skipped || !taken || bounds[0] >= bounds[1];
    for (int64_t i = bounds[0]; i < (skipping_ ? bounds[0] + 1 : bounds[1]); ++i) {
      locals_[words[0]] = std::to_string(i);
      ETWGPU_TRY(expand(body, file, first_line));
    }
    skipping_ = skipped;
    locals_.erase(words[0]);
    return {};
  }

  Status directive(std::string_view line, bool taken, std::vector<Branch>& branches, std::string_view file,
                   int number) {
    const std::string_view body = trim(line.substr(1));
    const auto rest = [&](size_t n) { return trim(body.substr(n)); };
    if (startsWithWord(body, "include")) {
      const std::string_view name = rest(7);
      if (name.size() < 3 || name.front() != '"' || name.back() != '"') return error(file, number, "bad #include");
      return taken ? include(name.substr(1, name.size() - 2), file) : Status();
    }
    if (startsWithWord(body, "if")) {
      ETWGPU_ASSIGN(const bool value, condition(rest(2), taken, file, number));
      branches.push_back({taken, value, value, false});
      return {};
    }
    if (branches.empty()) return error(file, number, format("unexpected \"%.*s\"", int(line.size()), line.data()));
    Branch& b = branches.back();
    if (startsWithWord(body, "endif")) {
      branches.pop_back();
      return {};
    }
    if (b.had_else) return error(file, number, "a branch after #else");
    if (startsWithWord(body, "elif")) {
      ETWGPU_ASSIGN(const bool value, condition(rest(4), b.outer && !b.any, file, number));
      b.taken = value && !b.any;
      b.any = b.any || value;
      return {};
    }
    if (startsWithWord(body, "else")) {
      b.had_else = true;
      b.taken = !b.any;
      return {};
    }
    return error(file, number, format("unknown directive \"%.*s\"", int(line.size()), line.data()));
  }

  /// `checked`: unknown names are errors (not in text that is left out anyway).
  Result<bool> condition(std::string_view text, bool checked, std::string_view file, int number) {
    bool any = false;
    for (std::string_view rest = text; !rest.data() || !rest.empty();) {
      const size_t end = std::min(rest.find("||"), rest.size());
      bool all = true;
      for (std::string_view terms = rest.substr(0, end); !terms.empty();) {
        const size_t term_end = std::min(terms.find("&&"), terms.size());
        ETWGPU_ASSIGN(const bool value, term(trim(terms.substr(0, term_end)), checked, file, number));
        all = all && value;
        terms.remove_prefix(std::min(term_end + 2, terms.size()));
      }
      any = any || all;
      rest.remove_prefix(std::min(end + 2, rest.size()));
    }
    return any;
  }

  /// A literal of at most four digits, or a name that stands for one.
  bool number(std::string_view text, int64_t& value) {
    const std::string* found = find(text);
    const std::string_view digits = found ? std::string_view(*found) : text;
    if (digits.empty() || digits.size() > 4 || digits.find_first_not_of("0123456789") != std::string_view::npos)
      return false;
    value = 0;
    for (const char c : digits) value = 10 * value + (c - '0');
    return true;
  }

  Result<bool> term(std::string_view text, bool checked, std::string_view file, int line) {
    const size_t equal = text.find("=="), different = text.find("!="), order = text.find("<=");
    if (order != std::string_view::npos) {
      int64_t left = 0, right = 0;
      const bool numbers = number(trim(text.substr(0, order)), left) && number(trim(text.substr(order + 2)), right);
      if (!numbers && checked) {
        return error(file, line, format("\"%.*s\" compares no numbers", int(text.size()), text.data()));
      }
      return left <= right;
    }
    if (equal == std::string_view::npos && different == std::string_view::npos) {
      const bool negated = text.starts_with('!');
      if (negated) text = trim(text.substr(1));
      const std::string* value = find(text);
      if (!value && checked) {
        return error(file, line, format("unknown name \"%.*s\" in a condition", int(text.size()), text.data()));
      }
      return (value && isTruthy(*value)) != negated;
    }
    const size_t at = std::min(equal, different);
    const std::string_view left = trim(text.substr(0, at)), right = trim(text.substr(at + 2));
    const std::string *a = find(left), *b = find(right);
    if (!a && !b && checked) {
      return error(file, line, format("neither side of \"%.*s\" is defined", int(text.size()), text.data()));
    }
    const bool same = (a ? std::string_view(*a) : left) == (b ? std::string_view(*b) : right);
    return same == (at == equal);
  }

  const std::string* find(std::string_view name) {
    if (const auto local = locals_.find(name); local != locals_.end()) return &local->second;
    const auto it = variant_.defines.find(std::string(name));
    if (it == variant_.defines.end()) return nullptr;
    used_.insert(it->first);
    return &it->second;
  }

  Status emit(std::string_view line, std::string_view content, bool taken, std::string_view file, int number) {
    std::string out;
    for (size_t at = 0; at < line.size();) {
      const size_t start = line.find("${", at);
      out += line.substr(at, std::min(start, line.size()) - at);
      if (start == std::string_view::npos) break;
      const size_t end = line.find('}', start);
      if (end == std::string_view::npos) return error(file, number, "${ without }");
      const std::string_view name = line.substr(start + 2, end - start - 2);
      // Names in text that is left out still count as used: a variant need not know which branch reads them.
      const std::string* value = find(name);
      if (!value && taken) return error(file, number, format("unknown name ${%.*s}", int(name.size()), name.data()));
      if (value) out += *value;
      at = end + 1;
    }
    if (!taken) return {};
    out += '\n';
    const bool to_top = startsWithWord(content, "enable") || startsWithWord(content, "requires") ||
                        (startsWithWord(content, "diagnostic") && content.ends_with(';'));
    if (!to_top) {
      body_ += out;
    } else if (head_.find(out) == std::string::npos) {
      head_ += out;
    }
    return {};
  }

  const WgslVariant& variant_;
  const WgslLookup& lookup_;
  std::set<std::string, std::less<>> included_, used_;
  std::map<std::string, std::string, std::less<>> locals_;  // of #for
  std::string head_, body_;
  bool skipping_ = false;  // inside a #for that is left out
};

}  // namespace

Result<std::string> expandWgsl(const WgslVariant& variant, const WgslLookup& lookup) {
  return Expander(variant, lookup).run();
}

Result<std::string> expandWgsl(const WgslVariant& variant) {
  return expandWgsl(variant, [](std::string_view name) { return wgslSource(name); });
}

}  // namespace etwgpu
