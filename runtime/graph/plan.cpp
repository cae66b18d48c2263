#include "runtime/graph/plan.h"

#include <algorithm>
#include <numeric>

#include "runtime/core/sort_by.h"

namespace etwgpu {
namespace {

/// A storage that needs memory and when: alive from the node `first` to the node `last`, both inclusive (-1: before the
/// first node).
struct Lifetime {
  ValueId value;
  int32_t first, last;
  uint64_t size;    // exact
  uint64_t padded;  // to the alignment
};

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

uint64_t roundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

template <class F>
void forEachTensor(const Node& node, F f) {
  for (const Arg& arg : node.args) {
    if (const auto* v = std::get_if<ValueId>(&arg)) {
      if (*v != kNoValue) f(*v);
    } else if (const auto* vs = std::get_if<std::vector<ValueId>>(&arg)) {
      for (ValueId v : *vs) {
        if (v != kNoValue) f(v);
      }
    }
  }
}

bool placed(const Graph& graph, ValueId storage) {
  const ValueKind kind = graph.value(storage).kind;
  return kind == ValueKind::intermediate || kind == ValueKind::input;
}

class Planner {
 public:
  Planner(const Graph& graph, const PlanOptions& options) : graph_(graph), options_(options) {}

  Status prepare(std::span<const ScratchUse> scratch) {
    slot_.assign(graph_.values.size(), -1);
    collect(scratch);
    for (Lifetime& l : lifetimes_) {
      l.size = options_.bytes ? options_.bytes(graph_, l.value) : graph_.maxBytes(l.value);
      if (l.size > options_.max_arena_bytes) {
        return {Code::limit_exceeded,
                format("the value %s takes %llu bytes at its upper bounds, but a buffer has at most %llu",
                       graph_.value(l.value).name.c_str(), (unsigned long long)l.size,
                       (unsigned long long)options_.max_arena_bytes)};
      }
      l.padded = roundUp(std::max<uint64_t>(l.size, 4), options_.alignment);
    }
    if (options_.separate_outputs) findConflicts();
    return {};
  }

  /// Greedy: values in the given order, each into the arena that grows least, there into the tightest hole.
  MemoryPlan place(const std::vector<int>& order) const {
    MemoryPlan plan;
    plan.placements.resize(graph_.values.size());
    std::vector<std::vector<int>> members;  // slots by arena
    std::vector<int> arena_of(lifetimes_.size(), -1);
    for (int slot : order) {
      const Lifetime& l = lifetimes_[size_t(slot)];
      int best = -1;
      uint64_t best_offset = 0, best_growth = UINT64_MAX, best_hole = UINT64_MAX;
      for (size_t a = 0; a < members.size(); ++a) {
        if (conflictsWith(slot, int(a), arena_of)) continue;
        uint64_t hole;
        const uint64_t offset = findOffset(l, members[a], plan, hole);
        const uint64_t end = offset + l.padded;
        if (end > std::max(options_.max_arena_bytes, l.padded)) continue;
        const uint64_t growth = end > plan.arena_bytes[a] ? end - plan.arena_bytes[a] : 0;
        if (growth < best_growth || (growth == best_growth && hole < best_hole)) {
          best = int(a), best_offset = offset, best_growth = growth, best_hole = hole;
        }
      }
      if (best < 0) {
        best = int(members.size()), best_offset = 0;
        members.emplace_back();
        plan.arena_bytes.push_back(0);
      }
      members[size_t(best)].push_back(slot);
      arena_of[size_t(slot)] = best;
      plan.placements[size_t(l.value)] = {best, best_offset, l.size};
      plan.arena_bytes[size_t(best)] = std::max(plan.arena_bytes[size_t(best)], best_offset + l.padded);
      plan.sum_of_values += l.padded;
    }
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId s = graph_.storage(ValueId(v));
      if (s != ValueId(v)) plan.placements[v] = plan.placements[size_t(s)];
    }
    return plan;
  }

  std::vector<int> bySize() const {
    std::vector<int> order = byTime();
    sortBy(order, [&](int slot) { return ~lifetimes_[size_t(slot)].padded; });
    return order;
  }
  std::vector<int> byTime() const {
    std::vector<int> order(lifetimes_.size());
    std::iota(order.begin(), order.end(), 0);
    sortBy(order, [&](int slot) { return uint64_t(lifetimes_[size_t(slot)].first + 1); });  // inputs: from -1 on
    return order;
  }

 private:
  void use(ValueId v, int32_t at) {
    const ValueId s = graph_.storage(v);
    if (!placed(graph_, s) || (size_t(s) < options_.elsewhere.size() && options_.elsewhere[size_t(s)])) return;
    int32_t& slot = slot_[size_t(s)];
    if (slot < 0) {
      slot = int32_t(lifetimes_.size());
      lifetimes_.push_back({s, at, at, 0, 0});
    }
    Lifetime& l = lifetimes_[size_t(slot)];
    l.last = std::max(l.last, at);
  }

