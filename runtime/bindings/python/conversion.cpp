#include "runtime/bindings/python/conversion.h"

namespace etwgpu {
namespace {

DType dtypeOf(const nb::dlpack::dtype& t) {
  using C = nb::dlpack::dtype_code;
  if (t.lanes == 1) {
    const auto code = C(t.code);
    if (code == C::Float && t.bits == 32) return DType::f32;
    if (code == C::Float && t.bits == 16) return DType::f16;
    if (code == C::Float && t.bits == 64) return DType::f64;
    if (code == C::Bfloat && t.bits == 16) return DType::bf16;
    if (code == C::Int && t.bits == 64) return DType::i64;
    if (code == C::Int && t.bits == 32) return DType::i32;
    if (code == C::Int && t.bits == 16) return DType::i16;
    if (code == C::Int && t.bits == 8) return DType::i8;
    if (code == C::UInt && t.bits == 8) return DType::u8;
    if (code == C::Bool && t.bits == 8) return DType::boolean;
  }
  throw RuntimeFailure({Code::invalid_argument, "arrays of this dtype are not supported"});
}

nb::dlpack::dtype dlpackType(DType t) {
  using C = nb::dlpack::dtype_code;
  const C code = t == DType::boolean ? C::Bool
                 : t == DType::bf16  ? C::UInt  // numpy has no bfloat16: the bits
                 : isFloating(t)     ? C::Float
                 : t == DType::u8    ? C::UInt
                                     : C::Int;
  return {uint8_t(code), uint8_t(dtypeSize(t) * 8), 1};
}

}  // namespace

Input toInput(nb::handle h, std::vector<InputArray>& arrays) {
  if (nb::isinstance<nb::bool_>(h)) return nb::cast<bool>(h);
  if (nb::isinstance<nb::int_>(h)) {
    int64_t i = 0;
    if (!nb::try_cast(h, i))
      throw RuntimeFailure({Code::invalid_argument, "an integer input does not fit into 64 bits"});
    return i;
  }
  if (nb::isinstance<nb::float_>(h)) return nb::cast<double>(h);
  InputArray array;
  if (!nb::try_cast(h, array)) {
    throw RuntimeFailure({Code::invalid_argument, "inputs are numbers or contiguous arrays on the CPU, got " +
                                                      std::string(nb::str(h.type()).c_str())});
  }
  TensorView view;
  view.dtype = dtypeOf(array.dtype());
  for (size_t d = 0; d < array.ndim(); ++d) view.sizes.push_back(int64_t(array.shape(d)));
  view.data = const_cast<void*>(array.data());  // inputs are read only
  arrays.push_back(std::move(array));
  return view;
}

nb::object toPython(OutputValue value) {
  if (auto* t = std::get_if<HostTensor>(&value)) {
    auto* owned = new HostTensor(std::move(*t));
    const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<HostTensor*>(p); });
    std::vector<size_t> shape(owned->sizes.begin(), owned->sizes.end());
    static uint8_t nothing = 0;
    void* data = owned->bytes.empty() ? &nothing : owned->bytes.data();
    return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr, dlpackType(owned->dtype)));
  }
  if (const auto* i = std::get_if<int64_t>(&value)) return nb::int_(*i);
  if (const auto* d = std::get_if<double>(&value)) return nb::float_(*d);
  if (const auto* b = std::get_if<bool>(&value)) return nb::bool_(*b);
  if (const auto* s = std::get_if<std::string>(&value)) return nb::str(s->c_str(), s->size());
  return nb::none();
}

nb::list specs(const std::vector<ValueSpec>& values) {
  static constexpr const char* kKinds[] = {"none", "tensor", "int", "float", "bool", "str"};
  nb::list out;
  for (const ValueSpec& v : values) {
    nb::dict d;
    d["kind"] = kKinds[size_t(v.kind)];
    if (v.kind == ValueSpec::Kind::tensor) {
      d["dtype"] = scalarTypeName(v.scalar_type);
      d["sizes"] = nb::cast(v.sizes);
      d["dynamic"] = v.dynamic;
    }
    out.append(d);
  }
  return out;
}

nb::dict statsOf(const ExecuteStats& s) {
  nb::dict d;
  d["dispatches"] = s.dispatches;
  d["submits"] = s.submits;
  d["read_back_bytes"] = s.read_back_bytes;
  d["upload_bytes"] = s.upload_bytes;
  return d;
}

nb::list profileOf(const std::vector<DispatchTime>& times) {
  nb::list out;
  for (const DispatchTime& t : times) {
    nb::dict d;
    d["kernel"] = t.kernel;
    d["node"] = t.node;
    d["us"] = t.microseconds;
    d["bytes"] = t.bytes;
    d["flops"] = t.flops;
    out.append(d);
  }
  return out;
}

}  // namespace etwgpu
