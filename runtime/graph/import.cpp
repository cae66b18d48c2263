// Delegate payload (schema/graph.fbs) → Graph. The flatbuffer verifier has checked all offsets before anything is read
// here; what it cannot know (indices, ranks, counts, sizes of named data) is checked on the way, each with both
// numbers.
#include <algorithm>
#include <cstring>

#include "generated/graph_generated.h"
#include "runtime/core/digest.h"
#include "runtime/graph/graph.h"

namespace etwgpu {
namespace {

constexpr uint32_t kPayloadVersion = 1;  // the newest that this runtime reads
constexpr uint32_t kMaxRank = 8;
/// Beyond any device; far enough from overflow that sums of sizes cannot wrap.
constexpr uint64_t kMaxValueBytes = uint64_t(1) << 46;
constexpr uint64_t kPlaneAlignment = 256;

uint64_t roundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

template <class V>
size_t count(const V* vector) {
  return vector ? vector->size() : 0;
}
/// Elements of 8 bytes: the verifier knows that they are there, not that they are aligned.
fb::Expr element(const flatbuffers::Vector<const fb::Expr*>& vector, size_t i) {
  fb::Expr e;
  std::memcpy(static_cast<void*>(&e), vector.Data() + i * sizeof(fb::Expr), sizeof(fb::Expr));
  return e;
}
double element(const flatbuffers::Vector<double>& vector, size_t i) {
  double d;
  std::memcpy(&d, vector.Data() + i * sizeof(double), sizeof(double));
  return d;
}
std::string text(const flatbuffers::String* s) { return s ? s->str() : std::string(); }

class Importer {
 public:
  Importer(const fb::Graph& source, size_t payload_bytes, const NamedDataSizes& data, const ImportOptions& options)
      : source_(source), budget_(payload_bytes), data_(data), options_(options) {}

  Result<Graph> run() {
    graph_.exporter = text(source_.exporter());
    graph_.method = options_.method;
    ETWGPU_TRY(symbols());
    ETWGPU_TRY(expressions());
    ETWGPU_TRY(values());
    ETWGPU_TRY(inputs());
    ETWGPU_TRY(nodes());
    ETWGPU_TRY(outputs());
    if (options_.all_rows) ETWGPU_TRY(keepAllRows(graph_));
    ETWGPU_TRY(verify(graph_));
    return std::move(graph_);
  }

 private:
  static Status bad(std::string message) { return {Code::invalid_program, "delegate payload: " + std::move(message)}; }

  /// A hostile file can point to one vector from many places. What is copied out of the payload is limited by its size.
  Status spend(size_t elements) {
    if (elements > budget_) return bad("its vectors overlap (they hold more than the file's size)");
    budget_ -= elements;
    return {};
  }

  Status symbols() {
    for (size_t i = 0; i < count(source_.symbols()); ++i) {
      const fb::Symbol* s = source_.symbols()->Get(uint32_t(i));
      const std::string name = s->name() && s->name()->size() ? s->name()->str() : "s" + std::to_string(i);
      ETWGPU_TRY(spend(name.size()));
      if (s->min() > s->max()) {
        return bad(
            format("symbol %s: min %lld is above max %lld", name.c_str(), (long long)s->min(), (long long)s->max()));
      }
      const auto inputs = int64_t(count(source_.inputs()));
      if (s->input() < 0 || s->input() >= inputs) {
        return bad(format("symbol %s comes from input %d of %lld", name.c_str(), s->input(), (long long)inputs));
      }
      if (s->source() != fb::SymbolSource::input_dim && s->source() != fb::SymbolSource::input_int) {
        return bad(format("symbol %s: unknown source %d", name.c_str(), int(s->source())));
      }
      const bool bounded = options_.max_size > 0 && s->source() == fb::SymbolSource::input_dim;
      const int64_t max = bounded ? std::max(s->min(), std::min(s->max(), options_.max_size)) : s->max();
      graph_.exprs.newSymbol(name, {s->min(), max});
      if (bounded) graph_.exported_size = std::max(graph_.exported_size, s->max());
      graph_.symbols.push_back({s->input(), s->source() == fb::SymbolSource::input_dim ? s->dim() : -1});
      if (s->source() == fb::SymbolSource::input_dim && s->dim() < 0) {
        return bad(format("symbol %s: dimension %d", name.c_str(), s->dim()));
      }
    }
    return {};
  }

