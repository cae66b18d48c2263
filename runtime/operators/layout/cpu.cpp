// Views that could not be avoided, strided copies, concatenation, padding, constants.
#include <cmath>
#include <cstring>

#include "runtime/operators/common/cpu_common.h"

namespace etwgpu {
namespace cpu {
namespace {

/// The bytes of x under other sizes.
Status copyAs(CpuCall& call, const TensorView& x, const Sizes& sizes) {
  if (elementCount(sizes) != x.count())
    return invalid("a tensor of " + sizesToString(x.sizes) + " is no tensor of " + sizesToString(sizes));
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  if (out.dtype != x.dtype) return invalid("the result has another type");
  if (x.bytes()) std::memcpy(out.data, x.data, x.bytes());
  return {};
}
Status copySame(CpuCall& call) {
  const TensorView x = call.tensor(0);
  return copyAs(call, x, x.sizes);
}
Status viewCopy(CpuCall& call) {
  const TensorView x = call.tensor(0);
  Sizes sizes = call.integers(1);
  int64_t known = 1;
  int inferred = -1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != -1) {
      known *= sizes[d];
    } else if (inferred >= 0) {
      return invalid("aten.view_copy: more than one size is -1");
    } else {
      inferred = int(d);
    }
  }
  if (inferred >= 0) sizes[size_t(inferred)] = known > 0 ? x.count() / known : 0;
  return copyAs(call, x, sizes);
}
Status unsqueeze(CpuCall& call) {
  const TensorView x = call.tensor(0);
  const int64_t dim = wrapDim(call.integer(1), x.rank() + 1);
  if (dim < 0) return invalid("aten.unsqueeze_copy: no such dimension");
  Sizes sizes = x.sizes;
  sizes.insert(sizes.begin() + dim, 1);
  return copyAs(call, x, sizes);
}
Status squeeze(CpuCall& call) {
  const TensorView x = call.tensor(0);
  std::vector<bool> drop(std::max<size_t>(x.rank(), 1));
  for (int64_t d : call.integers(1)) {
    const int64_t dim = wrapDim(d, x.rank());
    if (dim < 0) return invalid("aten.squeeze_copy: no such dimension");
    drop[size_t(dim)] = true;
  }
  Sizes sizes;
  for (size_t d = 0; d < x.rank(); ++d)
    if (!drop[d] || x.sizes[d] != 1) sizes.push_back(x.sizes[d]);
  return copyAs(call, x, sizes);
}

Status strided(CpuCall& call, const TensorView& x, const Sizes& sizes, const Sizes& strides, int64_t offset) {
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  if (out.dtype != x.dtype) return invalid("the result has another type");
  const size_t element = dtypeSize(x.dtype);
  copyStrided(out.data, contiguousStrides(sizes), x.as<uint8_t>() + offset * int64_t(element), strides, sizes, element,
              call.pool());
  return {};
}
Status permute(CpuCall& call) {
  const TensorView x = call.tensor(0);
  const Sizes dims = call.integers(1), strides = contiguousStrides(x.sizes);
  if (dims.size() != x.rank()) return invalid("aten.permute_copy: dims don't match the tensor's rank");
  Sizes sizes, from;
  std::vector<bool> seen(x.rank());
  for (int64_t d : dims) {
    const int64_t dim = wrapDim(d, x.rank());
    if (dim < 0 || seen[size_t(dim)]) return invalid("aten.permute_copy: dims are no permutation");
    seen[size_t(dim)] = true;
    sizes.push_back(x.sizes[size_t(dim)]);
    from.push_back(strides[size_t(dim)]);
  }
  return strided(call, x, sizes, from, 0);
}
Status expand(CpuCall& call) {
  const TensorView x = call.tensor(0);
  Sizes sizes = call.integers(1);
  if (sizes.size() < x.rank()) return invalid("aten.expand_copy: fewer sizes than dimensions");
  for (size_t i = 0; i < x.rank(); ++i) {
    int64_t& s = sizes[sizes.size() - 1 - i];
    const int64_t own = x.sizes[x.rank() - 1 - i];
    if (s == -1) s = own;
    if (own != 1 && own != s)
      return invalid("aten.expand_copy: " + sizesToString(x.sizes) + " doesn't expand to " + sizesToString(sizes));
  }
  return strided(call, x, sizes, broadcastStrides(x.sizes, sizes), 0);
}

/// Python's slice bounds for a live size.
int64_t clampIndex(int64_t i, int64_t size) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); }

