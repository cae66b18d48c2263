#include "runtime/operators/elementwise/cpu_pointwise.h"

#include <cmath>
#include <cstring>
#include <memory>

#include "runtime/operators/common/cpu_math.h"

namespace etwgpu::cpu {
namespace {

constexpr int kBlock = 256;
enum class Class : uint8_t { f, i, b };  // float, int64_t, int32_t 0 / 1

Class classOf(DType t) { return t == DType::f32 ? Class::f : t == DType::boolean ? Class::b : Class::i; }
bool supported(DType t) {
  return t == DType::f32 || t == DType::i64 || t == DType::i32 || t == DType::boolean || t == DType::u8 ||
         t == DType::i8;
}

/// One value of a block.
union alignas(64) Register {
  float f[kBlock];
  int64_t i[kBlock];
  int32_t b[kBlock];
};

/// Where the elements of a block come from, after merging dimensions. Slots beyond the inputs are the iotas.
struct Source {
  const void* data = nullptr;  // null: the address itself is the value
  DType dtype = DType::i64;
  Sizes strides;
  int64_t offset = 0;
};

struct Plan {
  std::span<const PointwiseInstruction> code;
  Sizes sizes;
  std::vector<Source> sources;
  std::vector<int> source_of;  // per instruction: load and iota
  void* out;
  DType out_dtype;
};

template <class T, class To>
void gather(const T* p, int64_t stride, To* out, int n) {
  if (stride == 1) {
    for (int i = 0; i < n; ++i) out[i] = To(p[i]);
  } else if (stride == 0) {
    const To v = To(*p);
    for (int i = 0; i < n; ++i) out[i] = v;
  } else {
    for (int i = 0; i < n; ++i) out[i] = To(p[i * stride]);
  }
}

/// n elements along the innermost dimension into a register from position `at`.
void loadRow(const Source& s, int64_t address, int64_t stride, Register& r, int at, int n) {
  const uint8_t* p = static_cast<const uint8_t*>(s.data);
  if (!p) {
    for (int i = 0; i < n; ++i) r.i[at + i] = address + i * stride;
    return;
  }
  p += address * int64_t(dtypeSize(s.dtype));
  switch (s.dtype) {
    case DType::f32:
      if (stride == 1) {
        std::memcpy(r.f + at, p, size_t(n) * 4);
      } else {
        gather(reinterpret_cast<const float*>(p), stride, r.f + at, n);
      }
      return;
    case DType::i64:
      return gather(reinterpret_cast<const int64_t*>(p), stride, r.i + at, n);
    case DType::i32:
      return gather(reinterpret_cast<const int32_t*>(p), stride, r.i + at, n);
    case DType::u8:
      return gather(p, stride, r.i + at, n);
    case DType::i8:
      return gather(reinterpret_cast<const int8_t*>(p), stride, r.i + at, n);
    default:
      gather(p, stride, r.b + at, n);
      for (int i = 0; i < n; ++i) r.b[at + i] = r.b[at + i] != 0;
  }
}

void loadBlock(const Plan& plan, const Source& s, int64_t begin, int n, Register& r) {
  const size_t rank = plan.sizes.size();
  const int64_t inner = plan.sizes[rank - 1];
  int done = 0;
  while (done < n) {
    const int64_t position = begin + done, column = position % inner;
    int64_t row = position / inner, address = s.offset + column * s.strides[rank - 1];
    for (size_t d = rank - 1; d-- > 0;) {
      address += row % plan.sizes[d] * s.strides[d];
      row /= plan.sizes[d];
    }
    const int count = int(std::min<int64_t>(n - done, inner - column));
    loadRow(s, address, s.strides[rank - 1], r, done, count);
    done += count;
  }
}

template <class To>
const To* converted(const Register& r, Class from, int n, To* out) {
  if (from == Class::f) {
    for (int i = 0; i < n; ++i) out[i] = To(r.f[i]);
  } else if (from == Class::i) {
    for (int i = 0; i < n; ++i) out[i] = To(r.i[i]);
  } else {
    for (int i = 0; i < n; ++i) out[i] = To(r.b[i]);
  }
  return out;
}
const float* asF(const Register& r, Class c, Register& temp, int n) {
  return c == Class::f ? r.f : converted(r, c, n, temp.f);
}
const int64_t* asI(const Register& r, Class c, Register& temp, int n) {
  return c == Class::i ? r.i : converted(r, c, n, temp.i);
}
/// Truth: not zero (NaN is true).
const int32_t* asB(const Register& r, Class c, Register& temp, int n) {
  if (c == Class::b) return r.b;
  for (int i = 0; i < n; ++i) temp.b[i] = c == Class::f ? r.f[i] != 0 : r.i[i] != 0;
  return temp.b;
}

template <class Fn>
ETWGPU_INLINE void unaryF(const float* a, float* o, int n, Fn fn) {
  for (int i = 0; i < n; i += kLanes) hn::StoreU(fn(hn::LoadU(DF(), a + i)), DF(), o + i);
}
template <class Fn>
ETWGPU_INLINE void binaryF(const float* a, const float* b, float* o, int n, Fn fn) {
  for (int i = 0; i < n; i += kLanes) hn::StoreU(fn(hn::LoadU(DF(), a + i), hn::LoadU(DF(), b + i)), DF(), o + i);
}
template <class T, class To, class Fn>
ETWGPU_INLINE void scalar1(const T* a, To* o, int n, Fn fn) {
  for (int i = 0; i < n; ++i) o[i] = fn(a[i]);
}
template <class T, class To, class Fn>
ETWGPU_INLINE void scalar2(const T* a, const T* b, To* o, int n, Fn fn) {
  for (int i = 0; i < n; ++i) o[i] = fn(a[i], b[i]);
}

VF minNan(VF a, VF b) { return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Min(a, b))); }
VF maxNan(VF a, VF b) { return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Max(a, b))); }

