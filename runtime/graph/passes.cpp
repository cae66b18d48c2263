// The pipeline: a table of contents of all rewrites.
#include "runtime/graph/passes.h"

#include <array>

namespace etwgpu {
namespace {

constexpr std::array<Pass, 0> kPasses = {};

bool contains(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    if (item == name || item == "all") return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

std::span<const Pass> passTable() { return kPasses; }

Status runPasses(Graph& graph, std::string_view disabled) {
  for (const Pass& pass : passTable()) {
    if (!contains(disabled, pass.name)) ETWGPU_TRY(pass.run(graph));
  }
  return {};
}

}  // namespace etwgpu
