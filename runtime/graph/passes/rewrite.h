// What passes share: reading arguments, who produces and uses a value, replacing nodes.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/graph/graph.h"

namespace etwgpu {

// ---- arguments -----------------------------------------------------------------------------------------------------
/// kNoValue where the argument is absent or None.
ValueId tensorArg(const Node& node, size_t i);
/// A constant integer (also written as bool or integral double); nullopt for anything else.
std::optional<int64_t> intArg(const Graph& graph, const Node& node, size_t i);
/// A constant number.
std::optional<double> numberArg(const Graph& graph, const Node& node, size_t i);
/// An integer expression, constant or not.
std::optional<ExprId> exprArg(const Graph& graph, const Node& node, size_t i);
bool isNoneArg(const Node& node, size_t i);
bool flagArg(const Node& node, size_t i);
std::string_view textArg(const Node& node, size_t i);
/// Calls f(value) for every tensor argument that isn't None.
template <class F>
void forEachTensorArg(const Node& node, F f) {
  for (const Arg& arg : node.args) {
    if (const auto* v = std::get_if<ValueId>(&arg)) {
      if (*v != kNoValue) f(*v);
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
      for (ValueId x : *list) {
        if (x != kNoValue) f(x);
      }
    }
  }
}
/// A dimension argument counted from the end if negative.
int64_t normalizedDim(int64_t dim, size_t rank);

/// What torch takes for an RMS norm's eps of None: that of float32.
inline constexpr double kDefaultRmsEps = 1.1920928955078125e-07;

// ---- values --------------------------------------------------------------------------------------------------------
/// A new view of the bytes of `of` with these dimensions.
ValueId newAlias(Graph& graph, ValueId of, std::string name, std::vector<ExprId> dims);
ValueId newIntermediate(Graph& graph, DType dtype, std::string name, std::vector<ExprId> dims);
/// The states that a node writes in place.
std::vector<ValueId> writtenStates(const Node& node);
/// Such a node must not be moved without a look at who writes the state.
bool readsState(const Graph& graph, const Node& node);
bool sameDims(const Graph& graph, ValueId a, ValueId b);

/// Producers and users by storage: a value and its aliases count as one. Valid until the graph is changed.
class GraphIndex {
 public:
  explicit GraphIndex(const Graph& graph);
  /// The node that writes the bytes of v, or -1 (inputs, constants, states).
  int32_t producer(ValueId v) const { return producer_[size_t(graph_.storage(v))]; }
  /// The producing node if it is this operator and v has the dimensions in which it was produced; else nullptr.
  const Node* produced(ValueId v, std::string_view op) const;
  /// The nodes that read v, in order, one entry a use.
  const std::vector<int32_t>& users(ValueId v) const { return users_[size_t(graph_.storage(v))]; }
  /// Is v an output of the graph or the new content of a state?
  bool leavesGraph(ValueId v) const { return leaves_[size_t(graph_.storage(v))]; }
  bool usedOnce(ValueId v) const { return users(v).size() == 1 && !leavesGraph(v); }

 private:
  const Graph& graph_;
  std::vector<int32_t> producer_;
  std::vector<std::vector<int32_t>> users_;
  std::vector<bool> leaves_;
};

/// Collects changes of the list of nodes and applies them at once, so that indices stay valid during a pass.
class NodeEditor {
 public:
  explicit NodeEditor(Graph& graph) : graph_(graph), dead_(graph.nodes.size(), false) {}
  void erase(int32_t node) { dead_[size_t(node)] = true; }
  bool erased(int32_t node) const { return dead_[size_t(node)]; }
  /// The new node takes its place directly before (the place of) `node`.
  void insertBefore(int32_t node, Node added) { added_[node].push_back(std::move(added)); }
  void replace(int32_t node, Node by) {
    insertBefore(node, std::move(by));
    erase(node);
  }
  void apply();

 private:
  Graph& graph_;
  std::vector<bool> dead_;
  std::map<int32_t, std::vector<Node>> added_;
};
/// Tries `rewrite` at every node with one output that nothing has erased. It may erase and replace nodes, at `at` and
/// before it, and says whether it did.
using Rewrite = bool (*)(Graph&, const GraphIndex&, NodeEditor&, int32_t at);
void applyToAll(Graph& graph, Rewrite rewrite);

/// Removes nodes whose results nobody uses.
void removeDeadNodes(Graph& graph);

/// Removes values that nothing refers to (weights that were joined, results that were fused away), so that executors
/// may load every constant there is. Renumbers values; inputs and states stay.
void removeUnusedValues(Graph& graph);

// ---- weights -------------------------------------------------------------------------------------------------------
/// One constant of the rows of all of them, or kNoValue where they cannot be joined: another dtype, scheme or K, rows
/// that are no multiple of 8 (R4 blocks of 4, padded to 8), literals, or another user of one of them (it would be
/// stored twice).
ValueId concatenateRows(Graph& graph, const GraphIndex& index, const std::vector<ValueId>& constants);

}  // namespace etwgpu