  Status expressions() {
    const size_t n = count(source_.exprs());
    exprs_.reserve(n);
    for (size_t i = 0; i < n; ++i) {
      const fb::Expr copy = element(*source_.exprs(), i), *e = &copy;
      const auto op = int(e->op());
      if (op < 0 || op > int(fb::ExprOp::max)) return bad(format("expression %zu: unknown operation %d", i, op));
      if (e->op() == fb::ExprOp::constant) {
        exprs_.push_back(graph_.exprs.constant(e->value()));
      } else if (e->op() == fb::ExprOp::symbol) {
        if (e->a() < 0 || size_t(e->a()) >= graph_.symbols.size()) {
          return bad(format("expression %zu: symbol %d of %zu", i, e->a(), graph_.symbols.size()));
        }
        exprs_.push_back(graph_.exprs.symbol(e->a()));
      } else {
        if (e->a() < 0 || e->b() < 0 || size_t(e->a()) >= i || size_t(e->b()) >= i) {
          return bad(format("expression %zu refers to expressions %d and %d, not before it", i, e->a(), e->b()));
        }
        // the numbers of fb::ExprOp are those of ExprOp
        exprs_.push_back(graph_.exprs.binary(ExprOp(op), exprs_[size_t(e->a())], exprs_[size_t(e->b())]));
      }
    }
    return {};
  }

  Status expression(int32_t index, const char* where, const std::string& name, ExprId& out) const {
    if (index < 0 || size_t(index) >= exprs_.size()) {
      return bad(format("%s of %s: expression %d of %zu", where, name.c_str(), index, exprs_.size()));
    }
    out = exprs_[size_t(index)];
    return {};
  }

  Status values() {
    for (size_t i = 0; i < count(source_.values()); ++i) {
      const fb::Value* v = source_.values()->Get(uint32_t(i));
      Value value;
      value.name = text(v->name());
      if (value.name.empty()) value.name = "v" + std::to_string(i);
      ETWGPU_TRY(spend(value.name.size()));
      if (!isValidDType(int(v->dtype())))
        return bad(format("value %s: unknown dtype %d", value.name.c_str(), int(v->dtype())));
      value.dtype = DType(v->dtype());
      if (int(v->kind()) < 0 || int(v->kind()) > int(fb::ValueKind::state)) {
        return bad(format("value %s: unknown kind %d", value.name.c_str(), int(v->kind())));
      }
      value.kind = ValueKind(v->kind());
      ETWGPU_TRY(dims(*v, value));
      if (value.kind == ValueKind::constant || value.kind == ValueKind::state) {
        ETWGPU_TRY(data(*v, value));
      } else if (v->quantization()) {
        return bad(format("value %s is quantised but no constant", value.name.c_str()));
      }
      graph_.values.push_back(std::move(value));
    }
    return {};
  }

  Status dims(const fb::Value& v, Value& value) {
    const size_t rank = count(v.dims());
    if (rank > kMaxRank) return bad(format("value %s has rank %zu, above %u", value.name.c_str(), rank, kMaxRank));
    for (size_t d = 0; d < rank; ++d) {
      ExprId e;
      ETWGPU_TRY(expression(v.dims()->Get(uint32_t(d)), "a dimension", value.name, e));
      if (graph_.exprs.bounds(e).max < 0)
        return bad(format("value %s: dimension %zu is negative", value.name.c_str(), d));
      // Interval arithmetic can reach below zero where the real value cannot (s0 - s1); no size is negative.
      if (graph_.exprs.bounds(e).min < 0) e = graph_.exprs.binary(ExprOp::max, e, graph_.exprs.constant(0));
      value.dims.push_back(e);
    }
    uint64_t bytes = dtypeSize(value.dtype);
    for (ExprId e : value.dims) {
      if (__builtin_mul_overflow(bytes, uint64_t(graph_.exprs.bounds(e).max), &bytes) || bytes > kMaxValueBytes) {
        return bad(format("value %s is too large at its upper bounds (more than %llu bytes)", value.name.c_str(),
                          (unsigned long long)kMaxValueBytes));
      }
    }
    return {};
  }

