#include "runtime/executor/adapters.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/core/digest.h"
#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/rewrite.h"
#include "runtime/program/sources.h"

namespace etwgpu {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kLinear = "aten.linear.default";

Status refuse(const std::string& adapter, std::string message) {
  return {Code::invalid_argument, "adapter '" + adapter + "': " + std::move(message)};
}

/// Matrices that some linear multiplies with, by their name without ".weight".
std::map<std::string, ValueId, std::less<>> linearWeights(const Graph& g) {
  std::map<std::string, ValueId, std::less<>> weights;
  for (const Node& n : g.nodes) {
    const ValueId w = n.op == kLinear ? tensorArg(n, 1) : kNoValue;
    if (w == kNoValue || g.value(w).kind != ValueKind::constant || g.value(w).dims.size() != 2) continue;
    const std::string& name = g.value(w).name;
    if (name.ends_with(kWeight) && g.value(w).dtype == DType::f32)
      weights.emplace(name.substr(0, name.size() - kWeight.size()), w);
  }
  return weights;
}

/// The weight for the linears alone: of one that others read, too, a second value of the same bytes.
ValueId ofLinears(Graph& g, ValueId weight) {
  std::vector<Node*> linears;
  bool others = false;
  for (Node& n : g.nodes) {
    const bool linear = n.op == kLinear && tensorArg(n, 1) == weight;
    if (linear) linears.push_back(&n);
    size_t uses = 0;
    forEachTensorArg(n, [&](ValueId v) { uses += g.storage(v) == weight; });
    others |= uses > size_t(linear);
  }
  if (!others) return weight;
  const ValueId own = g.newValue(g.value(weight));
  for (Node* n : linears) n->args[1] = own;
  return own;
}

bool knowsTerms(const Node& n, size_t arg) {
  return (n.op == kLinear && arg == 1) || (n.op == kFusedLinear && arg == kLinearWeight) ||
         (n.op == kQkvCacheWrite && arg == kQkvWeight) || (n.op == kAttentionLinear && arg == kAttentionLinearWeight);
}

}  // namespace

Status AdapterSet::add(Adapter adapter, float scale) {
  if (adapters_.size() == kMaxAdapters)
    return refuse(adapter.name, format("%zu adapters are the most that a session takes", kMaxAdapters));
  for (const Adapter& other : adapters_)
    if (other.name == adapter.name) return refuse(adapter.name, "another adapter has this name");
  if (!std::isfinite(scale)) return refuse(adapter.name, "its scale is not finite");
  adapters_.push_back(std::move(adapter));
  scales_.push_back(scale);
  return {};
}

Status AdapterSet::setScale(std::string_view name, float scale) {
  for (size_t i = 0; i < adapters_.size(); ++i) {
    if (adapters_[i].name != name) continue;
    if (!std::isfinite(scale)) return refuse(adapters_[i].name, "its scale is not finite");
    scales_[i] = scale;
    return {};
  }
  std::string known;
  for (const Adapter& a : adapters_) known += (known.empty() ? "" : ", ") + a.name;
  return refuse(std::string(name), known.empty() ? "the session has no adapters" : "known are " + known);
}

Status AdapterSet::attach(Graph& graph) {
  const auto weights = linearWeights(graph);
  std::map<ValueId, ValueId> own;  // weight → that of the linears alone
  for (size_t a = 0; a < adapters_.size(); ++a) {
    std::map<std::string, std::string> taken;
    for (size_t m = 0; m < adapters_[a].modules.size(); ++m) {
      AdapterModule& module = adapters_[a].modules[m];
      auto found = weights.end();
      for (std::string_view path = module.path; found == weights.end() && !path.empty();) {
        found = weights.find(path);
        const size_t dot = path.find('.');
        path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
      }
      if (found == weights.end()) continue;
      const std::vector<ExprId> dims = graph.value(found->second).dims;
      const int64_t n = graph.exprs.constantValue(dims[0]), k = graph.exprs.constantValue(dims[1]);
      if (n != module.outputs || k != module.inputs) {
        return refuse(adapters_[a].name,
                      format("%s is of a linear of %lld x %lld, but in this program it has %lld x %lld: it belongs to "
                             "another model",
                             module.path.c_str(), (long long)module.outputs, (long long)module.inputs, (long long)n,
                             (long long)k));
      }
      if (const auto [other, fresh] = taken.emplace(found->first, module.path); !fresh) {
        return refuse(adapters_[a].name,
                      other->second + " and " + module.path + " are both of the program's " + found->first);
      }
      module.weight = found->first;
      auto [it, fresh] = own.emplace(found->second, kNoValue);
      if (fresh) it->second = ofLinears(graph, found->second);
      graph.value(it->second).terms.push_back({0, n, int32_t(a), int32_t(m)});
    }
    Digest digest;
    for (const uint64_t part : {graph.identity, adapters_[a].digest})
      digest.add({reinterpret_cast<const uint8_t*>(&part), sizeof(part)});
    graph.identity = digest.value();
  }
  return {};
}

/// The constant of that name, made of what `fill` writes unless it is there: two methods may join the same matrices,
/// and a delegate may be made again when the tensors are gone. Names tell what is in it.
ValueId AdapterSet::store(Graph& graph, std::string name, std::vector<ExprId> dims,
                          const std::function<void(std::vector<float>&)>& fill) {
  const std::string key = "adapters:" + name;
  auto [it, fresh] = packed_.try_emplace(key);
  Buffer& buffer = it->second;
  if (fresh) {
    buffer.floats.resize(size_t(graph.exprs.constantValue(dims[0]) * graph.exprs.constantValue(dims[1])));
    fill(buffer.floats);
    const auto* bytes = reinterpret_cast<const uint8_t*>(buffer.floats.data());
    buffer.source = makeMemoryView(key, {bytes, buffer.floats.size() * sizeof(float)});
    buffer.data = {buffer.source.get(), 0, buffer.floats.size() * sizeof(float), true};
  }
  Value v;
  v.name = std::move(name);
  v.dims = std::move(dims);
  v.kind = ValueKind::constant;
  v.pieces.push_back({key, 0, buffer.data.size});
  return graph.newValue(std::move(v));
}

