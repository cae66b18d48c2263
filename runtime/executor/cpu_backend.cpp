#include "runtime/executor/cpu_backend.h"

#include <cstdlib>
#include <cstring>

namespace etwgpu {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kConstantsAlignment = 256;  // of the plane of constants behind the words

uint64_t alignUp(uint64_t n, uint64_t a) { return (n + a - 1) / a * a; }

struct Located {
  DataSource* source;
  uint64_t offset, size;
};

/// Where the pieces lie, after checking them against the named data.
Result<std::vector<Located>> locate(const Value& value, const std::vector<ConstantPiece>& pieces, uint64_t expected,
                                    const NamedDataMap& data) {
  std::vector<Located> located;
  uint64_t total = 0;
  for (const ConstantPiece& p : pieces) {
    const NamedData* found = data.find(p.key);
    if (!found) return Status(Code::data_missing, "weight '" + value.name + "': no data named '" + p.key + "'");
    const NamedData& n = *found;
    if (p.offset > n.size || p.size > n.size - p.offset)
      return Status(Code::invalid_program, "weight '" + value.name + "' reaches past the end of data '" + p.key + "'");
    located.push_back({n.source, n.offset + p.offset, p.size});
    total += p.size;
  }
  if (total < expected)
    return Status(Code::invalid_program,
                  format("weight '%s' has %llu bytes of data, its type needs %llu", value.name.c_str(),
                         (unsigned long long)total, (unsigned long long)expected));
  return located;
}

/// The pieces as one range of addressable memory, or nullptr.
const uint8_t* inPlace(const std::vector<Located>& pieces, uint64_t alignment) {
  if (pieces.empty() || !pieces[0].source || !pieces[0].source->data()) return nullptr;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].source != pieces[0].source) return nullptr;
    if (i > 0 && pieces[i].offset != pieces[i - 1].offset + pieces[i - 1].size) return nullptr;
    const uint64_t size = pieces[i].source->size();
    if (pieces[i].offset > size || pieces[i].size > size - pieces[i].offset) return nullptr;
  }
  const uint8_t* p = pieces[0].source->data() + pieces[0].offset;
  return reinterpret_cast<uintptr_t>(p) % alignment == 0 ? p : nullptr;
}

uint64_t sum(const std::vector<Located>& pieces) {
  uint64_t total = 0;
  for (const Located& p : pieces) total += p.size;
  return total;
}

std::string identity(const Value& value) {
  std::string key;
  for (const auto* list : {&value.pieces, &value.constants_pieces}) {
    for (const ConstantPiece& p : *list)
      key += p.key + format(":%llu+%llu;", (unsigned long long)p.offset, (unsigned long long)p.size);
    key += '|';
  }
  return key;
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const LoadOptions& options) : shared_(std::make_shared<CpuShared>(options)) {}
  Result<std::unique_ptr<Delegate>> createDelegate(std::span<const uint8_t> payload, const NamedDataMap& data,
                                                   const DelegateOptions& options) override {
    return makeCpuDelegate(shared_, payload, data, options);
  }
  StateSet& states() override { return shared_->states; }
  Task<Result<std::shared_ptr<StateSet>>> makeStates() override {
    ETWGPU_CO_ASSIGN(auto made, shared_->makeStates(shared_));
    co_return std::shared_ptr<StateSet>(std::move(made));
  }
  MemoryReport memory() const override { return shared_->memory; }

 private:
  std::shared_ptr<CpuShared> shared_;
};

}  // namespace

CpuBuffer::~CpuBuffer() { free(); }

void CpuBuffer::free() {
  std::free(data_);
  if (counted_) *counted_ -= size_;
  data_ = nullptr;
  size_ = 0;
  counted_ = nullptr;
}

Status CpuBuffer::allocate(uint64_t bytes, uint64_t budget, uint64_t& counted, const std::string& what) {
  free();
  if (bytes > budget)
    return Status(Code::limit_exceeded, format("%s: %llu bytes exceed the %llu that the memory cap leaves",
                                               what.c_str(), (unsigned long long)bytes, (unsigned long long)budget));
  const uint64_t padded = alignUp(bytes, kAlignment) + kAlignment;
  if (padded <= SIZE_MAX) data_ = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, size_t(padded)));
  if (!data_)
    return Status(Code::out_of_memory, format("%s: no memory for %llu bytes", what.c_str(), (unsigned long long)bytes));
  std::memset(data_ + bytes, 0, size_t(padded - bytes));
  size_ = bytes;
  counted_ = &counted;
  counted += bytes;
  return {};
}

void CpuState::reset() {
  if (initial) {
    std::memcpy(buffer.data(), initial->data, size_t(buffer.size()));
  } else {
    std::memset(buffer.data(), 0, size_t(buffer.size()));
  }
  initialised = true;
}

Status CpuState::widen(uint64_t budget, uint64_t& counted) {
  if (!half) return {};
  const std::vector<uint8_t> kept(buffer.data(), buffer.data() + buffer.size());
  ETWGPU_TRY(buffer.allocate(bytes, budget, counted, "a state"));
  for (uint64_t i = 0; i < bytes / sizeof(float); ++i) {
    uint16_t bits;
    std::memcpy(&bits, kept.data() + i * sizeof(bits), sizeof(bits));
    const float value = halfToFloat(bits);
    std::memcpy(buffer.data() + i * sizeof(value), &value, sizeof(value));
  }
  half = false;
  return {};
}

CpuShared::CpuShared(const LoadOptions& o) : options(o), pool(makeThreadPool(o.threads)) {}

