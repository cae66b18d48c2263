#include "runtime/llm/saved_state.h"

#include <algorithm>
#include <numeric>

#include "runtime/core/sort_by.h"
#include "runtime/executor/ring_mark.h"
#include "runtime/llm/generator.h"

namespace etwgpu {
namespace {

template <class T>
std::span<const uint8_t> bytesOf(const T* data, size_t count = 1) {
  return {reinterpret_cast<const uint8_t*>(data), count * sizeof(T)};
}

uint64_t wholeWords(uint64_t bytes) { return (bytes + 3) / 4 * 4; }

/// What must agree for bytes to mean the same: dtype, and the size of an element beside it.
uint32_t stateFormat(const StateLayout& s) { return uint32_t(s.dtype) | uint32_t(dtypeSize(s.dtype)) << 8; }

std::vector<size_t> byName(const std::vector<StateLayout>& states) {
  std::vector<size_t> order(states.size());
  std::iota(order.begin(), order.end(), size_t(0));
  sortBy(order, [&](size_t i) {
    return uint64_t(std::count_if(states.begin(), states.end(),
                                  [&](const StateLayout& other) { return other.name < states[i].name; }));
  });
  return order;
}

std::vector<uint32_t> formatsOf(const std::vector<StateLayout>& states) {
  std::vector<uint32_t> formats;
  for (const size_t i : byName(states)) formats.push_back(stateFormat(states[i]));
  return formats;
}

uint64_t sizeOf(std::span<const StateRange> ranges) {
  uint64_t sum = 0;
  for (const StateRange& r : ranges) sum += r.size;
  return sum;
}

/// The ranges from `first` on that together make up one piece.
std::span<const StateRange> nextPiece(const std::vector<StateRange>& ranges, size_t first) {
  size_t count = 1;
  uint64_t bytes = ranges[first].size;
  while (first + count < ranges.size() && bytes + ranges[first + count].size <= kStatePiece)
    bytes += ranges[first + count++].size;
  return std::span(ranges).subspan(first, count);
}

uint64_t savedBytes(size_t states, bool rings, size_t tokens, std::span<const StateRange> ranges) {
  return sizeof(SavedHeader) + 4 * (states + rings + tokens) + sizeOf(ranges) + sizeof(uint64_t);
}

uint32_t versionOf(Delegate& delegate) { return delegate.rings() ? kRingStateVersion : kStateVersion; }

UsedRows usedRows(Delegate& delegate, int64_t capacity, int64_t rows, int64_t written) {
  UsedRows used{capacity, rows, {}, written};
  for (const RingCache& ring : ringCaches(delegate.graph()))
    for (const ValueId state : {ring.k, ring.v}) used.rings.insert(delegate.graph().value(state).name);
  return used;
}

}  // namespace

std::vector<StateRange> usedRanges(const std::vector<StateLayout>& states, const UsedRows& used) {
  std::vector<StateRange> ranges;
  const auto add = [&](size_t state, uint64_t offset, uint64_t size) {
    for (const uint64_t end = offset + size; offset < end; offset += ranges.back().size)
      ranges.push_back({state, offset, std::min(kStatePiece, end - offset)});
  };
  for (const size_t i : byName(states)) {
    const StateLayout& s = states[i];
    const uint64_t row = s.sizes.size() == 4 ? uint64_t(s.sizes[3]) * dtypeSize(s.dtype) : 0;
    const bool ring = used.rings.contains(s.name) && used.written <= s.sizes[2];
    if (row == 0 || row % 4 != 0 || !(s.sizes[2] == used.capacity || ring)) {
      add(i, 0, wholeWords(s.bytes()));
      continue;
    }
    for (int64_t block = 0; block < s.sizes[0] * s.sizes[1]; ++block)
      add(i, uint64_t(block * s.sizes[2]) * row, uint64_t(used.rows) * row);
  }
  return ranges;
}

Task<Status> saveState(Delegate& delegate, int64_t capacity, std::span<const int32_t> tokens, StateSink sink) {
  const std::vector<StateLayout> states = delegate.states();
  const RingMark* rings = delegate.rings();
  const uint32_t written = rings ? uint32_t(rings->written()) : 0;
  const std::vector<StateRange> ranges =
      usedRanges(states, usedRows(delegate, capacity, int64_t(tokens.size()), written));
  const std::vector<uint32_t> formats = formatsOf(states);
  Digest digest;
  const auto put = [&](std::span<const uint8_t> bytes) {
    digest.add(bytes);
    return sink(bytes);
  };
  const SavedHeader header{kStateMagic,
                           versionOf(delegate),
                           delegate.stateIdentity(),
                           savedBytes(states.size(), rings != nullptr, tokens.size(), ranges),
                           uint32_t(tokens.size()),
                           uint32_t(states.size())};
  ETWGPU_CO_TRY(put(bytesOf(&header)));
  ETWGPU_CO_TRY(put(bytesOf(formats.data(), formats.size())));
  if (rings) ETWGPU_CO_TRY(put(bytesOf(&written)));
  ETWGPU_CO_TRY(put(bytesOf(tokens.data(), tokens.size())));
  std::vector<uint8_t> piece;
  for (size_t i = 0; i < ranges.size();) {
    const auto part = nextPiece(ranges, i);
    piece.resize(size_t(sizeOf(part)));
    ETWGPU_CO_TRY(co_await delegate.readStates(part, piece));
    ETWGPU_CO_TRY(put(piece));
    i += part.size();
  }
  const uint64_t sum = digest.value();
  co_return sink(bytesOf(&sum));
}

// ---- reading --------------------------------------------------------------------------------------------------------

Task<Status> StateReader::read(void* to, uint64_t size) {
  if (size == 0) co_return Status();
  ReadRequest request;
  request.offset = at_;
  request.size = size;
  request.host = to;
  at_ += size;
  std::vector<ReadRequest> requests{request};
  ETWGPU_CO_TRY(co_await source_.read(std::move(requests)));
  digest_.add({static_cast<const uint8_t*>(to), size_t(size)});
  co_return Status();
}

Status StateReader::checkHeader(const SavedHeader& h) const {
  const auto refuse = [&](std::string why) { return Status(Code::saved_state, source_.name() + " " + why); };
  if (h.magic != kStateMagic) return refuse("is no saved state");
  if (h.version != versionOf(delegate_))
    return refuse(format("is a saved state of version %u, this runtime reads %u", h.version, versionOf(delegate_)));
  if (h.identity != delegate_.stateIdentity()) {
    return refuse(format("is the saved state of another model or other scales of adapters: %016llx, not %016llx",
                         (unsigned long long)h.identity, (unsigned long long)delegate_.stateIdentity()));
  }
  if (h.bytes != source_.size()) {
    return refuse(format("is damaged: it has %llu bytes of %llu", (unsigned long long)source_.size(),
                         (unsigned long long)h.bytes));
  }
  if (int64_t(h.tokens) > capacity_ || h.states != delegate_.states().size())
    return refuse(format("is damaged: %u tokens, %u states", h.tokens, h.states));
  return {};
}

Task<Status> StateReader::check() {
  const auto refuse = [&](const char* why) { return Status(Code::saved_state, source_.name() + " " + why); };
  SavedHeader header;
  if (source_.size() < sizeof header) co_return refuse("is no saved state");
  ETWGPU_CO_TRY(co_await read(&header, sizeof header));
  ETWGPU_CO_TRY(checkHeader(header));
  const std::vector<StateLayout> states = delegate_.states();
  const bool rings = delegate_.rings() != nullptr;
  std::vector<uint32_t> formats(states.size());
  if (header.bytes < savedBytes(states.size(), rings, 0, {})) co_return refuse("is damaged: its length does not fit");
  ETWGPU_CO_TRY(co_await read(formats.data(), 4 * formats.size()));
  if (formats != formatsOf(states)) co_return refuse("was saved with states of another precision");
  if (rings) ETWGPU_CO_TRY(co_await read(&written_, sizeof written_));
  if (rings && written_ < header.tokens) co_return refuse("is damaged: its caches do not fit its tokens");
  ranges_ = usedRanges(states, usedRows(delegate_, capacity_, header.tokens, written_));
  if (header.bytes != savedBytes(states.size(), rings, header.tokens, ranges_))
    co_return refuse("is damaged: its length does not fit");
  tokens_.resize(header.tokens);
  ETWGPU_CO_TRY(co_await read(tokens_.data(), 4 * tokens_.size()));
  data_at_ = at_;
  std::vector<uint8_t> piece;
  for (const uint64_t end = data_at_ + sizeOf(ranges_); at_ < end;) {
    piece.resize(size_t(std::min(kStatePiece, end - at_)));
    ETWGPU_CO_TRY(co_await read(piece.data(), piece.size()));
  }
  const uint64_t computed = digest_.value();
  uint64_t stored = 0;
  ETWGPU_CO_TRY(co_await read(&stored, sizeof stored));
  co_return stored == computed ? Status() : refuse("is damaged: its checksum does not fit");
}

Task<Status> StateReader::apply() {
  at_ = data_at_;
  std::vector<uint8_t> piece;
  for (size_t i = 0; i < ranges_.size();) {
    const auto part = nextPiece(ranges_, i);
    piece.resize(size_t(sizeOf(part)));
    ETWGPU_CO_TRY(co_await read(piece.data(), piece.size()));
    ETWGPU_CO_TRY(co_await delegate_.writeStates(part, piece));
    i += part.size();
  }
  co_return Status();
}

// ---- the generator's part -------------------------------------------------------------------------------------------

Task<Status> Generator::save(StateSink sink) {
  if (running_) co_return Status(Code::invalid_argument, "a generation is under way");
  co_return co_await saveState(delegate_, capacity_, tokens_, std::move(sink));
}

Task<Status> Generator::restore(DataSource& source) {
  if (running_) co_return Status(Code::invalid_argument, "a generation is under way");
  StateReader reader(delegate_, source, capacity_);
  ETWGPU_CO_TRY(co_await reader.check());
  if (!reader.tokens().empty() && !checkTokens(reader.tokens()).ok())
    co_return Status(Code::saved_state, source.name() + " is damaged: tokens outside of the vocabulary");
  tokens_.clear();
  ETWGPU_CO_TRY(co_await reader.apply());
  if (RingMark* rings = delegate_.rings()) rings->setWritten(reader.written());
  tokens_ = reader.tokens();
  co_return Status();
}

}  // namespace etwgpu
