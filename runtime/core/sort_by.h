// Sorting by a number. std::stable_sort is instantiated for every type and comparison, 2 KB of code each; this is once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace etwgpu {

void sortPairs(std::vector<std::pair<uint64_t, uint64_t>>& pairs);

/// In ascending order of key(item), a uint64_t; items of one key stay as they come.
template <class T, class Key>
void sortBy(std::vector<T>& items, Key key) {
  std::vector<std::pair<uint64_t, uint64_t>> order;
  order.reserve(items.size());
  for (const T& item : items) order.emplace_back(key(item), order.size());
  sortPairs(order);
  std::vector<T> sorted;
  sorted.reserve(items.size());
  for (const auto& [_, i] : order) sorted.push_back(std::move(items[size_t(i)]));
  items = std::move(sorted);
}

}  // namespace etwgpu