  void collect(std::span<const ScratchUse> scratch) {
    for (const GraphInput& in : graph_.inputs) {
      if (in.value != kNoValue) use(in.value, -1);
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      forEachTensor(node, [&](ValueId v) { use(v, int32_t(i)); });
      for (ValueId v : node.outputs) {
        if (v != kNoValue) use(v, int32_t(i));
      }
    }
    for (const ScratchUse& s : scratch) use(s.value, s.node);
    const auto end = int32_t(graph_.nodes.size());
    for (const GraphOutput& out : graph_.outputs) {
      if (out.value != kNoValue) use(out.value, end);
    }
    for (const GraphMutation& m : graph_.mutations) use(m.value, end);
    scratch_.assign(scratch.begin(), scratch.end());
  }

  void findConflicts() {
    conflicts_.resize(lifetimes_.size());
    const auto connect = [&](ValueId written, ValueId read) {
      const int32_t a = slot_[size_t(graph_.storage(written))], b = slot_[size_t(graph_.storage(read))];
      if (a < 0 || b < 0 || a == b) return;
      conflicts_[size_t(a)].push_back(b);
      conflicts_[size_t(b)].push_back(a);
    };
    for (const Node& node : graph_.nodes) {
      forEachTensor(node, [&](ValueId in) {
        for (ValueId out : node.outputs) {
          if (out != kNoValue) connect(out, in);
        }
      });
    }
    for (const ScratchUse& s : scratch_) {
      forEachTensor(graph_.nodes[size_t(s.node)], [&](ValueId in) { connect(s.value, in); });
    }
  }

  bool conflictsWith(int slot, int arena, const std::vector<int>& arena_of) const {
    if (conflicts_.empty()) return false;
    const auto& list = conflicts_[size_t(slot)];
    return std::any_of(list.begin(), list.end(), [&](int other) { return arena_of[size_t(other)] == arena; });
  }

  /// The tightest hole between the arena's members that are alive at the same time; else after the last of them.
  uint64_t findOffset(const Lifetime& l, const std::vector<int>& members, const MemoryPlan& plan,
                      uint64_t& hole) const {
    std::vector<std::pair<uint64_t, uint64_t>> busy;
    for (int m : members) {
      const Lifetime& other = lifetimes_[size_t(m)];
      if (!overlap(l, other)) continue;
      const uint64_t offset = plan.placements[size_t(other.value)].offset;
      busy.emplace_back(offset, offset + other.padded);
    }
    sortPairs(busy);
    uint64_t end = 0, best = 0;
    hole = UINT64_MAX;
    for (const auto& [from, to] : busy) {
      if (from > end && from - end >= l.padded && from - end < hole) best = end, hole = from - end;
      end = std::max(end, to);
    }
    return hole == UINT64_MAX ? end : best;
  }

  const Graph& graph_;
  const PlanOptions& options_;
  std::vector<Lifetime> lifetimes_;
  std::vector<int32_t> slot_;  // by value: index into lifetimes_
  std::vector<std::vector<int32_t>> conflicts_;
  std::vector<ScratchUse> scratch_;
};

uint64_t total(const MemoryPlan& plan) {
  return std::accumulate(plan.arena_bytes.begin(), plan.arena_bytes.end(), uint64_t(0));
}

}  // namespace

Result<MemoryPlan> planMemory(const Graph& graph, std::span<const ScratchUse> scratch, const PlanOptions& options) {
  Planner planner(graph, options);
  ETWGPU_TRY(planner.prepare(scratch));
  // Neither order is always better; both are cheap.
  MemoryPlan by_size = planner.place(planner.bySize()), by_time = planner.place(planner.byTime());
  return total(by_time) < total(by_size) ? std::move(by_time) : std::move(by_size);
}

std::string describeLargest(const Graph& graph, const MemoryPlan& plan) {
  ValueId largest = kNoValue;
  uint64_t bytes = 0;
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    if (plan.placements[i].arena < 0 || plan.placements[i].size <= bytes) continue;
    largest = ValueId(i);
    bytes = plan.placements[i].size;
  }
  if (largest == kNoValue) return "";
  std::string what = "'" + graph.value(largest).name + "'";  // an input, or "<node>.scratch"
  for (const Node& node : graph.nodes) {
    for (ValueId output : node.outputs) {
      if (output == largest) what = "the result of " + node.op + (node.name.empty() ? "" : " '" + node.name + "'");
    }
  }
  return format("; the largest intermediate value, of %llu bytes, is %s", (unsigned long long)bytes, what.c_str());
}

}  // namespace etwgpu
