// Caches of layers with a window that are rings: fewer rows than positions (the pass ring_cache makes them).
#pragma once

#include <vector>

#include "runtime/graph/graph.h"

namespace etwgpu {

struct RingCache {
  ValueId k = kNoValue, v = kNoValue;
  ValueId start = kNoValue;  // an input of the graph: the position of a call's first query
  ExprId queries;            // how many a call brings
  int64_t rows = 0, positions = 0, window = 0;
};
/// In order of the attentions that read them.
std::vector<RingCache> ringCaches(const Graph& graph);

}  // namespace etwgpu
