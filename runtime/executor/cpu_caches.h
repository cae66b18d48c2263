// Key and value caches that the CPU keeps in half precision.
#pragma once

#include <utility>
#include <vector>

#include "runtime/graph/graph.h"

namespace etwgpu {

/// The key and value cache of each node that has them.
std::vector<std::pair<ValueId, ValueId>> cachePairs(const Graph& graph);
/// By value: the states that may be kept in f16, since only operators touch them that read and write either type: key
/// and value caches of f32 that begin with zeros. A node's two caches are in it together or not at all.
std::vector<bool> cachesInHalf(const Graph& graph);

}  // namespace etwgpu
