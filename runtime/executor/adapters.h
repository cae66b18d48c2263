// LoRA adapters of a program: low-rank terms of its linears, W x + scale · B (A x), that come in files of their own.
// The program is not changed; the same weights run with or without them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/executor/delegate.h"

namespace etwgpu {

/// An adapter as peft saves it: adapter_config.json as text, and adapter_model.safetensors.
struct AdapterFiles {
  std::string name;  // by which its scale is set; unique in a session
  std::string config;
  std::unique_ptr<DataSource> weights;
  float scale = 1;  // 1: as trained; 0: off
};

/// A linear's term: b · a is its change of the weight.
struct AdapterModule {
  std::string path;  // of the linear, "model.layers.0.self_attn.q_proj"
  int64_t rank = 0, inputs = 0, outputs = 0;
  std::vector<float> a;  // [rank, inputs]
  std::vector<float> b;  // [outputs, rank], times alpha / rank
  std::string weight;    // that it belongs to in the program; empty: not found yet
};
struct Adapter {
  std::string name;
  uint64_t digest = 0;  // of its tensors
  std::vector<AdapterModule> modules;
};

/// Largest rank of a module, and adapters of a session.
inline constexpr int64_t kMaxAdapterRank = 256;
inline constexpr size_t kMaxAdapters = 4;

/// Reads an adapter in one forward pass. invalid_argument: what it asks for is not supported (DoRA, biases, saved
/// modules, a rank beyond the limit), with the name of it; errors of readSafeTensors; invalid_program for shapes that
/// do not belong together; limit_exceeded above `memory_cap`.
Task<Result<Adapter>> readAdapter(AdapterFiles& files, uint64_t memory_cap);

class AdapterSet {
 public:
  /// At most kMaxAdapters, each with a name of its own.
  Status add(Adapter adapter, float scale);
  const std::vector<Adapter>& adapters() const { return adapters_; }
  const std::vector<float>& scales() const { return scales_; }
  /// invalid_argument for a name that is none, or a scale that is not finite.
  Status setScale(std::string_view name, float scale);

  /// Notes the modules' terms at the weights of a graph as it was imported. A module belongs to the weight whose name,
  /// without ".weight", is its path, or the path without some of its first components (wrappers of training). A weight
  /// that something else reads as well (a tied embedding) stays as it is there. invalid_argument: other shapes, two
  /// modules for one weight.
  Status attach(Graph& graph);
  /// After the passes: makes LowRank of the terms. unsupported_operator where a weight with terms feeds an operator
  /// that knows none.
  Status pack(Graph& graph);
  /// Every module has found its weight in one of the graphs, else invalid_argument that names those that have not.
  Status allFound() const;
  /// What pack() has made, by key.
  const NamedData* find(std::string_view key) const;
  /// Lets go of the tensors; `packed`: of what was made of them as well, since devices hold it. Delegates can be made
  /// again.
  void release(bool packed);

 private:
  ValueId store(Graph& graph, std::string name, std::vector<ExprId> dims,
                const std::function<void(std::vector<float>&)>& fill);
  void packValue(Graph& graph, ValueId weight);

  std::vector<Adapter> adapters_;
  std::vector<float> scales_;
  struct Buffer {
    std::vector<float> floats;
    std::unique_ptr<DataSource> source;
    NamedData data;
  };
  std::map<std::string, Buffer, std::less<>> packed_;
};

/// importGraph, the program's adapters, runPasses.
Result<Graph> loadGraph(std::span<const uint8_t> payload, const NamedDataMap& data, std::string_view disabled_passes,
                        const ImportOptions& options = {});

}  // namespace etwgpu
