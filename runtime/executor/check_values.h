// The debug switch LoadOptions::check_values: after every operator, what it has written is searched for NaNs and
// infinities. Executors bring the values; what counts is decided here, for all of them alike.
#pragma once

#include <array>
#include <memory>

#include "runtime/core/status.h"
#include "runtime/core/tensor.h"
#include "runtime/graph/graph.h"

namespace etwgpu {

/// A float tensor that an operator reads or writes, and where it has its first NaN and its first infinity.
struct ScannedValue {
  static constexpr uint64_t kNone = UINT64_MAX;
  ValueId id = kNoValue;  // in a delegate's graph
  const char* name = "";
  bool constant = false;
  DType dtype = DType::f32;       // of an element where it lies: f16 for f32 that is kept in half precision
  std::array<int64_t, 16> sizes;  // the first `rank`; ExecuTorch has no more
  size_t rank = 0;
  uint64_t nan = kNone, infinity = kNone;  // indices of elements
  bool negative = false;                   // the infinity
  bool masks = false;                      // holds an infinity, or a constant that stands for one

  void setSizes(const Sizes& s);
  /// Elements [first, first + count), which lie at `data`, f32 or f16. In order.
  void scan(const void* data, uint64_t first, uint64_t count);
  /// A whole tensor, whose dtype and sizes become its own. No kernel computes in other floats than f32 and f16.
  void look(const TensorView& tensor);
};

/// One operator that has run. An executor scans values in order as long as wants() says so, then has the verdict.
///
/// NaNs count always. Infinities do not where the operator has them on purpose: it is given an infinite number, or one
/// beyond ±1e30, which f16 makes an infinity of (the masks of attention: full, where, masked_fill, clamp …), or an
/// input holds one already, but for sums of products (linear, convolution, attention) and norms, which make nothing
/// meaningful of it.
struct OperatorCheck {
  /// With room for so many values.
  OperatorCheck(const char* method, const char* op, const char* node, size_t most);
  /// A state that the node writes is one of its inputs: what is wrong in it shows in the operator that reads it.
  /// Quantised weights are left out. The graph must live on.
  OperatorCheck(const Graph& graph, const Node& node);
  ~OperatorCheck();
  OperatorCheck(const OperatorCheck&) = delete;

  const char *method, *op, *node;  // of the program, or literals
  bool fills = false;              // is given such a number
  size_t outputs = 0, count = 0;   // outputs come first
  std::unique_ptr<ScannedValue[]> values;

  void given(double number);
  bool suspicious() const;
  /// Inputs only where an output is not finite.
  bool wants(size_t i) const;
  /// non_finite: names method, operator, node, the output's dtype and sizes, its first bad element, and how the inputs
  /// look.
  Status verdict() const;
};

}  // namespace etwgpu
