// Integer tensors that are affine in their indices: arange, positions, what a mask compares.
#pragma once

#include <optional>
#include <vector>

#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {

/// value[i0, i1, …] = sum(coefficients[d] · id) + (base ? base[0] : 0) · base_coefficient + constant
struct Affine {
  std::vector<int64_t> coefficients;  // one per dimension
  ValueId base = kNoValue;            // an integer tensor of one element
  int64_t base_coefficient = 0;
  int64_t constant = 0;
};

/// Follows arange, full, add, sub, casts, expand and reshapes that only add or drop dimensions of 1.
std::optional<Affine> affineOf(const Graph& graph, const GraphIndex& index, ValueId value);

/// positions = arange(n) + start: the start tensor, or kNoValue.
ValueId positionsStart(const Graph& graph, const GraphIndex& index, ValueId positions);

/// A boolean tensor [..., S, L] (L keys) that says j <= start + s and, if window > 0, j > start + s - window.
struct CausalMask {
  ValueId start = kNoValue;
  int64_t window = 0;
};
std::optional<CausalMask> causalMask(const Graph& graph, const GraphIndex& index, ValueId mask);

}  // namespace etwgpu