ETWGPU_KERNEL void arithmeticF(PointwiseOp op, const float* a, const float* b, float* o, int n) {
  switch (op) {
    case PointwiseOp::add:
      return binaryF(a, b, o, n, [](VF x, VF y) { return hn::Add(x, y); });
    case PointwiseOp::sub:
      return binaryF(a, b, o, n, [](VF x, VF y) { return hn::Sub(x, y); });
    case PointwiseOp::mul:
      return binaryF(a, b, o, n, [](VF x, VF y) { return hn::Mul(x, y); });
    case PointwiseOp::div:
      return binaryF(a, b, o, n, [](VF x, VF y) { return hn::Div(x, y); });
    case PointwiseOp::minimum:
      return binaryF(a, b, o, n, minNan);
    case PointwiseOp::maximum:
      return binaryF(a, b, o, n, maxNan);
    case PointwiseOp::pow:
      return scalar2(a, b, o, n, [](float x, float y) { return std::pow(x, y); });
    default:
      return;
  }
}

int64_t powI(int64_t x, int64_t y) {
  uint64_t r = 1;
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
  for (uint64_t b = uint64_t(x); y; y >>= 1, b *= b)
    if (y & 1) r *= b;
  return int64_t(r);
}

ETWGPU_KERNEL void arithmeticI(PointwiseOp op, const int64_t* a, const int64_t* b, int64_t* o, int n) {
  using U = uint64_t;  // wraps where signed numbers would overflow
  switch (op) {
    case PointwiseOp::add:
      return scalar2(a, b, o, n, [](int64_t x, int64_t y) { return int64_t(U(x) + U(y)); });
    case PointwiseOp::sub:
      return scalar2(a, b, o, n, [](int64_t x, int64_t y) { return int64_t(U(x) - U(y)); });
    case PointwiseOp::mul:
      return scalar2(a, b, o, n, [](int64_t x, int64_t y) { return int64_t(U(x) * U(y)); });
    case PointwiseOp::div:
      return scalar2(a, b, o, n, [](int64_t x, int64_t y) { return y == 0 ? 0 : y == -1 ? int64_t(-U(x)) : x / y; });
    case PointwiseOp::minimum:
      return scalar2(a, b, o, n, [](int64_t x, int64_t y) { return std::min(x, y); });
    case PointwiseOp::maximum:
      return scalar2(a, b, o, n, [](int64_t x, int64_t y) { return std::max(x, y); });
    case PointwiseOp::pow:
      return scalar2(a, b, o, n, powI);
    default:
      return;
  }
}