void AdapterSet::packValue(Graph& graph, ValueId weight) {
  const Value value = graph.value(weight);
  const int64_t n = graph.exprs.constantValue(value.dims[0]), k = graph.exprs.constantValue(value.dims[1]);
  auto low_rank = std::make_shared<LowRank>();
  std::set<int64_t> firsts;
  std::set<int32_t> adapters;
  for (const LowRankTerm& t : value.terms) {
    firsts.insert(t.first_row);
    adapters.insert(t.adapter);
    const int64_t rank = adapters_[size_t(t.adapter)].modules[size_t(t.module)].rank;
    low_rank->rank = std::max(low_rank->rank, (rank + 3) / 4 * 4);
  }
  low_rank->adapters.assign(adapters.begin(), adapters.end());
  low_rank->first_rows.assign(firsts.begin(), firsts.end());
  const auto indexOf = [](const auto& list, auto item) {
    return int64_t(std::find(list.begin(), list.end(), item) - list.begin());
  };
  const int64_t columns = int64_t(adapters.size()) * low_rank->rank;
  const auto forEachTerm = [&](const auto& f) {  // of which module, from which row of a and column of b on
    for (const LowRankTerm& t : value.terms) {
      const int64_t part = indexOf(low_rank->first_rows, t.first_row);
      const int64_t column = indexOf(low_rank->adapters, t.adapter) * low_rank->rank;
      f(t, adapters_[size_t(t.adapter)].modules[size_t(t.module)], part * columns + column, column);
    }
  };
  const auto fillA = [&](std::vector<float>& a) {
    forEachTerm([&](const LowRankTerm&, const AdapterModule& m, int64_t row, int64_t) {
      std::copy(m.a.begin(), m.a.end(), a.begin() + row * k);
    });
  };
  const auto fillB = [&](std::vector<float>& b) {
    forEachTerm([&](const LowRankTerm& t, const AdapterModule& m, int64_t, int64_t column) {
      for (int64_t row = 0; row < t.rows; ++row)
        for (int64_t c = 0; c < m.rank; ++c)
          b[size_t((column + c) * n + t.first_row + row)] = m.b[size_t(row * m.rank + c)];
    });
  };
  low_rank->a = store(graph, value.name + ".lora_a", {graph.exprs.constant(low_rank->width()), value.dims[1]}, fillA);
  low_rank->b = store(graph, value.name + ".lora_b", {graph.exprs.constant(columns), value.dims[0]}, fillB);
  low_rank->first_rows[0] = 0;  // rows before the first part have zeros in b
  graph.value(weight).low_rank = std::move(low_rank);
}

Status AdapterSet::pack(Graph& graph) {
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.args.size(); ++i) {
      const auto* v = std::get_if<ValueId>(&node.args[i]);
      if (!v || *v == kNoValue || graph.value(graph.storage(*v)).terms.empty()) continue;
      if (graph.storage(*v) != *v || !knowsTerms(node, i))
        return {Code::unsupported_operator,
                node.op + " ('" + node.name + "') cannot run with an adapter of " + graph.value(*v).name};
    }
  }
  const size_t values = graph.values.size();
  for (size_t i = 0; i < values; ++i)
    if (!graph.values[i].terms.empty()) packValue(graph, ValueId(i));
  return {};
}

Status AdapterSet::allFound() const {
  for (const Adapter& adapter : adapters_) {
    std::string missing;
    size_t count = 0;
    for (const AdapterModule& m : adapter.modules) {
      if (!m.weight.empty()) continue;
      if (++count <= 3) missing += (missing.empty() ? "" : ", ") + m.path;
    }
    if (count == 0) continue;
    return refuse(adapter.name, format("%zu of its %zu linears are not in this program: %s%s", count,
                                       adapter.modules.size(), missing.c_str(), count > 3 ? " …" : ""));
  }
  return {};
}

const NamedData* AdapterSet::find(std::string_view key) const {
  const auto it = packed_.find(key);
  return it == packed_.end() ? nullptr : &it->second.data;
}

void AdapterSet::release(bool packed) {
  for (Adapter& adapter : adapters_) {
    for (AdapterModule& m : adapter.modules) {
      m.a = {};
      m.b = {};
    }
  }
  for (auto& [key, buffer] : packed_) {
    if (!packed) continue;
    buffer.floats = {};
    buffer.source.reset();
    buffer.data.source = nullptr;
  }
}

const NamedData* NamedDataMap::find(std::string_view key) const {
  const auto it = entries.find(key);
  if (it != entries.end()) return &it->second;
  return adapters ? adapters->find(key) : nullptr;
}

Result<Graph> loadGraph(std::span<const uint8_t> payload, const NamedDataMap& data, std::string_view disabled_passes,
                        const ImportOptions& options) {
  ETWGPU_ASSIGN(Graph graph, importGraph(payload, data, options));
  if (data.adapters) ETWGPU_TRY(data.adapters->attach(graph));
  ETWGPU_TRY(runPasses(graph, disabled_passes));
  if (data.adapters) ETWGPU_TRY(data.adapters->pack(graph));
  return graph;
}

}  // namespace etwgpu
