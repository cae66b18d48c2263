// The graph IR: values, nodes and integer expressions. Imported from a delegate payload, rewritten by passes, then
// planned and run by an executor. Knows nothing of devices.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/core/dtype.h"
#include "runtime/core/exprs.h"
#include "runtime/core/status.h"
#include "runtime/core/tensor.h"

namespace etwgpu {

using ValueId = int32_t;
constexpr ValueId kNoValue = -1;

enum class ValueKind : uint8_t { intermediate, input, constant, state };

/// A constant's bytes are one or more pieces of named data, one after another (several after the fusion of weights:
/// q, k, v or gate, up, concatenated in N). Quantised constants have their words and their scales each contiguous over
/// all pieces: first all words, then, at the next multiple of 256, all constants.
struct ConstantPiece {
  std::string key;      // named data
  uint64_t offset = 0;  // in the named data
  uint64_t size = 0;    // bytes
  friend bool operator==(const ConstantPiece&, const ConstantPiece&) = default;
};

/// A term of a constant matrix: on its rows [first_row, first_row + rows) it is W + scale · B · A. Which A and B: the
/// adapters' business (runtime/executor/adapters.h); passes only keep the terms with the rows.
struct LowRankTerm {
  int64_t first_row = 0, rows = 0;
  int32_t adapter = -1, module = -1;
};

/// All terms of a constant matrix W [N, K] as kernels take them. N lies in parts (the matrices that W was joined of),
/// each with an A of its own. With t = A · x,
///   y[n] = (W · x)[n] + Σ_i scale_i · Σ_c b[i, c, n] · t[part(n), i, c]
struct LowRank {
  ValueId a = kNoValue;             // f32 [parts · adapters · rank, K]
  ValueId b = kNoValue;             // f32 [adapters · rank, N]
  std::vector<int64_t> first_rows;  // of the parts, ascending, from 0
  int64_t rank = 0;                 // of every adapter, padded with zeros to a multiple of 4
  std::vector<int32_t> adapters;    // whose scale counts
  int64_t width() const { return int64_t(first_rows.size() * adapters.size()) * rank; }  // of t
};

struct Value {
  std::string name;
  DType dtype = DType::f32;
  std::vector<ExprId> dims;
  ValueKind kind = ValueKind::intermediate;
  // constants and states with initial values:
  std::vector<ConstantPiece> pieces;            // words of a quantised weight, or all bytes of a plain constant
  std::vector<ConstantPiece> constants_pieces;  // scales (and minima) of a quantised weight
  Quantization quantization;                    // quantization.constants_offset is in the layout of this value
  // A small constant known at import or made by a pass (index tables, scalars): its bytes, instead of pieces.
  std::vector<uint8_t> literal;
  std::vector<LowRankTerm> terms;           // of a constant matrix
  std::shared_ptr<const LowRank> low_rank;  // made of them after the passes
  /// An intermediate that is the same bytes as another value (reshape, unsqueeze): no memory of its own.
  ValueId alias_of = kNoValue;
};

struct IntArg {
  ExprId expr;
  friend bool operator==(IntArg, IntArg) = default;
};
/// none, tensor, tensors (kNoValue = None), integer, integers, double(s), bool(s), string, dtype.
using Arg = std::variant<std::monostate, ValueId, std::vector<ValueId>, IntArg, std::vector<IntArg>, double,
                         std::vector<double>, bool, std::vector<bool>, std::string, DType>;

// ---- generated pointwise kernels ---------------------------------------------------------------------------------
enum class PointwiseOp : uint8_t {
  load,      // imm_index = input slot
  constant,  // imm
  add,
  sub,
  mul,
  div,
  pow,
  minimum,
  maximum,  // a, b
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  logical_and,
  logical_or,  // a, b
  where,       // a ? b : c
  neg,
  abs,
  exp,
  log,
  sqrt,
  rsqrt,
  reciprocal,
  sin,
  cos,
  tanh,
  erf,
  sigmoid,
  silu,
  gelu,
  gelu_tanh,
  relu,
  hardswish,
  hardsigmoid,
  floor,
  logical_not,  // a
  leaky_relu,   // a, imm = slope
  elu,          // a, imm = alpha
  clamp,        // a, imm = min, imm2 = max (infinities where absent)
  cast,         // a, to dtype
  iota,         // position along out dim imm_index (for arange)
};
struct PointwiseInstruction {
  PointwiseOp op;
  int32_t a = -1, b = -1, c = -1;  // earlier instructions
  int32_t imm_index = 0;
  double imm = 0, imm2 = 0;
  DType dtype = DType::f32;  // of the result; bool results of comparisons are DType::boolean
};
/// An input is read at offset + sum(index[d] * strides[d]), in elements: broadcasting (stride 0), permutation, slices
/// and selects are strides. Negative strides occur for flips.
struct PointwiseInput {
  std::vector<ExprId> strides;  // one per dimension of the output
  ExprId offset;
};
struct PointwiseProgram {
  std::vector<PointwiseInput> inputs;      // slot i reads the node's argument i
  std::vector<PointwiseInstruction> code;  // the last one is the result
};

struct Node {
  std::string op;  // "aten.linear.default", or a fused operator "etwgpu.…" (see fused_ops.h)
  std::vector<Arg> args;
  std::vector<ValueId> outputs;
  std::string name;                                   // of the exported node(s), for messages and profiles
  std::shared_ptr<const PointwiseProgram> pointwise;  // only "etwgpu.pointwise"
};

struct GraphInput {
  ValueId value = kNoValue;  // kNoValue: an integer input
};
struct GraphOutput {
  ValueId value = kNoValue;
  ExprId expr;  // an integer output
};
struct SymbolBinding {
  int32_t input = -1;  // index into Graph::inputs
  int32_t dim = -1;    // -1: the integer input itself
};
/// After the graph has run, the state holds the bytes of the value. Passes turn them into in-place operators; the rest
/// is copied.
struct GraphMutation {
  ValueId state, value;
};

struct Graph {
  Exprs exprs;
  std::vector<SymbolBinding> symbols;  // one per symbol of exprs
  std::vector<Value> values;
  std::vector<Node> nodes;  // in order of execution
  std::vector<GraphInput> inputs;
  std::vector<GraphOutput> outputs;
  std::vector<GraphMutation> mutations;
  std::string exporter;
  const char* method = "";  // of the program, for messages
  /// The largest size of an input by the payload, where ImportOptions::max_size has bounded it; else 0.
  int64_t exported_size = 0;
  /// Digest of the payload, which has a hash of the weights in it: tells models apart.
  uint64_t identity = 0;

