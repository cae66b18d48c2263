// What a dispatch has to move and to compute, for profiles: beside the measured time it says how far the kernel is from
// what the machine could do.
#pragma once

#include <span>

#include "runtime/executor/gpu_kernel.h"

namespace etwgpu {

struct DispatchCost {
  double bytes = 0;  // read and written, each once
  double flops = 0;  // of products (2 a multiply-add); of generated pointwise kernels one an element
};

/// Derived from what the dispatch binds, whatever operator it serves:
/// - a constant matrix [N, K] is multiplied with every row, or, in a kernel that reads no floating-point tensor,
/// gathered
///   from (an embedding); larger ranks are convolution weights [O, I, …], or tables read by row where K is no input's;
/// - a state [.., H, L, D] is a cache: read up to the last visible position, written at the rows of this call;
/// - two tensors [.., M, K], [.., K, N] with an output [.., M, N] are multiplied, three like q, k, v are an attention;
/// - everything else is read or written as a whole at its live size.
/// `values`: of all expressions in this call. `position`: tokens in the caches before it.
DispatchCost dispatchCost(const Graph& graph, const DispatchSpec& spec, std::span<const int64_t> values,
                          Precision precision, int64_t position);

}  // namespace etwgpu
