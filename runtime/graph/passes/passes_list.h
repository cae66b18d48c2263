// The functions of the passes, one file each. The table with names and order is in passes.cpp.
#pragma once

#include "runtime/graph/graph.h"

namespace etwgpu {

Status canonicalise(Graph& graph);
Status stateMutations(Graph& graph);
Status fuseCachedAttention(Graph& graph);
Status fuseRopeCacheWrite(Graph& graph);
Status shrinkToRings(Graph& graph);
Status fuseLinear(Graph& graph);
Status fuseNormResidual(Graph& graph);
Status fuseDecoder(Graph& graph);
Status fuseConvolution(Graph& graph);
Status lowerPointwise(Graph& graph);
Status mergePointwise(Graph& graph);

/// Not a rewrite and not optional: what is left of Graph::mutations becomes nodes (etwgpu.state_copy).
Status materialiseMutations(Graph& graph);

}  // namespace etwgpu