template <class T>
ETWGPU_KERNEL void compare(PointwiseOp op, const T* a, const T* b, int32_t* o, int n) {
  switch (op) {
    case PointwiseOp::eq:
      return scalar2(a, b, o, n, [](T x, T y) { return int32_t(x == y); });
    case PointwiseOp::ne:
      return scalar2(a, b, o, n, [](T x, T y) { return int32_t(x != y); });
    case PointwiseOp::lt:
      return scalar2(a, b, o, n, [](T x, T y) { return int32_t(x < y); });
    case PointwiseOp::le:
      return scalar2(a, b, o, n, [](T x, T y) { return int32_t(x <= y); });
    case PointwiseOp::gt:
      return scalar2(a, b, o, n, [](T x, T y) { return int32_t(x > y); });
    case PointwiseOp::ge:
      return scalar2(a, b, o, n, [](T x, T y) { return int32_t(x >= y); });
    default:
      return;
  }
}

VF leakyV(VF x, float slope) { return hn::IfThenElse(hn::Gt(x, splat(0.f)), x, hn::Mul(x, splat(slope))); }
/// alpha · (e^x − 1) below 0; near zero by the polynomial of expm1.
VF eluV(VF x, float alpha) {
  VF p = splat(1.f / 120);
  for (float c : {1.f / 24, 1.f / 6, 0.5f, 1.f}) p = madd(p, x, splat(c));
  const VF near = hn::Mul(p, x), far = hn::Sub(expV(x), splat(1.f));
  const VF m = hn::IfThenElse(hn::Lt(hn::Abs(x), splat(0.1f)), near, far);
  return hn::IfThenElse(hn::Gt(x, splat(0.f)), x, hn::Mul(m, splat(alpha)));
}

ETWGPU_KERNEL void unaryFloat(const PointwiseInstruction& in, const float* a, float* o, int n) {
  const float imm = float(in.imm), imm2 = float(in.imm2);
  switch (in.op) {
    case PointwiseOp::neg:
      return unaryF(a, o, n, [](VF x) { return hn::Neg(x); });
    case PointwiseOp::abs:
      return unaryF(a, o, n, [](VF x) { return hn::Abs(x); });
    case PointwiseOp::exp:
      return unaryF(a, o, n, expV);
    case PointwiseOp::log:
      return scalar1(a, o, n, [](float x) { return std::log(x); });
    case PointwiseOp::sqrt:
      return unaryF(a, o, n, [](VF x) { return hn::Sqrt(x); });
    case PointwiseOp::rsqrt:
      return unaryF(a, o, n, [](VF x) { return hn::Div(splat(1.f), hn::Sqrt(x)); });
    case PointwiseOp::reciprocal:
      return unaryF(a, o, n, [](VF x) { return hn::Div(splat(1.f), x); });
    case PointwiseOp::sin:
      return scalar1(a, o, n, [](float x) { return std::sin(x); });
    case PointwiseOp::cos:
      return scalar1(a, o, n, [](float x) { return std::cos(x); });
    case PointwiseOp::tanh:
      return unaryF(a, o, n, tanhV);
    case PointwiseOp::erf:
      return unaryF(a, o, n, erfV);
    case PointwiseOp::sigmoid:
      return unaryF(a, o, n, sigmoidV);
    case PointwiseOp::silu:
      return unaryF(a, o, n, siluV);
    case PointwiseOp::gelu:
      return unaryF(a, o, n, geluV);
    case PointwiseOp::gelu_tanh:
      return unaryF(a, o, n, geluTanhV);
    case PointwiseOp::relu:
      return unaryF(a, o, n, [](VF x) { return actV(Act::relu, x); });
    case PointwiseOp::hardswish:
      return unaryF(a, o, n, [](VF x) { return actV(Act::hardswish, x); });
    case PointwiseOp::hardsigmoid:
      return unaryF(a, o, n, hardsigmoidV);
    case PointwiseOp::floor:
      return unaryF(a, o, n, [](VF x) { return hn::Floor(x); });
    case PointwiseOp::leaky_relu:
      return unaryF(a, o, n, [imm](VF x) { return leakyV(x, imm); });
    case PointwiseOp::elu:
      return unaryF(a, o, n, [imm](VF x) { return eluV(x, imm); });
    case PointwiseOp::clamp:
      return unaryF(a, o, n, [imm, imm2](VF x) { return clampV(x, splat(imm), splat(imm2)); });
    default:
      return;
  }
}

