// The graph rewrites. Each pass is one file in passes/ and one line of the table in passes.cpp, which also says why the
// order is as it is; docs/passes.md shows what each matches. A pass leaves a valid graph (verify) and can be left out
// by name.
#pragma once

#include <span>
#include <string_view>

#include "runtime/graph/graph.h"

namespace etwgpu {

struct Pass {
  std::string_view name;
  Status (*run)(Graph&);
};
/// In the order in which runPasses runs them.
std::span<const Pass> passTable();

}  // namespace etwgpu
