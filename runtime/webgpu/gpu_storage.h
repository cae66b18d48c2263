// How values lie in GPU memory, and the conversions between that and the host's representation.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/executor/gpu_kernel.h"

namespace etwgpu {

/// The element of a value's buffer. packed: 8-bit elements, four in a u32.
enum class Storage : uint8_t { f32, f16, i32, u32, packed };
/// f32, f64, bf16 → f32 (f16 under Precision::f16, except constants); i16, i32, i64 → i32; bool → u32; i8, u8 → packed.
Storage gpuStorage(DType dtype, bool constant, Precision precision);
constexpr uint64_t storageSize(Storage s) { return s == Storage::packed ? 1 : s == Storage::f16 ? 2 : 4; }

/// Whether host bytes of this dtype are the GPU's bytes.
bool sameRepresentation(DType dtype, Storage storage);
/// What the elements of a tensor are on the GPU: f32, f16, i32 (of i16, i64 and bool, too), or, packed, i8 and u8.
DType deviceDType(DType dtype, Storage storage);
/// `count` elements from the host's dtype to the GPU's storage. invalid_argument: an integer beyond 32 bits.
Status toGpu(DType dtype, const void* host, Storage storage, void* gpu, int64_t count);
/// The other way.
void toHost(Storage storage, const void* gpu, DType dtype, void* host, int64_t count);

/// gpuBytes as planMemory takes it.
uint64_t gpuBytesF32(const Graph& graph, ValueId value);
uint64_t gpuBytesF16(const Graph& graph, ValueId value);

}  // namespace etwgpu