int64_t saturate(double v) {
  return v >= 9.2233720368547758e18 ? INT64_MAX : v <= -9.2233720368547758e18 ? INT64_MIN : int64_t(v);
}

ETWGPU_KERNEL void unaryInt(const PointwiseInstruction& in, const int64_t* a, int64_t* o, int n) {
  switch (in.op) {
    case PointwiseOp::neg:
      return scalar1(a, o, n, [](int64_t x) { return int64_t(-uint64_t(x)); });
    case PointwiseOp::abs:
      return scalar1(a, o, n, [](int64_t x) { return x < 0 ? int64_t(-uint64_t(x)) : x; });
    case PointwiseOp::relu:
      return scalar1(a, o, n, [](int64_t x) { return x > 0 ? x : 0; });
    case PointwiseOp::clamp: {
      const int64_t lo = saturate(in.imm), hi = saturate(in.imm2);
      return scalar1(a, o, n, [=](int64_t x) { return std::min(std::max(x, lo), hi); });
    }
    default:
      return scalar1(a, o, n, [](int64_t x) { return x; });
  }
}

void wrapTo(DType t, int64_t* v, int n) {
  if (t == DType::i32) scalar1(v, v, n, [](int64_t x) { return int64_t(int32_t(x)); });
  if (t == DType::u8) scalar1(v, v, n, [](int64_t x) { return int64_t(uint8_t(x)); });
  if (t == DType::i8) scalar1(v, v, n, [](int64_t x) { return int64_t(int8_t(x)); });
}

class Machine {
 public:
  explicit Machine(const Plan& plan) : plan_(plan), registers_(new Register[plan.code.size() + 3]) {
    for (size_t i = 0; i < plan.code.size(); ++i) {
      if (plan.code[i].op == PointwiseOp::constant) fillConstant(plan.code[i], registers_[i]);
      classes_.push_back(plan.code[i].op == PointwiseOp::load ? classOf(plan.sources[size_t(plan.source_of[i])].dtype)
                                                              : classOf(plan.code[i].dtype));
    }
  }
  void run(int64_t begin, int64_t end) {
    for (; begin < end; begin += kBlock) {
      const int n = int(std::min<int64_t>(kBlock, end - begin));
      for (size_t i = 0; i < plan_.code.size(); ++i) step(i, begin, n);
      store(begin, n);
    }
  }

 private:
  static void fillConstant(const PointwiseInstruction& in, Register& r) {
    for (int i = 0; i < kBlock; ++i) {
      switch (classOf(in.dtype)) {
        case Class::f:
          r.f[i] = float(in.imm);
          break;
        case Class::i:
          r.i[i] = saturate(in.imm);
          break;
        case Class::b:
          r.b[i] = in.imm != 0;
          break;
      }
    }
  }
  const Register& reg(int32_t i) const { return registers_[size_t(i)]; }
  Class cls(int32_t i) const { return classes_[size_t(i)]; }
  Register& temp(int i) { return registers_[plan_.code.size() + size_t(i)]; }
  const float* f(int32_t i, int t, int n) { return asF(reg(i), cls(i), temp(t), n); }
  const int64_t* i(int32_t k, int t, int n) { return asI(reg(k), cls(k), temp(t), n); }
  const int32_t* b(int32_t i, int t, int n) { return asB(reg(i), cls(i), temp(t), n); }

