// Loading: program, data files, constants, payloads, delegates, weights; forward through each file once.
#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/core/sort_by.h"
#include "runtime/executor/session.h"

namespace etwgpu {
namespace {

using ull = unsigned long long;
constexpr std::string_view kBackendId = "WebGPUBackend";
/// Requests are handed to a source in batches of about this many bytes, so that progress is told and a load can be
/// stopped.
constexpr uint64_t kBatchBytes = 32 << 20;

ValueSpec specOf(const Method& m, int32_t index) {
  const ProgramValue& v = m.values[size_t(index)];
  ValueSpec spec;
  if (const auto* ref = std::get_if<TensorRef>(&v)) {
    const TensorInfo& t = m.tensors[size_t(ref->index)];
    spec.kind = ValueSpec::Kind::tensor;
    spec.scalar_type = t.scalar_type;
    spec.sizes.assign(t.sizes.begin(), t.sizes.end());
    spec.dynamic = t.shape != ShapeKind::fixed;
  } else if (std::holds_alternative<int64_t>(v)) {
    spec.kind = ValueSpec::Kind::integer;
  } else if (std::holds_alternative<double>(v)) {
    spec.kind = ValueSpec::Kind::number;
  } else if (std::holds_alternative<bool>(v)) {
    spec.kind = ValueSpec::Kind::flag;
  } else if (std::holds_alternative<std::string_view>(v)) {
    spec.kind = ValueSpec::Kind::text;
  }
  return spec;
}

OutputValue plainValue(const ProgramValue& v) {
  if (const auto* i = std::get_if<int64_t>(&v)) return *i;
  if (const auto* d = std::get_if<double>(&v)) return *d;
  if (const auto* b = std::get_if<bool>(&v)) return *b;
  if (const auto* s = std::get_if<std::string_view>(&v)) return std::string(*s);
  return std::monostate();
}

/// Adds without overflow; a sum beyond 2^64 is beyond every cap.
void addBytes(uint64_t& sum, uint64_t bytes) {
  if (__builtin_add_overflow(sum, bytes, &sum)) sum = UINT64_MAX;
}

}  // namespace

Session::~Session() {
  // delegates refer to the backend's memory
  methods_.clear();
}

Task<Result<std::unique_ptr<Session>>> Session::load(SessionConfig config) {
  std::unique_ptr<Session> session(new Session);
  session->config_ = std::move(config);
  ETWGPU_CO_TRY(co_await session->loadInto());
  co_return std::move(session);
}

Task<Status> Session::loadInto() {
  if (!config_.source) co_return Status(Code::invalid_argument, "no program given");
  if (!config_.backend && !config_.inspect_only) co_return Status(Code::invalid_argument, "no backend given");
  data_.budget.cap = config_.options.memory_cap;
  data_.check_values = config_.options.check_values;
  ETWGPU_CO_ASSIGN(program_, co_await readProgram(*config_.source, config_.options.memory_cap));
  ETWGPU_CO_TRY(co_await readDataFiles());
  ETWGPU_CO_TRY(collectNamedData());
  if (!config_.inspect_only) ETWGPU_CO_TRY(checkDeclaredMemory());
  ETWGPU_CO_TRY(makeMethods());
  makeSpecs();
  ETWGPU_CO_TRY(collectMissing());

  std::vector<PendingRead> reads;
  ETWGPU_CO_TRY(findExternalData(reads));
  ETWGPU_CO_TRY(readConstants(reads));
  ETWGPU_CO_TRY(readPayloads(reads));
  ETWGPU_CO_TRY(co_await readAll(std::move(reads)));
  if (config_.inspect_only) co_return Status();

  ETWGPU_CO_TRY(co_await readAdapters());
  ETWGPU_CO_TRY(shareStates());
  std::vector<PendingRead> weights;
  ETWGPU_CO_TRY(makeDelegates(weights));
  ETWGPU_CO_TRY(adapters_.allFound());
  applyScales();
  // The CPU multiplies with what was made of them where it lies, a GPU has it in buffers.
  adapters_.release(config_.options.device == DeviceKind::webgpu);
  ETWGPU_CO_TRY(co_await readAll(std::move(weights)));
  for (LoadedMethod& m : methods_) {
    for (LoadedDelegate& d : m.delegates) ETWGPU_CO_TRY(co_await d.delegate->finishLoading());
  }
  co_return Status();
}

Task<Status> Session::readDataFiles() {
  for (const auto& source : config_.data_files) {
    ETWGPU_CO_ASSIGN(FlatTensor file, co_await readFlatTensor(*source, config_.options.memory_cap));
    data_files_.push_back(std::move(file));
  }
  co_return Status();
}

Task<Status> Session::readAdapters() {
  for (AdapterFiles& files : config_.adapters) {
    ETWGPU_CO_ASSIGN(Adapter adapter, co_await readAdapter(files, config_.options.memory_cap));
    ETWGPU_CO_TRY(adapters_.add(std::move(adapter), files.scale));
    files.weights.reset();
  }
  if (!config_.adapters.empty()) named_data_.adapters = &adapters_;
  co_return Status();
}

void Session::applyScales() {
  forEachDelegate([&](Delegate& d) { d.setAdapterScales(adapters_.scales()); });
}

Status Session::setAdapterScale(std::string_view name, float scale) {
  bool busy = running_;
  forEachDelegate([&](Delegate& d) { busy |= d.stepsInFlight() > 0; });
  if (busy) return {Code::invalid_argument, "an adapter's scale cannot change while a call is under way"};
  ETWGPU_TRY(adapters_.setScale(name, scale));
  applyScales();
  return {};
}

/// Those of its sequences, too.
void Session::forEachDelegate(const std::function<void(Delegate&)>& f) {
  for (LoadedMethod& m : methods_) {
    for (LoadedDelegate& d : m.delegates)
      if (d.delegate) f(*d.delegate);
    if (m.verifier) f(*m.verifier);
  }
  for (const auto& sequence : sequences_) {
    for (const auto* made : {&sequence->delegates_, &sequence->verifiers_})
      for (const auto& [_, delegate] : *made) f(*delegate);
  }
}

Status Session::collectNamedData() {
  for (const NamedSegment& n : program_->named_data) {
    const FileRange& range = program_->segments[n.segment];
    named_data_.entries[std::string(n.key)] = {config_.source.get(), range.offset, range.size};
  }
  for (size_t i = 0; i < data_files_.size(); ++i) {
    DataSource* source = config_.data_files[i].get();
    for (const FlatTensor::Entry& e : data_files_[i].entries) {
      if (!named_data_.entries.emplace(e.key, NamedData{source, e.range.offset, e.range.size}).second) {
        return {Code::invalid_program,
                format("%s: %s is already defined by another file", source->name().c_str(), e.key.c_str())};
      }
    }
  }
  return {};
}

/// Everything that the files declare, before anything of it is allocated. Arenas inside delegates are checked by the
/// backend against the same cap.
Status Session::checkDeclaredMemory() const {
  uint64_t arenas = 0, constants = 0, weights = 0;
  for (const Method& m : program_->methods) {
    for (size_t i = 1; i < m.arenas.size(); ++i) addBytes(arenas, uint64_t(m.arenas[i]));
  }
  const auto addSegment = [&](int32_t segment) {
    if (segment >= 0) addBytes(constants, program_->segments[size_t(segment)].size);
  };
  addSegment(program_->constants.segment);
  for (const SubsegmentOffsets& s : program_->mutable_segments) addSegment(s.segment);
  std::set<std::pair<DataSource*, uint64_t>> seen;  // keys may share a segment
  for (const auto& [key, data] : named_data_.entries) {
    if (seen.emplace(data.source, data.offset).second) addBytes(weights, data.size);
  }
  uint64_t sum = arenas;
  addBytes(sum, constants);
  addBytes(sum, weights);
  if (sum > config_.options.memory_cap) {
    return {Code::limit_exceeded,
            format("%s declares %llu bytes (arenas %llu, constants %llu, weights %llu), the memory cap is %llu",
                   program_->file.c_str(), ull(sum), ull(arenas), ull(constants), ull(weights),
                   ull(config_.options.memory_cap))};
  }
  return {};
}

Status Session::makeMethods() {
  data_.segments.assign(program_->segments.size(), nullptr);
  for (const Method& m : program_->methods) {
    LoadedMethod loaded;
    loaded.state = std::make_unique<MethodState>(m, data_);
    loaded.delegates.resize(m.delegates.size());
    methods_.push_back(std::move(loaded));
  }
  return {};
}

void Session::makeSpecs() {
  for (const Method& m : program_->methods) {
    MethodSpec spec;
    spec.name = std::string(m.name);
    for (int32_t i : m.inputs) spec.inputs.push_back(specOf(m, i));
    for (int32_t i : m.outputs) spec.outputs.push_back(specOf(m, i));
    spec.constant = m.instructions.empty() && m.inputs.empty();
    if (spec.constant) {
      for (int32_t i : m.outputs) spec.values.push_back(plainValue(m.values[size_t(i)]));
    }
    specs_.push_back(std::move(spec));
  }
}

/// All operators and delegates that nothing serves, over all methods, at once.
Status Session::collectMissing() {
  for (size_t i = 0; i < methods_.size(); ++i) {
    const Method& m = program_->methods[i];
    for (const Instruction& in : m.instructions) {
      if (in.kind == InstructionKind::kernel && methods_[i].state->operators()[size_t(in.index)].missing()) {
        ++missing_operators_[m.operators[size_t(in.index)].text()];
      }
      if (in.kind == InstructionKind::delegate && m.delegates[size_t(in.index)].id != kBackendId) {
        ++missing_operators_["delegate " + std::string(m.delegates[size_t(in.index)].id)];
      }
    }
  }
  if (missing_operators_.empty() || config_.inspect_only) return {};
  std::string list;
  for (const auto& [name, count] : missing_operators_)
    list += (list.empty() ? "" : ", ") + name + format(" (%d)", count);
  return {Code::unsupported_operator, program_->file + ": no kernel for " + list};
}

/// Tensors whose data is in a .ptd.
Status Session::findExternalData(std::vector<PendingRead>& reads) {
  std::set<std::string_view> seen;
  for (const Method& m : program_->methods) {
    const std::vector<bool> used = usedTensors(m);
    for (size_t i = 0; i < m.tensors.size(); ++i) {
      const TensorInfo& t = m.tensors[i];
      if (!t.external || !(used[i] || t.planned)) continue;
      const auto it = named_data_.entries.find(t.name);
      if (it == named_data_.entries.end()) {
        if (config_.inspect_only) {
          if (seen.insert(t.name).second) missing_data_.emplace_back(t.name);
          continue;
        }
        return {Code::data_missing,
                format("%s: the data of '%.*s' is in none of the given files: load the program together with its "
                       ".ptd",
                       program_->file.c_str(), int(t.name.size()), t.name.data())};
      }
      const NamedData& data = it->second;
      if (data.size != t.bytes) {
        return {Code::invalid_program,
                format("%s: '%.*s' has %llu bytes, the program expects %llu: does the .ptd belong to this "
                       ".pte?",
                       data.source->name().c_str(), int(t.name.size()), t.name.data(), ull(data.size), ull(t.bytes))};
      }
      if (config_.inspect_only || !seen.insert(t.name).second) continue;
      auto& [bytes, size] = data_.external[std::string(t.name)];
      size = data.size;
      ETWGPU_TRY(readHost(*data.source, {data.offset, data.size}, std::string(t.name), reads, bytes));
    }
  }
  return {};
}

/// Bytes of a file for the host: in place, or read into memory of ours.
Status Session::readHost(DataSource& source, FileRange range, const std::string& what, std::vector<PendingRead>& reads,
                         const uint8_t*& bytes) {
  if (source.data()) {
    bytes = source.data() + range.offset;
    return {};
  }
  ETWGPU_ASSIGN(HostBuffer buffer, data_.budget.allocate(range.size, what));
  bytes = buffer.data();
  ReadRequest request;
  request.offset = range.offset;
  request.size = range.size;
  request.host = buffer.data();
  if (range.size) reads.push_back({&source, request});
  data_.owned.push_back(std::move(buffer));
  return {};
}

/// Constants and initial values of the CPU side: of a stream only those that something uses.
Status Session::readConstants(std::vector<PendingRead>& reads) {
  if (config_.inspect_only) return {};
  DataSource& source = *config_.source;
  std::map<int32_t, std::map<uint64_t, uint64_t>> wanted;  // segment → offset → bytes
  for (const Method& m : program_->methods) {
    const std::vector<bool> used = usedTensors(m);
    for (size_t i = 0; i < m.tensors.size(); ++i) {
      const TensorInfo& t = m.tensors[i];
      if (t.segment < 0 || !(used[i] || t.planned)) continue;
      uint64_t& bytes = wanted[t.segment][t.segment_offset];
      bytes = std::max(bytes, t.bytes);
    }
  }
  for (const auto& [segment, pieces] : wanted) {
    const FileRange& range = program_->segments[size_t(segment)];
    uint64_t sum = 0;
    for (const auto& [offset, bytes] : pieces) addBytes(sum, bytes);
    if (source.data() || sum >= range.size) {  // pieces may overlap, in damaged files without end
      ETWGPU_TRY(readHost(source, range, "constants", reads, data_.segments[size_t(segment)]));
      continue;
    }
    for (const auto& [offset, bytes] : pieces) {
      ETWGPU_TRY(readHost(source, {range.offset + offset, bytes}, "constants", reads, data_.pieces[{segment, offset}]));
    }
  }
  return {};
}

Status Session::readPayloads(std::vector<PendingRead>& reads) {
  DataSource& source = *config_.source;
  uint64_t payload_bytes = 0;
  for (size_t i = 0; i < methods_.size(); ++i) {
    for (size_t k = 0; k < methods_[i].delegates.size(); ++k) {
      const DelegateInfo& info = program_->methods[i].delegates[k];
      LoadedDelegate& d = methods_[i].delegates[k];
      if (info.segment < 0) {
        d.payload = info.inline_payload;
        continue;
      }
      const FileRange& range = program_->segments[size_t(info.segment)];
      // in place only where flatbuffers' alignment is kept
      if (source.data() && reinterpret_cast<uintptr_t>(source.data() + range.offset) % 16 == 0) {
        d.payload = {source.data() + range.offset, size_t(range.size)};
        continue;
      }
      addBytes(payload_bytes, range.size);
      if (payload_bytes > config_.options.memory_cap) {
        return {Code::limit_exceeded,
                format("%s: delegate payloads of %llu bytes, the memory cap is %llu", program_->file.c_str(),
                       ull(payload_bytes), ull(config_.options.memory_cap))};
      }
      d.payload_bytes.resize(range.size);
      d.payload = d.payload_bytes;
      ReadRequest request;
      request.offset = range.offset;
      request.size = range.size;
      request.host = d.payload_bytes.data();
      if (range.size) reads.push_back({&source, request});
    }
  }
  return {};
}

/// Mutable buffers that several methods name (emit_mutable_buffer_names) get one memory.
Status Session::shareStates() {
  std::map<std::string_view, std::pair<uint64_t, int>> states;  // bytes, methods
  for (const Method& m : program_->methods) {
    std::set<std::string_view> here;
    for (const TensorInfo& t : m.tensors) {
      if (!t.planned || t.name.empty() || !here.insert(t.name).second) continue;
      auto [it, added] = states.emplace(t.name, std::pair(t.bytes, 1));
      if (added) continue;
      ++it->second.second;
      if (it->second.first != t.bytes) {
        return {Code::invalid_program,
                format("%s: buffer '%.*s' has %llu bytes in one method and %llu in another", program_->file.c_str(),
                       int(t.name.size()), t.name.data(), ull(it->second.first), ull(t.bytes))};
      }
    }
  }
  for (const auto& [name, state] : states) {
    if (state.second < 2) continue;
    ETWGPU_ASSIGN(data_.shared_states[std::string(name)], data_.budget.allocate(state.first, std::string(name)));
  }
  return {};
}

bool Session::hasOneDelegate() const {
  size_t count = 0;
  for (const LoadedMethod& m : methods_) count += m.delegates.size();
  return count == 1;
}

DelegateOptions Session::delegateOptions(size_t method) const {
  return {.alone = hasOneDelegate(), .import = {.method = specs_[method].name.c_str()}};
}

Status Session::makeDelegates(std::vector<PendingRead>& reads) {
  Status failure;
  for (size_t i = 0; i < methods_.size(); ++i) {
    for (size_t k = 0; k < methods_[i].delegates.size(); ++k) {
      LoadedDelegate& d = methods_[i].delegates[k];
      Result<std::unique_ptr<Delegate>> made =
          config_.backend->createDelegate(d.payload, named_data_, delegateOptions(i));
      if (!made.ok()) {
        const std::string message =
            format("%s: method %s, delegate %zu: ", program_->file.c_str(), specs_[i].name.c_str(), k) +
            made.status().message();
        if (made.status().code() == Code::data_missing) {
          return {Code::data_missing, message + ": load the program together with its .ptd"};
        }
        // operators without a kernel are collected over all delegates, anything else ends the load
        if (made.status().code() != Code::unsupported_operator) return {made.status().code(), message};
        failure = Status(Code::unsupported_operator, failure.ok() ? message : failure.message() + "; " + message);
        continue;
      }
      d.delegate = std::move(made).value();
      for (auto& [source, request] : d.delegate->takeReads()) reads.push_back({source, request});
    }
  }
  return failure;
}

Task<Status> Session::rebuild(std::string method, Tuning tuning) {
  if (running_) co_return Status(Code::invalid_argument, "a call is under way");
  config_.backend->setTuning(tuning);
  for (size_t i = 0; i < methods_.size(); ++i) {
    if (specs_[i].name != method) continue;
    methods_[i].verifier.reset();
    for (LoadedDelegate& d : methods_[i].delegates) {
      ETWGPU_CO_ASSIGN(std::unique_ptr<Delegate> made,
                       config_.backend->createDelegate(d.payload, named_data_, delegateOptions(i)));
      if (!made->takeReads().empty()) co_return Status(Code::internal, "a rebuilt delegate wants to read");
      ETWGPU_CO_TRY(co_await made->finishLoading());
      d.delegate = std::move(made);
    }
    applyScales();
    co_return Status();
  }
  co_return Status(Code::invalid_argument, "there is no method " + method);
}

/// Each source once, forward.
Task<Status> Session::readAll(std::vector<PendingRead> reads) {
  std::vector<DataSource*> sources{config_.source.get()};
  for (const auto& s : config_.data_files) sources.push_back(s.get());
  for (const PendingRead& r : reads) bytes_total_ += r.request.size;
  sortBy(reads, [](const PendingRead& r) { return r.request.offset; });
  if (config_.progress && !config_.progress(bytes_done_, bytes_total_))
    co_return Status(Code::cancelled, "loading was cancelled");
  for (DataSource* source : sources) {
    std::vector<ReadRequest> batch;
    uint64_t bytes = 0;
    for (size_t i = 0; i <= reads.size(); ++i) {
      const bool last = i == reads.size();
      if (!last && reads[i].source == source) {
        batch.push_back(reads[i].request);
        bytes += reads[i].request.size;
      }
      // Requests of one offset stay together: a forward-only source can't go back to it.
      const bool border = last || reads[i].source != source || i + 1 == reads.size() ||
                          reads[i + 1].request.offset >= reads[i].request.offset + reads[i].request.size;
      if (batch.empty() || !border || (!last && bytes < kBatchBytes)) continue;
      ETWGPU_CO_TRY(co_await source->read(std::move(batch)));
      batch.clear();
      bytes_done_ += bytes;
      bytes = 0;
      if (config_.progress && !config_.progress(bytes_done_, bytes_total_))
        co_return Status(Code::cancelled, "loading was cancelled");
    }
  }
  co_return Status();
}

const MethodSpec* Session::findMethod(std::string_view name) const {
  for (const MethodSpec& m : specs_) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

std::vector<int64_t> Session::constantIntegers(std::string_view method) const {
  std::vector<int64_t> out;
  const MethodSpec* m = findMethod(method);
  if (!m || !m->constant) return out;
  for (const OutputValue& v : m->values) {
    if (const auto* i = std::get_if<int64_t>(&v)) out.push_back(*i);
  }
  return out;
}

std::optional<int64_t> Session::constantInteger(std::string_view method) const {
  const std::vector<int64_t> all = constantIntegers(method);
  return all.size() == 1 ? std::optional(all[0]) : std::nullopt;
}

}  // namespace etwgpu
