#include "runtime/core/tuning.h"

#include <algorithm>
#include <charconv>

namespace etwgpu {
namespace {

std::vector<TunedChoice> makeChoices() {
  using List = std::vector<Tuning::Values>;
  const List single = {{1, 8, 1, 2, 0}, {1, 8, 1, 4, 0}, {1, 8, 2, 1, 0}, {1, 16, 1, 2, 0},
                       {1, 4, 1, 4, 0}, {2, 4, 1, 2, 0}, {2, 4, 1, 4, 0}, {2, 8, 1, 2, 0},
                       {4, 2, 1, 2, 0}, {4, 4, 1, 2, 0}, {4, 2, 2, 2, 0}};
  const List pairs = {{1, 8, 1, 2, 0}, {1, 16, 1, 2, 0}, {2, 4, 1, 2, 0}, {2, 8, 1, 2, 0}, {4, 4, 1, 2, 0},
                      {1, 4, 2, 2, 1}, {1, 8, 2, 1, 1},  {2, 2, 2, 2, 1}, {2, 4, 2, 2, 1}, {4, 2, 2, 2, 1}};
  std::vector<TunedChoice> choices;
  for (const char* kind : {"gate", "long", "plain", "head", "rotary", "many", "int8"}) {
    const bool paired = kind == std::string_view("gate") || kind == std::string_view("rotary");
    for (const char* type : {"f16", "f32"})
      choices.push_back({"gemv." + std::string(kind) + "." + type, false, paired ? pairs : single});
  }
  choices.push_back({"attention.parts", false, {{4}, {8}, {16}, {32}}});
  choices.push_back({"processors", true, {{8}, {16}, {32}, {64}, {128}}});
  return choices;
}

Result<Tuning::Values> parseValues(std::string_view text) {
  Tuning::Values values;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next < end && *next != ','))
      return Status(Code::invalid_argument, "tuning: not numbers: " + std::string(text));
    values.push_back(value);
    at = next < end ? next + 1 : next;
  }
  return values;
}

}  // namespace

const std::vector<TunedChoice>& tunedChoices() {
  static const std::vector<TunedChoice> choices = makeChoices();
  return choices;
}

Result<Tuning> Tuning::parse(std::string_view text) {
  Tuning tuning;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    const std::string_view key = line.substr(0, space);
    const auto& choices = tunedChoices();
    const auto choice =
        std::find_if(choices.begin(), choices.end(), [&](const TunedChoice& c) { return c.key == key; });
    if (choice == choices.end())
      return Status(Code::invalid_argument, "tuning: there is no choice \"" + std::string(key) + "\"");
    ETWGPU_ASSIGN(Values values, parseValues(space == line.npos ? "" : line.substr(space + 1)));
    const auto& all = choice->candidates;
    if (std::find(all.begin(), all.end(), values) == all.end())
      return Status(Code::invalid_argument, "tuning: no candidate: " + std::string(line));
    tuning.set(key, std::move(values));
  }
  return tuning;
}

std::string Tuning::text() const {
  std::string out;
  for (const auto& [key, values] : values_) {
    out += key;
    for (size_t i = 0; i < values.size(); ++i) out += (i ? "," : " ") + std::to_string(values[i]);
    out += '\n';
  }
  return out;
}

const Tuning::Values* Tuning::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

void Tuning::set(std::string_view key, Values values) { values_.insert_or_assign(std::string(key), std::move(values)); }

}  // namespace etwgpu