  void step(size_t index, int64_t begin, int n) {
    const PointwiseInstruction& in = plan_.code[index];
    Register& o = registers_[index];
    switch (in.op) {
      case PointwiseOp::constant:
        return;
      case PointwiseOp::load:
        return loadBlock(plan_, plan_.sources[size_t(plan_.source_of[index])], begin, n, o);
      case PointwiseOp::iota:
        if (classOf(in.dtype) != Class::f)
          return loadBlock(plan_, plan_.sources[size_t(plan_.source_of[index])], begin, n, o);
        loadBlock(plan_, plan_.sources[size_t(plan_.source_of[index])], begin, n, temp(0));
        return scalar1(temp(0).i, o.f, n, [](int64_t x) { return float(x); });
      case PointwiseOp::eq:
      case PointwiseOp::ne:
      case PointwiseOp::lt:
      case PointwiseOp::le:
      case PointwiseOp::gt:
      case PointwiseOp::ge:
        if (cls(in.a) == Class::f || cls(in.b) == Class::f) return compare(in.op, f(in.a, 0, n), f(in.b, 1, n), o.b, n);
        return compare(in.op, i(in.a, 0, n), i(in.b, 1, n), o.b, n);
      case PointwiseOp::logical_and:
        return scalar2(b(in.a, 0, n), b(in.b, 1, n), o.b, n, [](int32_t x, int32_t y) { return x & y; });
      case PointwiseOp::logical_or:
        return scalar2(b(in.a, 0, n), b(in.b, 1, n), o.b, n, [](int32_t x, int32_t y) { return x | y; });
      case PointwiseOp::logical_not:
        return scalar1(b(in.a, 0, n), o.b, n, [](int32_t x) { return x ^ 1; });
      case PointwiseOp::where:
        return select(in, o, n);
      case PointwiseOp::cast:
        return cast(in, o, n);
      default:
        break;
    }
    const bool two = in.op >= PointwiseOp::add && in.op <= PointwiseOp::maximum;
    if (classOf(in.dtype) == Class::f) {
      const float* a = f(in.a, 0, n);
      return two ? arithmeticF(in.op, a, f(in.b, 1, n), o.f, n) : unaryFloat(in, a, o.f, n);
    }
    Register* target = classOf(in.dtype) == Class::b ? &temp(2) : &o;
    const int64_t* a = i(in.a, 0, n);
    if (two) {
      arithmeticI(in.op, a, i(in.b, 1, n), target->i, n);
    } else {
      unaryInt(in, a, target->i, n);
    }
    if (target != &o) return scalar1(target->i, o.b, n, [](int64_t x) { return int32_t(x != 0); });
    wrapTo(in.dtype, o.i, n);
  }

  void select(const PointwiseInstruction& in, Register& o, int n) {
    const int32_t* c = b(in.a, 0, n);
    switch (classOf(in.dtype)) {
      case Class::f: {
        const float *x = f(in.b, 1, n), *y = f(in.c, 2, n);
        for (int k = 0; k < n; ++k) o.f[k] = c[k] ? x[k] : y[k];
        return;
      }
      case Class::i: {
        const int64_t *x = i(in.b, 1, n), *y = i(in.c, 2, n);
        for (int k = 0; k < n; ++k) o.i[k] = c[k] ? x[k] : y[k];
        return;
      }
      case Class::b: {
        const int32_t *x = b(in.b, 1, n), *y = b(in.c, 2, n);
        for (int k = 0; k < n; ++k) o.b[k] = c[k] ? x[k] : y[k];
        return;
      }
    }
  }

  void cast(const PointwiseInstruction& in, Register& o, int n) {
    const Register& a = reg(in.a);
    switch (classOf(in.dtype)) {
      case Class::f:
        std::memcpy(o.f, f(in.a, 0, n), size_t(n) * sizeof(float));
        return;
      case Class::b:
        std::memcpy(o.b, b(in.a, 0, n), size_t(n) * sizeof(int32_t));
        return;
      case Class::i:
        if (cls(in.a) == Class::f) {
          for (int k = 0; k < n; ++k) o.i[k] = a.f[k] == a.f[k] ? saturate(double(a.f[k])) : INT64_MIN;
        } else {
          std::memcpy(o.i, i(in.a, 0, n), size_t(n) * sizeof(int64_t));
        }
        wrapTo(in.dtype, o.i, n);
    }
  }