Status slice(CpuCall& call) {
  const TensorView x = call.tensor(0);
  const int64_t dim = wrapDim(call.isNone(1) ? 0 : call.integer(1), x.rank()),
                step = call.isNone(4) ? 1 : call.integer(4);
  if (dim < 0 || x.rank() == 0) return invalid("aten.slice_copy: no such dimension");
  if (step < 1) return invalid("aten.slice_copy: the step must be positive");
  const int64_t size = x.sizes[size_t(dim)];
  const int64_t start = call.isNone(2) ? 0 : clampIndex(call.integer(2), size);
  const int64_t end = call.isNone(3) ? size : std::max(start, clampIndex(call.integer(3), size));
  Sizes sizes = x.sizes, strides = contiguousStrides(x.sizes);
  const int64_t offset = start * strides[size_t(dim)];
  sizes[size_t(dim)] = (end - start + step - 1) / step;
  strides[size_t(dim)] *= step;
  return strided(call, x, sizes, strides, offset);
}
Status select(CpuCall& call) {
  const TensorView x = call.tensor(0);
  const int64_t dim = wrapDim(call.integer(1), x.rank());
  if (dim < 0 || x.rank() == 0) return invalid("aten.select_copy: no such dimension");
  const int64_t size = x.sizes[size_t(dim)], given = call.integer(2), index = given < 0 ? given + size : given;
  if (index < 0 || index >= size)
    return invalid(format("aten.select_copy: index %lld of a dimension of %lld", (long long)given, (long long)size));
  Sizes sizes = x.sizes, strides = contiguousStrides(x.sizes);
  const int64_t offset = index * strides[size_t(dim)];
  sizes.erase(sizes.begin() + dim);
  strides.erase(strides.begin() + dim);
  return strided(call, x, sizes, strides, offset);
}

Status cat(CpuCall& call) {
  std::vector<TensorView> all = call.tensors(0), tensors;
  for (TensorView& t : all)  // PyTorch lets an empty list of numbers join anything
    if (!(t.rank() == 1 && t.sizes[0] == 0 && all.size() > 1)) tensors.push_back(std::move(t));
  if (tensors.empty()) {
    if (all.empty()) return invalid("aten.cat: no tensors");
    tensors.push_back({all[0].dtype, {0}, nullptr, {}, nullptr});
  }
  const int64_t dim = wrapDim(call.isNone(1) ? 0 : call.integer(1), tensors[0].rank());
  if (dim < 0 || tensors[0].rank() == 0) return invalid("aten.cat: no such dimension");
  Sizes sizes = tensors[0].sizes;
  sizes[size_t(dim)] = 0;
  for (const TensorView& t : tensors) {
    Sizes other = t.sizes;
    if (other.size() != sizes.size() || t.dtype != tensors[0].dtype)
      return invalid("aten.cat: tensors of different rank or type");
    sizes[size_t(dim)] += other[size_t(dim)];
    other[size_t(dim)] = sizes[size_t(dim)];
    if (other != sizes) return invalid("aten.cat: sizes differ in another dimension: " + sizesToString(t.sizes));
  }
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  if (out.dtype != tensors[0].dtype) return invalid("aten.cat: the result has another type");
  const size_t element = dtypeSize(out.dtype);
  const Sizes strides = contiguousStrides(sizes);
  int64_t at = 0;
  for (const TensorView& t : tensors) {
    copyStrided(out.as<uint8_t>() + at * strides[size_t(dim)] * int64_t(element), strides, t.data,
                contiguousStrides(t.sizes), t.sizes, element, call.pool());
    at += t.sizes[size_t(dim)];
  }
  return {};
}