  Value& value(ValueId id) { return values[size_t(id)]; }
  const Value& value(ValueId id) const { return values[size_t(id)]; }
  /// The value whose memory a value lives in: follows alias_of.
  ValueId storage(ValueId id) const {
    while (value(id).alias_of != kNoValue) id = value(id).alias_of;
    return id;
  }
  ValueId newValue(Value v) {
    values.push_back(std::move(v));
    return ValueId(values.size() - 1);
  }
  /// Bytes at the upper bounds of the dimensions, on the host representation (i64 8 bytes, bool 1).
  uint64_t maxBytes(ValueId id) const;
};

/// What the graph says about itself, one node a line: for tests, `inspect` and bug reports.
std::string toText(const Graph& graph);

/// Checks every index, the order of definition before use, ranks and dtypes. Run after import and, in tests, after
/// every pass.
Status verify(const Graph& graph);

/// Reads and verifies a delegate payload (flatbuffer `EWGG`). `size_of` gives the byte size of named data, or nullopt
/// if the key is unknown.
struct NamedDataSizes {
  virtual ~NamedDataSizes() = default;
  virtual std::optional<uint64_t> size(std::string_view key) const = 0;
};
struct ImportOptions {
  /// > 0: sizes of inputs are bounded by it, where the payload allows more.
  int64_t max_size = 0;
  /// keepAllRows.
  bool all_rows = false;
  const char* method = "";  // Graph::method: lives on
};
Result<Graph> importGraph(std::span<const uint8_t> payload, const NamedDataSizes& named_data,
                          const ImportOptions& options = {});
/// Makes an output [1, V], computed from the last position of an x [1, S, H], [S, V]: of all positions. An output of
/// three dimensions stays. unsupported_operator with the reason for any other graph. Before the passes.
Status keepAllRows(Graph& graph);

/// Runs the pass pipeline (see passes.h). `disabled`: names of passes to leave out, comma separated, as in the
/// environment variable ETWGPU_DISABLE_PASSES.
Status runPasses(Graph& graph, std::string_view disabled = {});

}  // namespace etwgpu