uint64_t CpuShared::budget() const {
  const uint64_t used = memory.weights - in_place_ + memory.state + memory.arena + memory.other;
  return options.memory_cap > used ? options.memory_cap - used : 0;
}

Result<std::shared_ptr<CpuWeight>> CpuShared::weight(const Value& value, uint64_t bytes, uint64_t constant_bytes,
                                                     const NamedDataMap& data) {
  const std::string key = identity(value);
  if (const auto it = weights_.find(key); it != weights_.end()) return it->second;
  ETWGPU_ASSIGN(const auto words, locate(value, value.pieces, bytes, data));
  ETWGPU_ASSIGN(const auto constants, locate(value, value.constants_pieces, constant_bytes, data));
  const bool quantised = value.quantization.bits != 0;
  const uint64_t alignment = quantised ? 4 : dtypeSize(value.dtype);
  auto weight = std::make_shared<CpuWeight>();
  weight->data = inPlace(words, alignment);
  weight->constants = quantised ? inPlace(constants, 4) : nullptr;
  if (weight->data && (!quantised || weight->constants)) {
    in_place_ += sum(words) + sum(constants);
    memory.weights += sum(words) + sum(constants);
  } else {
    const uint64_t constants_at = quantised ? alignUp(sum(words), kConstantsAlignment) : sum(words);
    ETWGPU_TRY(
        weight->owned.allocate(constants_at + sum(constants), budget(), memory.weights, "weight '" + value.name + "'"));
    uint64_t at = 0;
    const auto request = [&](const std::vector<Located>& pieces) {
      for (const Located& p : pieces) {
        ReadRequest r;
        r.offset = p.offset;
        r.size = p.size;
        r.host = weight->owned.data() + at;
        if (p.size) weight->reads.emplace_back(p.source, r);
        at += p.size;
      }
    };
    request(words);
    std::memset(weight->owned.data() + at, 0, size_t(constants_at - at));
    at = constants_at;
    request(constants);
    weight->data = weight->owned.data();
    weight->constants = quantised ? weight->owned.data() + constants_at : nullptr;
  }
  weights_.emplace(key, weight);
  return weight;
}

Result<std::shared_ptr<CpuState>> CpuShared::state(const Value& value, uint64_t bytes, bool may_be_half,
                                                   const NamedDataMap& data) {
  if (const auto it = states.entries.find(value.name); it != states.entries.end()) {
    if (it->second->bytes != bytes)
      return Status(Code::invalid_program, "state '" + value.name + "' has different sizes in two methods");
    if (!may_be_half) ETWGPU_TRY(widen(*it->second));
    return it->second;
  }
  const bool wanted = options.cache == CacheType::automatic ? options.activations != Activations::exact
                                                            : options.cache == CacheType::f16;
  auto state = std::make_shared<CpuState>();
  state->bytes = bytes;
  state->half = may_be_half && wanted;
  ETWGPU_TRY(
      state->buffer.allocate(state->half ? bytes / 2 : bytes, budget(), memory.state, "state '" + value.name + "'"));
  if (!value.pieces.empty()) {
    ETWGPU_ASSIGN(state->initial, weight(value, bytes, 0, data));
  }
  states.entries.emplace(value.name, state);
  return state;
}

Status CpuShared::growArena(uint64_t bytes) {
  if (arena_.data() && arena_.size() >= bytes) return {};
  arena_.free();
  return arena_.allocate(bytes, budget(), memory.arena, "intermediate values");
}

void* CpuShared::scratch(size_t bytes) {
  const uint64_t need = alignUp(bytes, kAlignment);
  if (scratch_.empty() || scratch_used_ + need > scratch_.back()->size()) {
    auto chunk = std::make_unique<CpuBuffer>();
    if (!chunk->allocate(std::max<uint64_t>(need, 65536), budget(), memory.other, "scratch").ok()) return nullptr;
    scratch_.push_back(std::move(chunk));
    scratch_used_ = 0;
  }
  void* p = scratch_.back()->data() + scratch_used_;
  scratch_used_ += need;
  return p;
}

void CpuShared::scratchReset() {
  scratch_used_ = 0;
  if (scratch_.size() < 2) return;
  uint64_t total = 0;
  for (const auto& c : scratch_) total += c->size();
  scratch_.clear();
  auto merged = std::make_unique<CpuBuffer>();
  if (merged->allocate(total, budget(), memory.other, "scratch").ok()) scratch_.push_back(std::move(merged));
}

Result<std::shared_ptr<CpuStates>> CpuShared::makeStates(std::shared_ptr<CpuShared> self) {
  auto made = std::make_shared<CpuStates>(std::move(self));
  made->rings = states.rings;
  made->rings.setWritten(0);
  for (const auto& [name, from] : states.entries) {
    auto state = std::make_shared<CpuState>();
    state->bytes = from->bytes;
    state->half = from->half;
    state->initial = from->initial;
    ETWGPU_TRY(state->buffer.allocate(from->buffer.size(), budget(), memory.state, "state '" + name + "'"));
    state->reset();
    made->entries.emplace(name, std::move(state));
  }
  return made;
}

Task<Status> CpuStates::reset() {
  for (auto& [name, state] : entries) state->reset();
  rings.setWritten(0);
  co_return Status();
}

uint64_t CpuStates::bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, state] : entries) sum += state->buffer.size();
  return sum;
}

std::unique_ptr<Backend> makeCpuBackend(const LoadOptions& options) { return std::make_unique<CpuBackend>(options); }

}  // namespace etwgpu