/// pad: (before, after) from the last dimension on; negative values crop.
Status constantPad(CpuCall& call) {
  const TensorView x = call.tensor(0);
  const Sizes pad = call.integers(1);
  if (pad.size() % 2 != 0 || pad.size() / 2 > x.rank())
    return invalid("aten.constant_pad_nd: wrong number of paddings");
  Sizes sizes = x.sizes, copied = x.sizes;
  const Sizes from = contiguousStrides(x.sizes);
  int64_t in_offset = 0;
  std::vector<int64_t> before(x.rank(), 0);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const size_t d = x.rank() - 1 - i;
    const int64_t lo = pad[2 * i], hi = pad[2 * i + 1];
    sizes[d] += lo + hi;
    if (sizes[d] < 0) return invalid("aten.constant_pad_nd: the result would have a negative size");
    copied[d] = std::max<int64_t>(0, x.sizes[d] + std::min<int64_t>(lo, 0) + std::min<int64_t>(hi, 0));
    in_offset += std::max<int64_t>(-lo, 0) * from[d];
    before[d] = std::max<int64_t>(lo, 0);
  }
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  if (out.dtype != x.dtype) return invalid("aten.constant_pad_nd: the result has another type");
  fillElements(out.data, out.dtype, out.count(), call.isNone(2) ? 0 : call.number(2));
  const Sizes to = contiguousStrides(sizes);
  int64_t out_offset = 0;
  for (size_t d = 0; d < x.rank(); ++d) out_offset += before[d] * to[d];
  const int64_t element = int64_t(dtypeSize(x.dtype));
  copyStrided(out.as<uint8_t>() + out_offset * element, to, x.as<uint8_t>() + in_offset * element, from, copied,
              size_t(element), call.pool());
  return {};
}

Status fillWith(CpuCall& call, const Sizes& sizes, double value) {
  for (int64_t s : sizes)
    if (s < 0) return invalid("a negative size");
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  fillElements(out.data, out.dtype, out.count(), value);
  return {};
}
Status full(CpuCall& call) { return fillWith(call, call.integers(0), call.number(1)); }
Status fullLike(CpuCall& call) { return fillWith(call, call.tensor(0).sizes, call.number(1)); }
Status scalarTensor(CpuCall& call) { return fillWith(call, {}, call.number(0)); }
Status arange(CpuCall& call) {
  const double start = call.number(0), end = call.number(1), step = call.isNone(2) ? 1 : call.number(2);
  if (!(step != 0) || !std::isfinite(start) || !std::isfinite(end))
    return invalid("aten.arange: step 0 or bounds not finite");
  const double count = std::max(0.0, std::ceil((end - start) / step));
  if (count > double(int64_t(1) << 40)) return invalid("aten.arange: too many values");
  ETWGPU_ASSIGN(const TensorView out, call.output(0, Sizes{int64_t(count)}));
  for (int64_t i = 0; i < out.count(); ++i)
    fillElements(out.as<uint8_t>() + i * int64_t(dtypeSize(out.dtype)), out.dtype, 1, start + double(i) * step);
  return {};
}

}  // namespace
}  // namespace cpu

void registerLayoutCpu(CpuRegistry& r) {
  using namespace cpu;
  r.add("aten.view_copy.default", viewCopy);
  r.add("aten.unsqueeze_copy.default", unsqueeze);
  r.add("aten.squeeze_copy.dims", squeeze);
  r.add("aten.alias_copy.default", copySame);
  r.add("aten.clone.default", copySame);
  r.add("dim_order_ops._clone_dim_order.default", copySame);
  r.add("aten.permute_copy.default", permute);
  r.add("aten.expand_copy.default", expand);
  r.add("aten.slice_copy.Tensor", slice);
  r.add("aten.select_copy.int", cpu::select);
  r.add("aten.cat.default", cat);
  r.add("aten.constant_pad_nd.default", constantPad);
  r.add("aten.full.default", full);
  r.add("aten.full_like.default", fullLike);
  r.add("aten.scalar_tensor.default", scalarTensor);
  r.add("aten.arange.start_step", arange);
}

}  // namespace etwgpu
