#include "runtime/webgpu/gpu_cost.h"

#include <algorithm>

#include "runtime/webgpu/gpu_plan.h"
#include "runtime/webgpu/gpu_storage.h"

namespace etwgpu {
namespace {

/// A value that is bound, at its live size.
struct Operand {
  const Binding* binding;
  const Value* value;  // with the dimensions that the operator sees
  ValueKind kind;      // of its storage
  std::vector<int64_t> dims;
  double elements = 1;
  uint64_t element_bytes = 4;

  bool written() const { return binding->access == Access::read_write; }
  int64_t dim(int fromEnd) const { return int(dims.size()) >= fromEnd ? dims[dims.size() - size_t(fromEnd)] : 1; }
  bool activation() const {
    return kind != ValueKind::constant && kind != ValueKind::state && isFloating(value->dtype);
  }
  double bytes() const { return elements * double(element_bytes); }
};

class Estimate {
 public:
  Estimate(const Graph& graph, const DispatchSpec& spec, std::span<const int64_t> values, Precision precision,
           int64_t position)
      : graph_(graph), spec_(spec), values_(values), precision_(precision), position_(position) {
    for (const Binding& b : spec.bindings) add(b);
    rows_ = countRows();
  }

  DispatchCost run() {
    for (const Operand& o : operands_) {
      if (o.kind == ValueKind::constant) {
        addConstant(o);
      } else if (o.kind == ValueKind::state && o.dims.size() >= 3) {
        addCache(o);
      } else {
        cost_.bytes += std::min(o.bytes(), neededBytes(o));
      }
    }
    if (cost_.flops == 0) addProducts();
    return cost_;
  }

 private:
  void add(const Binding& b) {
    for (const Operand& o : operands_) {
      if (graph_.storage(o.binding->value) == graph_.storage(b.value) && o.binding->part == b.part) return;
    }
    const Value& storage = graph_.value(graph_.storage(b.value));
    Operand o{&b, &graph_.value(b.value), storage.kind, {}};
    for (const ExprId d : o.value->dims) {
      o.dims.push_back(values_[size_t(d.index)]);
      o.elements *= double(o.dims.back());
    }
    o.element_bytes = storageSize(gpuStorage(storage.dtype, storage.kind == ValueKind::constant, precision_));
    operands_.push_back(std::move(o));
  }

  /// What is written last; what the node keeps for itself between its dispatches is bound for writing too.
  const Operand* output() const {
    const Operand* last = nullptr;
    for (const Operand& o : operands_)
      if (o.kind != ValueKind::state && o.written()) last = &o;
    return last;
  }
  const Operand* input() const {
    const Operand* y = output();
    for (const Operand& o : operands_)
      if (o.activation() && &o != y) return &o;
    return nullptr;
  }

  /// The rows that are computed: what kernels are chosen by, or those of the output ([.., S, N] or [1, S, H, D]).
  double countRows() const {
    if (spec_.when.expr.valid()) return double(std::max<int64_t>(values_[size_t(spec_.when.expr.index)], 0));
    const Operand* y = output();
    if (!y || y->dims.empty()) return 1;
    return y->dims.size() == 4 ? double(y->dims[0] * y->dims[1])
                               : y->elements / double(std::max<int64_t>(y->dim(1), 1));
  }

  /// A product with a matrix [N, K] reads as many rows of K as it computes: a decoder's head one of many.
  double neededBytes(const Operand& o) const {
    if (!o.activation() || &o == output()) return o.bytes();
    for (const Operand& w : operands_) {
      if (w.kind == ValueKind::constant && w.dims.size() == 2 && w.dim(1) == o.dim(1))
        return rows_ * double(w.dim(1)) * double(o.element_bytes);
    }
    return o.bytes();
  }

  void addConstant(const Operand& o) {
    const BindingRange range = bindingRange(graph_, *o.binding, precision_);
    const double all = double(range.size);
    const size_t rank = o.dims.size();
    if (rank == 2 && !input()) {
      const Operand* y = output();
      cost_.bytes += y ? std::min(all, all * y->elements / std::max(o.elements, 1.0)) : all;
    } else if (rank == 2) {
      cost_.bytes += all;
      if (o.binding->part != Part::quant_constants) cost_.flops += 2 * rows_ * o.elements;
    } else if (rank == 3 && !o.value->quantization.bits && rows_ < double(o.dims[0])) {
      cost_.bytes += all * rows_ / double(o.dims[0]);  // a table by position
    } else {
      cost_.bytes += all;
      const Operand* y = output();
      if (rank > 3 && y) cost_.flops += 2 * y->elements * o.elements / double(std::max<int64_t>(o.dims[0], 1));
    }
  }

  void addCache(const Operand& o) {
    const double length = double(o.dim(2)), row = o.elements / std::max(length, 1.0);
    if (o.written()) {
      cost_.bytes += std::min(rows_, length) * row * double(o.element_bytes);
      return;
    }
    cost_.bytes += std::min(double(position_) + rows_, length) * row * double(o.element_bytes);
    // the queries see half of the new positions on average
    const Operand* q = input();
    if (q) cost_.flops += 2 * q->elements * std::min(double(position_) + (rows_ + 1) / 2, length);
  }

  void addProducts() {
    const Operand* y = output();
    if (!y) return;
    if (spec_.kernel.file.empty()) {  // generated pointwise text
      cost_.flops = y->elements;
      return;
    }
    std::vector<const Operand*> x;
    for (const Operand& o : operands_)
      if (o.activation() && !o.written() && o.dims.size() >= 2) x.push_back(&o);
    if (x.size() >= 3 && x[1]->dims == x[2]->dims && x[0]->dim(1) == x[1]->dim(1) && y->dims == x[0]->dims) {
      cost_.flops = 4 * x[0]->elements * double(x[1]->dim(2));
    } else if (x.size() >= 2 && x[0]->dim(1) == x[1]->dim(2) && y->dim(1) == x[1]->dim(1)) {
      cost_.flops = 2 * y->elements * double(x[0]->dim(1));
    }
  }

  const Graph& graph_;
  const DispatchSpec& spec_;
  std::span<const int64_t> values_;
  const Precision precision_;
  const int64_t position_;
  std::vector<Operand> operands_;
  double rows_ = 1;
  DispatchCost cost_;
};

}  // namespace

DispatchCost dispatchCost(const Graph& graph, const DispatchSpec& spec, std::span<const int64_t> values,
                          Precision precision, int64_t position) {
  return Estimate(graph, spec, values, precision, position).run();
}

}  // namespace etwgpu
