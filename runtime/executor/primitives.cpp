// Operators that work on values rather than on tensors' elements: symbolic integers, reading a scalar, views.
#include <cmath>
#include <cstring>

#include "runtime/executor/method_state.h"

namespace etwgpu {
namespace {

using Args = std::span<const int32_t>;

/// An integer, float or bool value.
struct Number {
  bool is_int = true;
  int64_t i = 0;
  double d = 0;
  double number() const { return is_int ? double(i) : d; }
};

Status wrong(MethodState& m, const char* op, const std::string& message) {
  return m.error(Code::invalid_program, std::string(op) + ": " + message);
}
Status need(MethodState& m, const char* op, Args args, size_t count) {
  return args.size() >= count ? Status() : wrong(m, op, format("%zu arguments, %zu expected", args.size(), count));
}
Result<Number> number(MethodState& m, const char* op, int32_t index) {
  const ProgramValue& v = m.value(index);
  if (const auto* i = std::get_if<int64_t>(&v)) return Number{true, *i, 0};
  if (const auto* b = std::get_if<bool>(&v)) return Number{true, *b, 0};
  if (const auto* d = std::get_if<double>(&v)) return Number{false, 0, *d};
  return wrong(m, op, m.describe(index) + " is no number");
}
Result<int64_t> integer(MethodState& m, const char* op, int32_t index) {
  ETWGPU_ASSIGN(const Number n, number(m, op, index));
  if (!n.is_int) return wrong(m, op, m.describe(index) + " is no integer");
  return n.i;
}

// Arithmetic that wraps instead of being undefined: the numbers come from a file.
int64_t wrapAdd(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
int64_t wrapSub(int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }
int64_t wrapMul(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }
int64_t floorDiv(int64_t a, int64_t b) {
  if (b == -1) return wrapSub(0, a);
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
int64_t pythonMod(int64_t a, int64_t b) { return b == -1 ? 0 : wrapSub(a, wrapMul(floorDiv(a, b), b)); }
int64_t saturate(double d) {
  return d >= -0x1p62 && d <= 0x1p62 ? int64_t(d) : d > 0 ? INT64_MAX : d < 0 ? INT64_MIN : 0;
}

enum class Binary { add, sub, mul, floordiv, mod, truediv, eq, gt, lt, ge, le, max, min };

template <class T>
bool compare(Binary op, T a, T b) {
  switch (op) {
    case Binary::eq:
      return a == b;
    case Binary::gt:
      return a > b;
    case Binary::lt:
      return a < b;
    case Binary::ge:
      return a >= b;
    default:
      return a <= b;
  }
}
ProgramValue arithmetic(Binary op, int64_t a, int64_t b) {
  switch (op) {
    case Binary::add:
      return wrapAdd(a, b);
    case Binary::sub:
      return wrapSub(a, b);
    case Binary::mul:
      return wrapMul(a, b);
    case Binary::floordiv:
      return floorDiv(a, b);
    case Binary::mod:
      return pythonMod(a, b);
    case Binary::max:
      return std::max(a, b);
    case Binary::min:
      return std::min(a, b);
    default:
      return double(a) / double(b);
  }
}
ProgramValue arithmetic(Binary op, double a, double b) {
  switch (op) {
    case Binary::add:
      return a + b;
    case Binary::sub:
      return a - b;
    case Binary::mul:
      return a * b;
    case Binary::floordiv:
      return saturate(std::floor(a / b));
    case Binary::mod:
      return a - std::floor(a / b) * b;
    case Binary::max:
      return std::max(a, b);
    case Binary::min:
      return std::min(a, b);
    default:
      return a / b;
  }
}

template <Binary op>
Status binary(MethodState& m, Args args) {
  const char* name = "an arithmetic primitive";
  ETWGPU_TRY(need(m, name, args, 3));
  ETWGPU_ASSIGN(const Number a, number(m, name, args[0]));
  ETWGPU_ASSIGN(const Number b, number(m, name, args[1]));
  const bool ints = a.is_int && b.is_int;
  ProgramValue& out = m.value(args[2]);
  if constexpr (op == Binary::eq || op == Binary::gt || op == Binary::lt || op == Binary::ge || op == Binary::le) {
    out = ints ? compare(op, a.i, b.i) : compare(op, a.number(), b.number());
  } else {
    const bool divides = op == Binary::floordiv || op == Binary::mod || op == Binary::truediv;
    if (divides && b.number() == 0) return m.error(Code::invalid_argument, "division by zero");
    out = ints ? arithmetic(op, a.i, b.i) : arithmetic(op, a.number(), b.number());
  }
  return {};
}

enum class Unary { neg, floor_to_int, ceil, round, trunc, to_float, logical_not };

template <Unary op>
Status unary(MethodState& m, Args args) {
  const char* name = "an arithmetic primitive";
  ETWGPU_TRY(need(m, name, args, 2));
  ETWGPU_ASSIGN(const Number a, number(m, name, args[0]));
  ProgramValue& out = m.value(args[1]);
  switch (op) {
    case Unary::neg:
      out = a.is_int ? ProgramValue(wrapSub(0, a.i)) : ProgramValue(-a.d);
      break;
    case Unary::floor_to_int:
    case Unary::trunc:
      out = a.is_int ? a.i : saturate(std::trunc(a.d));
      break;
    case Unary::ceil:
      out = a.is_int ? a.i : saturate(std::ceil(a.d));
      break;
    case Unary::round:
      out = a.is_int ? a.i : saturate(std::nearbyint(a.d));
      break;
    case Unary::to_float:
      out = a.number();
      break;
    case Unary::logical_not:
      out = a.number() == 0;
      break;
  }
  return {};
}

/// sym_ite(condition, a, b, out)
Status ifThenElse(MethodState& m, Args args) {
  ETWGPU_TRY(need(m, "sym_ite", args, 4));
  ETWGPU_ASSIGN(const Number condition, number(m, "sym_ite", args[0]));
  const ProgramValue chosen = m.value(condition.number() != 0 ? args[1] : args[2]);
  if (!std::holds_alternative<TensorRef>(chosen)) m.value(args[3]) = chosen;
  return {};
}

Status symSize(MethodState& m, Args args) {
  ETWGPU_TRY(need(m, "sym_size", args, 3));
  const RuntimeTensor* t = m.tensor(args[0]);
  if (!t) return wrong(m, "sym_size", m.describe(args[0]) + " is no tensor");
  ETWGPU_ASSIGN(const int64_t dim, integer(m, "sym_size", args[1]));
  const int64_t rank = int64_t(t->sizes.size());
  if (dim < -rank || dim >= rank)
    return wrong(m, "sym_size", format("dimension %lld of %lld", (long long)dim, (long long)rank));
  m.value(args[2]) = t->sizes[size_t(dim < 0 ? dim + rank : dim)];
  return {};
}

Status symNumel(MethodState& m, Args args) {
  ETWGPU_TRY(need(m, "sym_numel", args, 2));
  const RuntimeTensor* t = m.tensor(args[0]);
  if (!t) return wrong(m, "sym_numel", m.describe(args[0]) + " is no tensor");
  m.value(args[1]) = elementCount(t->sizes);
  return {};
}

template <class T>
T load(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// The value of a tensor of one element.
Status localScalar(MethodState& m, Args args) {
  const char* name = "_local_scalar_dense";
  ETWGPU_TRY(need(m, name, args, 2));
  const RuntimeTensor* t = m.tensor(args[0]);
  if (!t || !t->data) return wrong(m, name, m.describe(args[0]) + " is no tensor with a value");
  if (elementCount(t->sizes) != 1)
    return wrong(m, name, "the tensor has " + sizesToString(t->sizes) + " elements, 1 expected");
  if (!t->info->hasDType())
    return m.error(Code::unsupported_operator, std::string(name) + " of " + scalarTypeName(t->info->scalar_type));
  ProgramValue& out = m.value(args[1]);
  switch (t->info->dtype()) {
    case DType::u8:
      out = int64_t(t->data[0]);
      break;
    case DType::i8:
      out = int64_t(load<int8_t>(t->data));
      break;
    case DType::i16:
      out = int64_t(load<int16_t>(t->data));
      break;
    case DType::i32:
      out = int64_t(load<int32_t>(t->data));
      break;
    case DType::i64:
      out = load<int64_t>(t->data);
      break;
    case DType::f16:
      out = double(halfToFloat(load<uint16_t>(t->data)));
      break;
    case DType::f32:
      out = double(load<float>(t->data));
      break;
    case DType::f64:
      out = load<double>(t->data);
      break;
    case DType::boolean:
      out = t->data[0] != 0;
      break;
    case DType::bf16: {
      const uint32_t bits = uint32_t(load<uint16_t>(t->data)) << 16;
      float f;
      std::memcpy(&f, &bits, 4);
      out = double(f);
    }
  }
  return {};
}

/// The sizes of a view: at most one is -1 and follows from the others.
Result<Sizes> viewSizes(MethodState& m, const IntegerList& list, int64_t count) {
  Sizes sizes;
  int64_t known = 1, unknown = -1;
  for (int64_t item : list.items) {
    ETWGPU_ASSIGN(const int64_t s, integer(m, "et_view", int32_t(item)));
    if (s == -1 && unknown < 0) {
      unknown = int64_t(sizes.size());
    } else if (s < 0 || __builtin_mul_overflow(known, s, &known)) {
      return wrong(m, "et_view", format("size %lld", (long long)s));
    }
    sizes.push_back(s);
  }
  if (unknown >= 0) {
    if (known == 0 || count % known)
      return wrong(m, "et_view", format("%lld elements do not divide by %lld", (long long)count, (long long)known));
    sizes[size_t(unknown)] = count / known;
    known = count;
  }
  if (known != count) {
    return wrong(m, "et_view", format("%s for %lld elements", sizesToString(sizes).c_str(), (long long)count));
  }
  return sizes;
}

/// et_view(self, size, out): out becomes a view of self's bytes.
Status view(MethodState& m, Args args) {
  ETWGPU_TRY(need(m, "et_view", args, 3));
  RuntimeTensor* self = m.tensor(args[0]);
  RuntimeTensor* out = m.tensor(args[2]);
  const auto* list = std::get_if<IntegerList>(&m.value(args[1]));
  if (!self || !out || !list || !self->data) return wrong(m, "et_view", "tensor, sizes, tensor expected");
  if (self->info->scalar_type != out->info->scalar_type) return wrong(m, "et_view", "the view has another dtype");
  if (out->info->planned || out->info->isConstant()) return wrong(m, "et_view", "the view has memory of its own");
  ETWGPU_ASSIGN(const Sizes sizes, viewSizes(m, *list, elementCount(self->sizes)));
  if (self != out) {
    out->data = self->data;
    out->capacity = self->capacity;
    out->writable = self->writable;
  }
  return m.resize(args[2], sizes);
}

/// et_copy_index(copy_to, copy_from, index): copy_to[index] = copy_from, where copy_to grows to index + 1 rows.
Status copyIndex(MethodState& m, Args args) {
  const char* name = "et_copy_index";
  ETWGPU_TRY(need(m, name, args, 3));
  RuntimeTensor* to = m.tensor(args[0]);
  const RuntimeTensor* from = m.tensor(args[1]);
  ETWGPU_ASSIGN(const int64_t index, integer(m, name, args[2]));
  if (!to || !from || !from->data || !to->writable) return wrong(m, name, "two tensors expected");
  if (to->info->scalar_type != from->info->scalar_type) return wrong(m, name, "the tensors differ in dtype");
  if (index < 0 || index >= INT32_MAX) return wrong(m, name, format("index %lld", (long long)index));
  Sizes sizes{index + 1};
  sizes.insert(sizes.end(), from->sizes.begin(), from->sizes.end());
  if (to->info->shape == ShapeKind::fixed && !to->sizes.empty()) sizes[0] = std::max(sizes[0], to->sizes[0]);
  ETWGPU_TRY(m.resize(args[0], sizes));
  const uint64_t row = from->bytes();
  std::memmove(to->data + uint64_t(index) * row, from->data, row);
  return {};
}

/// copy_(self, src, non_blocking, self): how a program keeps the new value of a mutable buffer.
Status copyInPlace(MethodState& m, Args args) {
  ETWGPU_TRY(need(m, "copy_", args, 2));
  RuntimeTensor* self = m.tensor(args[0]);
  const RuntimeTensor* src = m.tensor(args[1]);
  if (!self || !src || !src->data) return wrong(m, "copy_", "two tensors expected");
  if (!self->writable) return wrong(m, "copy_", m.describe(args[0]) + " may not be written");
  if (self->info->scalar_type != src->info->scalar_type || !self->info->isContiguous() || !src->info->isContiguous()) {
    return m.error(Code::unsupported_operator, "copy_ between dtypes or layouts");
  }
  const Sizes sizes = src->sizes;
  ETWGPU_TRY(m.resize(args[0], sizes));
  if (src->bytes()) std::memmove(self->data, src->data, src->bytes());
  return {};
}

struct Entry {
  std::string_view name, overload;
  Primitive primitive;
};
constexpr Entry kPrimitives[] = {
    {"aten::sym_size", "int", symSize},
    {"aten::sym_numel", "", symNumel},
    {"aten::_local_scalar_dense", "", localScalar},
    {"aten::copy_", "", copyInPlace},
    {"executorch_prim::add", "Scalar", binary<Binary::add>},
    {"executorch_prim::sub", "Scalar", binary<Binary::sub>},
    {"executorch_prim::mul", "Scalar", binary<Binary::mul>},
    {"executorch_prim::floordiv", "Scalar", binary<Binary::floordiv>},
    {"executorch_prim::floordiv", "int", binary<Binary::floordiv>},
    {"executorch_prim::mod", "Scalar", binary<Binary::mod>},
    {"executorch_prim::mod", "int", binary<Binary::mod>},
    {"executorch_prim::truediv", "Scalar", binary<Binary::truediv>},
    {"executorch_prim::eq", "Scalar", binary<Binary::eq>},
    {"executorch_prim::gt", "Scalar", binary<Binary::gt>},
    {"executorch_prim::lt", "Scalar", binary<Binary::lt>},
    {"executorch_prim::ge", "Scalar", binary<Binary::ge>},
    {"executorch_prim::le", "Scalar", binary<Binary::le>},
    {"executorch_prim::sym_max", "Scalar", binary<Binary::max>},
    {"executorch_prim::sym_min", "Scalar", binary<Binary::min>},
    {"executorch_prim::neg", "Scalar", unary<Unary::neg>},
    {"executorch_prim::ceil", "Scalar", unary<Unary::ceil>},
    {"executorch_prim::round", "Scalar", unary<Unary::round>},
    {"executorch_prim::trunc", "Scalar", unary<Unary::trunc>},
    {"executorch_prim::sym_float", "Scalar", unary<Unary::to_float>},
    {"executorch_prim::sym_int", "Scalar", unary<Unary::floor_to_int>},
    {"executorch_prim::sym_not", "Scalar", unary<Unary::logical_not>},
    {"executorch_prim::sym_ite", "Scalar", ifThenElse},
    {"executorch_prim::et_view", "default", view},
    {"executorch_prim::et_view", "", view},
    {"executorch_prim::et_copy_index", "tensor", copyIndex},
};

}  // namespace

Primitive findPrimitive(std::string_view name, std::string_view overload) {
  for (const Entry& e : kPrimitives) {
    if (e.name == name && e.overload == overload) return e.primitive;
  }
  return nullptr;
}

}  // namespace etwgpu
