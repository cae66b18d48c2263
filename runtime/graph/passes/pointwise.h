// Helpers of the two pointwise passes.
#pragma once

#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {

/// Strides of a contiguous tensor, in elements.
std::vector<ExprId> contiguousStrides(Exprs& exprs, const std::vector<ExprId>& dims);

/// Appends an instruction unless an equal one is there; its index.
int32_t emit(PointwiseProgram& program, const PointwiseInstruction& instruction);

/// Adds an input unless the node has it already with the same access; its slot.
int32_t addInput(Node& node, PointwiseProgram& program, ValueId value, PointwiseInput access);

/// An elementwise operator or strided read as an etwgpu.pointwise node with the same output; nullopt where it is none.
std::optional<Node> loweredToPointwise(Graph& graph, const Node& node);

}  // namespace etwgpu