  void store(int64_t begin, int n) {
    const int32_t last = int32_t(plan_.code.size()) - 1;
    switch (plan_.out_dtype) {
      case DType::f32:
        std::memcpy(static_cast<float*>(plan_.out) + begin, f(last, 0, n), size_t(n) * 4);
        return;
      case DType::i64:
        std::memcpy(static_cast<int64_t*>(plan_.out) + begin, i(last, 0, n), size_t(n) * 8);
        return;
      case DType::i32:
        return scalar1(i(last, 0, n), static_cast<int32_t*>(plan_.out) + begin, n,
                       [](int64_t x) { return int32_t(x); });
      case DType::i8:
        return scalar1(i(last, 0, n), static_cast<int8_t*>(plan_.out) + begin, n, [](int64_t x) { return int8_t(x); });
      case DType::u8:
        return scalar1(i(last, 0, n), static_cast<uint8_t*>(plan_.out) + begin, n,
                       [](int64_t x) { return uint8_t(x); });
      default:
        return scalar1(b(last, 0, n), static_cast<uint8_t*>(plan_.out) + begin, n,
                       [](int32_t x) { return uint8_t(x); });
    }
  }

  const Plan& plan_;
  std::unique_ptr<Register[]> registers_;  // uninitialised
  std::vector<Class> classes_;
};

Status checkReach(const char* op, const StridedInput& in, const Sizes& sizes) {
  int64_t lo = in.offset, hi = in.offset;
  for (size_t d = 0; d < sizes.size(); ++d) (in.strides[d] < 0 ? lo : hi) += in.strides[d] * (sizes[d] - 1);
  if (lo < 0 || hi >= in.tensor->count())
    return invalid(std::string(op) + ": reads outside of a tensor of " + sizesToString(in.tensor->sizes));
  return {};
}

/// Merges output dimensions that are adjacent in every source.
void collapse(Plan& plan) {
  size_t n = 0;
  Sizes& sizes = plan.sizes;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    bool merge = n > 0;
    for (const Source& s : plan.sources) merge = merge && s.strides[n - 1] == s.strides[d] * sizes[d];
    if (!merge) ++n;
    sizes[n - 1] = merge ? sizes[n - 1] * sizes[d] : sizes[d];
    for (Source& s : plan.sources) s.strides[n - 1] = s.strides[d];
  }
  if (n == 0) {
    sizes.assign(1, 1);
    for (Source& s : plan.sources) s.strides.assign(1, 0);
    return;
  }
  sizes.resize(n);
  for (Source& s : plan.sources) s.strides.resize(n);
}

}  // namespace

Status runPointwise(const char* op, const TensorView& out, std::span<const StridedInput> inputs,
                    std::span<const PointwiseInstruction> code, ThreadPool& pool) {
  const int64_t count = out.count();
  if (!supported(out.dtype)) return invalid(std::string(op) + ": no kernel for " + std::string(dtypeName(out.dtype)));
  if (count == 0) return {};
  if (code.empty()) return invalid(std::string(op) + ": an empty program");
  Plan plan{code, out.sizes, {}, std::vector<int>(code.size(), -1), out.data, out.dtype};
  for (const StridedInput& in : inputs) {
    if (!supported(in.tensor->dtype) || in.tensor->quantization.bits)
      return invalid(std::string(op) + ": no kernel for " + std::string(dtypeName(in.tensor->dtype)));
    ETWGPU_TRY(checkReach(op, in, out.sizes));
    plan.sources.push_back({in.tensor->data, in.tensor->dtype, in.strides, in.offset});
  }
  for (size_t i = 0; i < code.size(); ++i) {
    const PointwiseInstruction& in = code[i];
    for (int32_t operand : {in.a, in.b, in.c})
      if (operand >= int32_t(i)) return invalid(std::string(op) + ": a program that reads what comes later");
    if (in.op == PointwiseOp::load) {
      if (in.imm_index < 0 || size_t(in.imm_index) >= inputs.size())
        return invalid(std::string(op) + ": a missing input");
      plan.source_of[i] = in.imm_index;
    } else if (in.op == PointwiseOp::iota) {
      Source s;
      s.strides.assign(out.rank(), 0);
      if (in.imm_index < 0 || size_t(in.imm_index) >= out.rank())
        return invalid(std::string(op) + ": iota of a missing dimension");
      s.strides[size_t(in.imm_index)] = 1;
      plan.source_of[i] = int(plan.sources.size());
      plan.sources.push_back(std::move(s));
    }
  }
  collapse(plan);
  const int64_t grain = roundUp(std::max<int64_t>(kBlock, 16384 / int64_t(code.size())), kBlock);
  pool.parallelFor(count, grain, [&](int64_t b, int64_t e) { Machine(plan).run(b, e); });
  return {};
}

}  // namespace etwgpu::cpu