  Status data(const fb::Value& v, Value& value) {
    const char* what = value.kind == ValueKind::constant ? "constant" : "state";
    for (ExprId e : value.dims) {
      if (!graph_.exprs.isConstant(e)) return bad(format("%s %s has a dynamic dimension", what, value.name.c_str()));
    }
    const std::string key = text(v.data_key());
    ETWGPU_TRY(spend(key.size()));
    if (key.empty()) {
      if (value.kind == ValueKind::constant) return bad(format("constant %s has no data", value.name.c_str()));
      return {};  // a state of zeros
    }
    const std::optional<uint64_t> size = data_.size(key);
    if (!size) {
      return {Code::data_missing,
              format("the data of %s %s (key %s) is not in the program and no .ptd with it was given", what,
                     value.name.c_str(), key.c_str())};
    }
    if (v.quantization()) {
      if (value.kind != ValueKind::constant) return bad(format("state %s is quantised", value.name.c_str()));
      return quantised(*v.quantization(), key, *size, value);
    }
    const uint64_t expected = graph_maxBytes(value);
    if (*size != expected) {
      return bad(format("%s %s (key %s) has %llu bytes, its shape needs %llu", what, value.name.c_str(), key.c_str(),
                        (unsigned long long)*size, (unsigned long long)expected));
    }
    value.pieces.push_back({key, 0, expected});
    return {};
  }

  uint64_t graph_maxBytes(const Value& value) const {
    uint64_t bytes = dtypeSize(value.dtype);
    for (ExprId e : value.dims) bytes *= uint64_t(graph_.exprs.bounds(e).max);
    return bytes;
  }

  /// Packing R4: N padded to a multiple of 8; words, then at the next multiple of 256 the constants.
  Status quantised(const fb::Quantization& q, const std::string& key, uint64_t size, Value& value) {
    const char* name = value.name.c_str();
    if (value.dtype != DType::f32 || value.dims.size() != 2)
      return bad(format("quantised weight %s is not f32 [N, K]", name));
    const auto n = uint64_t(graph_.exprs.constantValue(value.dims[0])),
               k = uint64_t(graph_.exprs.constantValue(value.dims[1]));
    const uint64_t rows = roundUp(n, 8);
    uint64_t words = 0, constants = 0;
    if (q.bits() == 4) {
      if (q.group() < 8 || q.group() % 8 != 0 || k % 32 != 0 || k % uint64_t(q.group()) != 0) {
        return bad(format("quantised weight %s: K = %llu with groups of %d", name, (unsigned long long)k, q.group()));
      }
      words = rows * k / 2;
      constants = rows * (k / uint64_t(q.group())) * (q.symmetric() ? 2 : 4);
    } else if (q.bits() == 8) {
      if (q.group() != 0 || k % 4 != 0) {
        return bad(format("quantised weight %s: 8 bits with K = %llu and groups of %d", name, (unsigned long long)k,
                          q.group()));
      }
      words = rows * k;
      constants = rows * 4;
    } else {
      return bad(format("quantised weight %s: %d bits", name, q.bits()));
    }
    if (q.constants_offset() % kPlaneAlignment != 0 || q.constants_offset() < words || q.constants_offset() > size ||
        constants > size - q.constants_offset()) {
      return bad(format(
          "quantised weight %s (key %s): %llu bytes of words and %llu of constants at %llu do not fit %llu bytes", name,
          key.c_str(), (unsigned long long)words, (unsigned long long)constants,
          (unsigned long long)q.constants_offset(), (unsigned long long)size));
    }
    value.quantization = {q.bits(), q.group(), q.symmetric(), roundUp(words, kPlaneAlignment)};
    value.pieces.push_back({key, 0, words});
    value.constants_pieces.push_back({key, q.constants_offset(), constants});
    return {};
  }

  Status valueId(int32_t id, const std::string& where, bool none_allowed) const {
    if ((id == -1 && none_allowed) || (id >= 0 && size_t(id) < graph_.values.size())) return {};
    return bad(format("%s refers to value %d of %zu", where.c_str(), id, graph_.values.size()));
  }

