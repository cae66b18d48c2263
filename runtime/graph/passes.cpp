// The pipeline: a table of contents of all rewrites.
#include "runtime/graph/passes.h"

#include <cstdlib>

#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {
namespace {

constexpr Pass kPasses[] = {
    // First, so that the matchers below see through reshapes and copies.
    {"canonicalise", canonicalise},
    // Before attention, which wants states as its keys and values.
    {"state_mutations", stateMutations},
    // Before pointwise, which would swallow the comparisons of the mask.
    {"cached_attention", fuseCachedAttention},
    // Needs the attention to know that nothing else reads the cache; before linear, since it joins plain linears.
    {"rope_cache_write", fuseRopeCacheWrite},
    // Needs caches that nothing but these two operators touch.
    {"ring_cache", shrinkToRings},
    // Before pointwise: an activation or a sum is free at the end of a product.
    {"linear", fuseLinear},
    // Needs the linears with their norms and residuals.
    {"decoder", fuseDecoder},
    // What no linear has taken; before pointwise, which would make a kernel of its own of the sum.
    {"norm_residual", fuseNormResidual},
    {"convolution", fuseConvolution},
    // What is left of elementwise operators and layout.
    {"pointwise_lower", lowerPointwise},
    {"pointwise_merge", mergePointwise},
};

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
  const char* variable = std::getenv("ETWGPU_DISABLE_PASSES");
  const std::string_view also = variable ? variable : "";
  for (const Pass& pass : passTable()) {
    if (!contains(disabled, pass.name) && !contains(also, pass.name)) ETWGPU_TRY(pass.run(graph));
  }
  ETWGPU_TRY(materialiseMutations(graph));
  removeUnusedValues(graph);
  return verify(graph);
}

}  // namespace etwgpu