  Status inputs() {
    for (size_t i = 0; i < count(source_.inputs()); ++i) {
      const int32_t id = source_.inputs()->Get(uint32_t(i))->value();
      ETWGPU_TRY(valueId(id, "input " + std::to_string(i), true));
      if (id >= 0 && graph_.value(id).kind != ValueKind::input) {
        return bad(format("input %zu is value %s, which is not of kind input", i, graph_.value(id).name.c_str()));
      }
      graph_.inputs.push_back({id});
    }
    for (size_t i = 0; i < graph_.symbols.size(); ++i) {
      const SymbolBinding& b = graph_.symbols[i];
      const ValueId v = graph_.inputs[size_t(b.input)].value;
      const char* name = graph_.exprs.symbolName(i).c_str();
      if (b.dim < 0 && v != kNoValue)
        return bad(format("symbol %s is an integer input, but input %d is a tensor", name, b.input));
      if (b.dim >= 0 && (v == kNoValue || size_t(b.dim) >= graph_.value(v).dims.size())) {
        return bad(format("symbol %s: input %d has no dimension %d", name, b.input, b.dim));
      }
    }
    return {};
  }

  Status argument(const fb::Arg& a, const std::string& where, Arg& out) {
    ETWGPU_TRY(spend(count(a.ids()) + count(a.numbers()) + count(a.flags()) + count(a.text())));
    const auto one = [&](size_t n) {
      return n == 1 ? Status() : bad(format("%s has %zu entries instead of 1", where.c_str(), n));
    };
    switch (a.kind()) {
      case fb::ArgKind::none:
        return {};
      case fb::ArgKind::value: {
        ETWGPU_TRY(one(count(a.ids())));
        const int32_t id = a.ids()->Get(0);
        ETWGPU_TRY(valueId(id, where, true));
        if (id >= 0) out = ValueId(id);
        return {};
      }
      case fb::ArgKind::values: {
        std::vector<ValueId> ids;
        for (size_t i = 0; i < count(a.ids()); ++i) {
          ids.push_back(a.ids()->Get(uint32_t(i)));
          ETWGPU_TRY(valueId(ids.back(), where, true));
        }
        out = std::move(ids);
        return {};
      }
      case fb::ArgKind::int_:
      case fb::ArgKind::ints: {
        std::vector<IntArg> ints(count(a.ids()));
        for (size_t i = 0; i < ints.size(); ++i)
          ETWGPU_TRY(expression(a.ids()->Get(uint32_t(i)), "an integer", where, ints[i].expr));
        if (a.kind() == fb::ArgKind::ints) {
          out = std::move(ints);
          return {};
        }
        ETWGPU_TRY(one(ints.size()));
        out = ints[0];
        return {};
      }
      case fb::ArgKind::double_:
        ETWGPU_TRY(one(count(a.numbers())));
        out = element(*a.numbers(), 0);
        return {};
      case fb::ArgKind::doubles: {
        std::vector<double> numbers;
        for (size_t i = 0; i < count(a.numbers()); ++i) numbers.push_back(element(*a.numbers(), i));
        out = std::move(numbers);
        return {};
      }
      case fb::ArgKind::bool_:
        ETWGPU_TRY(one(count(a.flags())));
        out = a.flags()->Get(0) != 0;
        return {};
      case fb::ArgKind::bools: {
        std::vector<bool> flags;
        for (size_t i = 0; i < count(a.flags()); ++i) flags.push_back(a.flags()->Get(uint32_t(i)) != 0);
        out = std::move(flags);
        return {};
      }
      case fb::ArgKind::string_:
        out = text(a.text());
        return {};
      case fb::ArgKind::dtype:
        if (!isValidDType(int(a.dtype()))) return bad(format("%s: unknown dtype %d", where.c_str(), int(a.dtype())));
        out = DType(a.dtype());
        return {};
    }
    return bad(format("%s: unknown kind %d", where.c_str(), int(a.kind())));
  }

  Status nodes() {
    for (size_t i = 0; i < count(source_.nodes()); ++i) {
      const fb::Node* n = source_.nodes()->Get(uint32_t(i));
      Node node;
      node.op = text(n->op());
      node.name = text(n->name());
      ETWGPU_TRY(spend(node.op.size() + node.name.size() + count(n->outputs())));
      if (node.op.empty()) return bad(format("node %zu has no operator", i));
      if (node.op.starts_with("etwgpu.")) {
        return bad(format("node %zu: %s is made by passes and cannot be in a file", i, node.op.c_str()));
      }
      if (node.name.empty()) node.name = "n" + std::to_string(i);
      node.args.resize(count(n->args()));
      for (size_t a = 0; a < node.args.size(); ++a) {
        ETWGPU_TRY(
            argument(*n->args()->Get(uint32_t(a)), format("argument %zu of %s", a, node.name.c_str()), node.args[a]));
      }
      for (size_t o = 0; o < count(n->outputs()); ++o) {
        node.outputs.push_back(n->outputs()->Get(uint32_t(o)));
        ETWGPU_TRY(valueId(node.outputs.back(), format("output %zu of %s", o, node.name.c_str()), true));
      }
      graph_.nodes.push_back(std::move(node));
    }
    return {};
  }

  Status outputs() {
    for (size_t i = 0; i < count(source_.outputs()); ++i) {
      const fb::Output* o = source_.outputs()->Get(uint32_t(i));
      const std::string where = "output " + std::to_string(i);
      if ((o->value() < 0) == (o->expr() < 0)) return bad(where + " is neither one tensor nor one integer");
      GraphOutput out;
      if (o->value() >= 0) {
        ETWGPU_TRY(valueId(o->value(), where, false));
        out.value = o->value();
      } else {
        ETWGPU_TRY(expression(o->expr(), "the integer", where, out.expr));
      }
      graph_.outputs.push_back(out);
    }
    for (size_t i = 0; i < count(source_.mutations()); ++i) {
      const fb::Mutation* m = source_.mutations()->Get(uint32_t(i));
      const std::string where = "mutation " + std::to_string(i);
      ETWGPU_TRY(valueId(m->state(), where, false));
      ETWGPU_TRY(valueId(m->value(), where, false));
      graph_.mutations.push_back({m->state(), m->value()});
    }
    return {};
  }

  const fb::Graph& source_;
  size_t budget_;
  const NamedDataSizes& data_;
  const ImportOptions& options_;
  Graph graph_;
  std::vector<ExprId> exprs_;  // payload index → expression
};

}  // namespace

Result<Graph> importGraph(std::span<const uint8_t> payload, const NamedDataSizes& named_data,
                          const ImportOptions& options) {
  if (payload.size() < 8 || !fb::GraphBufferHasIdentifier(payload.data())) {
    return {Code::invalid_program, format("delegate payload: no EWGG identifier in its %zu bytes", payload.size())};
  }
  if (reinterpret_cast<uintptr_t>(payload.data()) % alignof(uint64_t) != 0) {
    std::vector<uint64_t> aligned(payload.size() / sizeof(uint64_t) + 1);
    std::memcpy(aligned.data(), payload.data(), payload.size());
    return importGraph({reinterpret_cast<const uint8_t*>(aligned.data()), payload.size()}, named_data, options);
  }
  // The version first: a newer file may well look damaged to this reader. A table takes at least 8 bytes with the
  // offset to it.
  flatbuffers::Verifier verifier(payload.data(), payload.size(), 16,
                                 uint32_t(std::min<size_t>(payload.size() / 8 + 16, 1 << 24)));
  const bool valid = fb::VerifyGraphBuffer(verifier);
  if (valid) {
    const fb::Graph* source = fb::GetGraph(payload.data());
    if (source->version() > kPayloadVersion) {
      return {Code::unsupported_version,
              format("payload version %u, this runtime reads up to %u", source->version(), kPayloadVersion)};
    }
    if (source->version() == 0) return {Code::invalid_program, "delegate payload: version 0"};
    ETWGPU_ASSIGN(Graph graph, Importer(*source, payload.size(), named_data, options).run());
    graph.identity = digestOf(payload);
    return graph;
  }
  return {Code::invalid_program, "delegate payload: the flatbuffer is damaged"};
}

uint64_t Graph::maxBytes(ValueId id) const {
  const Value& v = value(id);
  uint64_t bytes = dtypeSize(v.dtype);
  for (ExprId e : v.dims) {
    const int64_t n = exprs.bounds(e).max;
    if (__builtin_mul_overflow(bytes, uint64_t(n < 0 ? 0 : n), &bytes)) return UINT64_MAX;
  }
  return bytes;
}

}  // namespace etwgpu
