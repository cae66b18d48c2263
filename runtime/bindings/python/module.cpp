// executorch_webgpu._native: the runtime for Python. python/executorch_webgpu/runtime.py is what users see.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <mutex>
#include <set>

#include "runtime/bindings/python/upload_source.h"
#include "runtime/executor/cpu_kernel.h"
#include "runtime/executor/gpu_kernel.h"
#include "runtime/executor/session.h"
#include "runtime/llm/generator.h"
#include "runtime/llm/tuner.h"
#include "runtime/program/sources.h"
#include "runtime/webgpu/device.h"
#include "runtime/webgpu/gpu_backend.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace etwgpu {
namespace {

/// Becomes the class of executorch_webgpu.errors that belongs to the code.
struct RuntimeFailure : std::exception {
  explicit RuntimeFailure(Status s) : status(std::move(s)) {}
  const char* what() const noexcept override { return status.message().c_str(); }
  Status status;
};

void check(const Status& status) {
  if (!status.ok()) throw RuntimeFailure(status);
}
template <class T>
T unwrap(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

template <class T>
T enumFrom(const std::string& what, const std::string& name, std::initializer_list<std::pair<const char*, T>> names) {
  std::string known;
  for (const auto& [n, value] : names) {
    if (name == n) return value;
    known += (known.empty() ? "" : ", ") + std::string(n);
  }
  throw RuntimeFailure({Code::invalid_argument, what + " is '" + name + "', known are " + known});
}

DType dtypeOf(const nb::dlpack::dtype& t) {
  using C = nb::dlpack::dtype_code;
  if (t.lanes == 1) {
    const auto code = C(t.code);
    if (code == C::Float && t.bits == 32) return DType::f32;
    if (code == C::Float && t.bits == 16) return DType::f16;
    if (code == C::Float && t.bits == 64) return DType::f64;
    if (code == C::Bfloat && t.bits == 16) return DType::bf16;
    if (code == C::Int && t.bits == 64) return DType::i64;
    if (code == C::Int && t.bits == 32) return DType::i32;
    if (code == C::Int && t.bits == 16) return DType::i16;
    if (code == C::Int && t.bits == 8) return DType::i8;
    if (code == C::UInt && t.bits == 8) return DType::u8;
    if (code == C::Bool && t.bits == 8) return DType::boolean;
  }
  throw RuntimeFailure({Code::invalid_argument, "arrays of this dtype are not supported"});
}

nb::dlpack::dtype dlpackType(DType t) {
  using C = nb::dlpack::dtype_code;
  const C code = t == DType::boolean ? C::Bool
                 : t == DType::bf16  ? C::UInt  // numpy has no bfloat16: the bits
                 : isFloating(t)     ? C::Float
                 : t == DType::u8    ? C::UInt
                                     : C::Int;
  return {uint8_t(code), uint8_t(dtypeSize(t) * 8), 1};
}

nb::object toPython(OutputValue value) {
  if (auto* t = std::get_if<HostTensor>(&value)) {
    auto* owned = new HostTensor(std::move(*t));
    const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<HostTensor*>(p); });
    std::vector<size_t> shape(owned->sizes.begin(), owned->sizes.end());
    static uint8_t nothing = 0;
    void* data = owned->bytes.empty() ? &nothing : owned->bytes.data();
    return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr, dlpackType(owned->dtype)));
  }
  if (const auto* i = std::get_if<int64_t>(&value)) return nb::int_(*i);
  if (const auto* d = std::get_if<double>(&value)) return nb::float_(*d);
  if (const auto* b = std::get_if<bool>(&value)) return nb::bool_(*b);
  if (const auto* s = std::get_if<std::string>(&value)) return nb::str(s->c_str(), s->size());
  return nb::none();
}

nb::list specs(const std::vector<ValueSpec>& values) {
  static constexpr const char* kKinds[] = {"none", "tensor", "int", "float", "bool", "str"};
  nb::list out;
  for (const ValueSpec& v : values) {
    nb::dict d;
    d["kind"] = kKinds[size_t(v.kind)];
    if (v.kind == ValueSpec::Kind::tensor) {
      d["dtype"] = scalarTypeName(v.scalar_type);
      d["sizes"] = nb::cast(v.sizes);
      d["dynamic"] = v.dynamic;
    }
    out.append(d);
  }
  return out;
}

nb::dict statsOf(const ExecuteStats& s) {
  nb::dict d;
  d["dispatches"] = s.dispatches;
  d["submits"] = s.submits;
  d["read_back_bytes"] = s.read_back_bytes;
  d["upload_bytes"] = s.upload_bytes;
  return d;
}

nb::list profileOf(const std::vector<DispatchTime>& times) {
  nb::list out;
  for (const DispatchTime& t : times) {
    nb::dict d;
    d["kernel"] = t.kernel;
    d["node"] = t.node;
    d["us"] = t.microseconds;
    d["bytes"] = t.bytes;
    d["flops"] = t.flops;
    out.append(d);
  }
  return out;
}

/// Name, path of adapter_model.safetensors, text of adapter_config.json, scale.
using AdapterPath = std::tuple<std::string, std::string, std::string, float>;

class NativeGenerator;

class NativeSession {
 public:
  NativeSession() = default;
  ~NativeSession() { close(); }

  /// Frees all memory of the program; later calls are invalid_argument.
  void close() {
    const nb::gil_scoped_release release;  // a task of another thread may hold the locks and call into Python
    const std::lock_guard lock(mutex_);
    if (!device_) {
      session_.reset();
      return;
    }
    const std::lock_guard callbacks(webGpuMutex());
    session_.reset();
    device_.reset();
  }

  static NativeSession* load(const std::string& path, const std::vector<std::string>& data_files,
                             const std::string& device, uintptr_t get_proc_address, const std::string& precision,
                             const std::string& activations, const std::string& kv_cache, int threads,
                             const std::string& max_tier, uint64_t memory_cap, const std::string& disabled_passes,
                             bool default_limits, bool wide_kernels, int emulate_matrices, uint64_t max_binding_bytes,
                             const std::string& tuning, const std::vector<AdapterPath>& adapters, nb::object progress) {
    auto self = std::make_unique<NativeSession>();
    LoadOptions options;
    options.device = enumFrom<DeviceKind>("device", device, {{"webgpu", DeviceKind::webgpu}, {"cpu", DeviceKind::cpu}});
    options.precision = enumFrom<Precision>("precision", precision, {{"f32", Precision::f32}, {"f16", Precision::f16}});
    options.activations = enumFrom<Activations>("activations", activations,
                                                {{"auto", Activations::automatic},
                                                 {"exact", Activations::exact},
                                                 {"int16", Activations::int16},
                                                 {"int8", Activations::int8}});
    options.cache = enumFrom<CacheType>(
        "kv_cache", kv_cache, {{"auto", CacheType::automatic}, {"f32", CacheType::f32}, {"f16", CacheType::f16}});
    options.max_tier = enumFrom<Tier>("max_tier", max_tier,
                                      {{"baseline", Tier::baseline},
                                       {"f16", Tier::f16},
                                       {"subgroups", Tier::subgroups},
                                       {"subgroup_matrix", Tier::subgroup_matrix}});
    options.threads = threads;
    options.memory_cap = memory_cap;
    options.disabled_passes = disabled_passes;
    options.wide_kernels = wide_kernels;
    options.tuning = unwrap(Tuning::parse(tuning));
    SessionConfig config;
    config.options = options;
    if (options.device == DeviceKind::webgpu) {
      check(loadWebGpu(reinterpret_cast<WGPUProcGetProcAddress>(get_proc_address)));
      DeviceOptions device_options;
      device_options.default_limits = default_limits;
      device_options.emulate_matrices = emulate_matrices;
      device_options.max_binding_bytes = max_binding_bytes;
      nb::gil_scoped_release release;
      self->device_ = unwrap(runBlocking(Device::create(device_options)));
      config.backend = makeGpuBackend(*self->device_, options);
    } else {
      config.backend = makeCpuBackend(options);
    }
    config.source = self->open(path);
    for (const std::string& file : data_files) config.data_files.push_back(self->open(file));
    for (const auto& [name, weights, text, scale] : adapters)
      config.adapters.push_back({name, text, unwrap(openFileSource(weights)), scale});
    nb::python_error* raised = nullptr;  // by the callback: passed on when the load has ended
    if (!progress.is_none()) {
      config.progress = [&](uint64_t done, uint64_t total) {
        nb::gil_scoped_acquire acquire;
        try {
          const nb::object answer = progress(done, total);
          return answer.is_none() || nb::cast<bool>(nb::bool_(answer));
        } catch (nb::python_error& e) {
          raised = new nb::python_error(std::move(e));
          return false;
        }
      };
    }
    Result<std::unique_ptr<Session>> loaded;
    {
      nb::gil_scoped_release release;
      loaded = self->drive(Session::load(std::move(config)));
    }
    if (raised) {
      const std::unique_ptr<nb::python_error> owner(raised);
      throw nb::python_error(std::move(*owner));
    }
    self->session_ = unwrap(std::move(loaded));
    return self.release();
  }

  /// Runs a task of this session, which must not be closed: without the GIL, one at a time.
  template <class Make>
  auto exclusive(Make make) {
    nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    session();
    return drive(make());
  }

  nb::list run(const std::string& method, const nb::list& inputs) {
    std::vector<nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>> arrays;  // keep the bytes alive
    std::vector<Input> converted;
    for (nb::handle h : inputs) converted.push_back(toInput(h, arrays));
    auto result = exclusive([&] { return session().run(method, std::move(converted)); });
    nb::list out;
    for (OutputValue& v : unwrap(std::move(result))) out.append(toPython(std::move(v)));
    return out;
  }

  nb::dict tune(const std::string& method, double budget_ms) {
    if (!generators_.empty()) throw RuntimeFailure{{Code::invalid_argument, "a generator uses the session"}};
    TuneOptions options;
    options.budget_ms = budget_ms;
    const TuneReport report = unwrap(exclusive([&] { return etwgpu::tune(session(), method, options); }));
    nb::dict d;
    d["tuning"] = report.tuning.text();
    d["token_ms_before"] = report.token_ms_before;
    d["token_ms"] = report.token_ms;
    d["chunk_ms_before"] = report.chunk_ms_before;
    d["chunk_ms"] = report.chunk_ms;
    d["candidates"] = report.candidates;
    return d;
  }

  void add(NativeGenerator* generator) { generators_.insert(generator); }
  void remove(NativeGenerator* generator) { generators_.erase(generator); }

  void reset() {
    check(exclusive([&] { return session().reset(); }));
  }

  /// Conversations, which were computed with another scale, are forgotten.
  void setAdapterScale(const std::string& name, float scale);
  nb::dict adapterScales() const {
    nb::dict d;
    const AdapterSet& set = session().adapters();
    for (size_t i = 0; i < set.adapters().size(); ++i) d[set.adapters()[i].name.c_str()] = set.scales()[i];
    return d;
  }

  /// Frees a sequence of this session, if that has not done so by itself.
  void free(const Sequence* sequence) {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    if (!session_) return;
    std::unique_lock<std::recursive_mutex> callbacks;
    if (device_) callbacks = std::unique_lock(webGpuMutex());
    session_->freeSequence(sequence);
  }

  nb::list methods() const {
    nb::list out;
    for (const MethodSpec& m : session().methods()) {
      nb::dict d;
      d["name"] = m.name;
      d["inputs"] = specs(m.inputs);
      d["outputs"] = specs(m.outputs);
      d["constant"] = m.constant;
      nb::list values;
      for (const OutputValue& v : m.values) values.append(toPython(v));
      d["values"] = values;
      out.append(d);
    }
    return out;
  }

  nb::dict memory() const {
    const MemoryReport m = session().memory();
    nb::dict d;
    d["weights"] = m.weights;
    d["state"] = m.state;
    d["arena"] = m.arena;
    d["other"] = m.other;
    d["arena_without_reuse"] = m.arena_without_reuse;
    return d;
  }

  nb::dict stats() const { return statsOf(session().lastStats()); }

  /// The delegate that a generator drives; invalid_argument where the method is more than one delegate call.
  Delegate& soleDelegate(const std::string& method) {
    Delegate* delegate = session().soleDelegate(method);
    if (!delegate) {
      check({Code::invalid_argument, session().findMethod(method)
                                         ? "method " + method + " is not one delegate call alone"
                                         : "no method " + method});
    }
    return *delegate;
  }
  bool closed() const { return !session_; }
  Session& session() const {
    if (!session_) throw RuntimeFailure({Code::invalid_argument, "the session is closed"});
    return *session_;
  }
  /// For tests: as a driver reset would, between two calls.
  void destroyDevice() {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    if (device_) device_->destroy();
  }

  /// None on the CPU.
  nb::object capabilities() const {
    if (!device_) return nb::none();
    const GpuCapabilities& c = device_->capabilities();
    nb::dict d;
    d["vendor"] = c.vendor;
    d["architecture"] = c.architecture;
    d["description"] = c.description;
    d["f16"] = c.f16;
    d["subgroups"] = c.subgroups;
    d["subgroup_matrix"] = c.subgroup_matrix;
    d["max_binding_bytes"] = c.max_binding_bytes;
    d["max_buffer_bytes"] = c.max_buffer_bytes;
    return d;
  }

  std::string inspectJson() const { return session().inspectJson(); }

 private:
  std::unique_ptr<DataSource> open(const std::string& path) {
    std::unique_ptr<DataSource> file = unwrap(openFileSource(path));
    if (!device_) return file;
    return std::make_unique<UploadSource>(std::move(file), *device_);
  }

  template <class T>
  T drive(Task<T> task) {
    if (device_) return runBlocking(std::move(task));
    task.start();
    if (!task.done()) return T(Status(Code::internal, "a task on the CPU did not end"));
    return task.take();
  }

  static Input toInput(nb::handle h, std::vector<nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>>& arrays) {
    if (nb::isinstance<nb::bool_>(h)) return nb::cast<bool>(h);
    if (nb::isinstance<nb::int_>(h)) {
      int64_t i = 0;
      if (!nb::try_cast(h, i))
        throw RuntimeFailure({Code::invalid_argument, "an integer input does not fit into 64 bits"});
      return i;
    }
    if (nb::isinstance<nb::float_>(h)) return nb::cast<double>(h);
    nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> array;
    if (!nb::try_cast(h, array)) {
      throw RuntimeFailure({Code::invalid_argument, "inputs are numbers or contiguous arrays on the CPU, got " +
                                                        std::string(nb::str(h.type()).c_str())});
    }
    TensorView view;
    view.dtype = dtypeOf(array.dtype());
    for (size_t d = 0; d < array.ndim(); ++d) view.sizes.push_back(int64_t(array.shape(d)));
    view.data = const_cast<void*>(array.data());  // inputs are read only
    arrays.push_back(std::move(array));
    return view;
  }

  std::unique_ptr<Device> device_;  // outlives what is on it
  std::unique_ptr<Session> session_;
  std::set<NativeGenerator*> generators_;  // that refer to its delegates
  std::mutex mutex_;
};

/// A Generator with its session, on the session's own states or on those of a sequence: see runtime/llm/generator.h.
class NativeGenerator {
 public:
  NativeGenerator(NativeSession& session, const std::string& method) : NativeGenerator(session) {
    method_ = method;
    generator_ = unwrap(Generator::create(session.soleDelegate(method)));
  }
  ~NativeGenerator() {
    close();
    session_.remove(this);
  }
  NativeGenerator(const NativeGenerator&) = delete;
  NativeGenerator& operator=(const NativeGenerator&) = delete;

  /// Another conversation on the same session.
  NativeGenerator* newSequence() {
    session_.soleDelegate(method_);
    std::unique_ptr<NativeGenerator> made(new NativeGenerator(session_));
    made->method_ = method_;
    made->sequence_ = unwrap(session_.exclusive([&] { return session_.session().newSequence({method_}); }));
    made->generator_ = unwrap(Generator::create(*made->sequence_->soleDelegate(method_)));
    return made.release();
  }
  /// Of a sequence: frees its states; later calls are invalid_argument.
  void close() {
    if (sequence_) session_.free(std::exchange(sequence_, nullptr));
    closed_ = true;
  }
  uint64_t stateBytes() const {
    open();
    return sequence_ ? sequence_->stateBytes() : session_.session().stateBytes();
  }
  /// Forgets the conversation: states are as after loading.
  void reset() {
    open();
    check(generator_->rollback(0));
    check(session_.exclusive([&] { return sequence_ ? sequence_->reset() : session_.session().reset(); }));
  }
  int64_t begin(std::vector<int32_t> ids, int64_t max_tokens, std::vector<int32_t> stop_tokens, float temperature,
                int32_t top_k, float top_p, float min_p, float repetition_penalty, uint64_t seed, bool logprobs,
                int64_t chunk, bool masked, bool sliding, int64_t sinks, int64_t keep, int64_t draft_tokens,
                int64_t draft_ngram) {
    open();
    if (draft_tokens > 0) {
      generator_->setVerifier(unwrap(session_.exclusive([&] {
        return sequence_ ? sequence_->verifier(method_, kVerifyRows)
                         : session_.session().verifier(method_, kVerifyRows);
      })));
    }
    GenerateOptions options;
    options.max_tokens = max_tokens;
    options.stop_tokens = std::move(stop_tokens);
    options.sampling = {temperature, top_k, top_p, min_p, repetition_penalty, seed};
    options.log_probabilities = logprobs;
    options.chunk = chunk;
    options.masked = masked;
    options.overflow = sliding ? Overflow::sliding : Overflow::stop;
    options.sinks = sinks;
    options.keep = keep;
    options.draft_tokens = draft_tokens;
    options.draft_ngram = draft_ngram;
    return unwrap(generator_->begin(std::move(ids), std::move(options)));
  }
  void allow(const nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& mask) {
    check(generator_->allow({reinterpret_cast<const uint32_t*>(mask.data()), mask.shape(0)}));
  }
  /// (id, log probability), or None at the end.
  nb::object next() {
    open();
    const auto token = unwrap(session_.exclusive([&] { return generator_->next(); }));
    if (!token) return nb::none();
    return nb::make_tuple(token->id, token->log_probability);
  }
  void end() {
    if (closed_ || session_.closed()) return;  // with it went what was in flight
    check(session_.exclusive([&] { return generator_->end(); }));
  }
  void abort() { generator_->abort(); }
  /// nullptr once it is closed.
  Generator* generator() const { return closed_ ? nullptr : generator_.get(); }
  const char* finishReason() const {
    static constexpr const char* kNames[] = {"", "stop", "length", "aborted"};
    return kNames[size_t(generator_->finishReason())];
  }
  nb::dict speculation() const {
    const SpeculationCounts& c = generator_->speculation();
    nb::dict d;
    d["proposed"] = c.proposed;
    d["accepted"] = c.accepted;
    d["calls"] = c.calls;
    return d;
  }
  void rollback(int64_t position) { check(generator_->rollback(position)); }
  nb::bytes save() {
    open();
    std::vector<uint8_t> bytes;
    check(session_.exclusive([&] {
      return generator_->save([&](std::span<const uint8_t> piece) {
        bytes.insert(bytes.end(), piece.begin(), piece.end());
        return Status();
      });
    }));
    return nb::bytes(bytes.data(), bytes.size());
  }
  void restore(const nb::bytes& bytes) {
    open();
    const auto source = makeMemoryView("this", {static_cast<const uint8_t*>(bytes.data()), bytes.size()});
    check(session_.exclusive([&] { return generator_->restore(*source); }));
  }
  int64_t position() const { return generator_->position(); }
  int64_t capacity() const { return generator_->capacity(); }
  int64_t vocabulary() const { return generator_->vocabulary(); }
  const std::vector<int32_t>& tokens() const { return generator_->tokens(); }
  nb::dict stats() const {
    open();
    return statsOf(generator_->lastStats());
  }
  void setProfiling(bool on) {
    open();
    generator_->profileInto(on ? &profile_ : nullptr);
  }
  nb::list profile() const { return profileOf(profile_); }

 private:
  explicit NativeGenerator(NativeSession& session) : session_(session) { session_.add(this); }
  /// invalid_argument where what it runs on is gone.
  void open() const {
    session_.session();
    if (closed_) throw RuntimeFailure({Code::invalid_argument, "the sequence is closed"});
  }

  NativeSession& session_;  // kept alive by Python
  std::string method_;
  Sequence* sequence_ = nullptr;  // the session's; null: the session's own states
  bool closed_ = false;
  std::vector<DispatchTime> profile_;
  std::unique_ptr<Generator> generator_;
};

void NativeSession::setAdapterScale(const std::string& name, float scale) {
  const nb::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  for (const NativeGenerator* g : generators_) {
    if (g->generator() && g->generator()->running())
      check({Code::invalid_argument, "an adapter's scale cannot change while a generation is under way"});
  }
  check(session().setAdapterScale(name, scale));
  for (const NativeGenerator* g : generators_)
    if (g->generator()) check(g->generator()->rollback(0));
}

/// The report on a program without loading weights.
std::string inspect(const std::string& path, const std::vector<std::string>& data_files) {
  SessionConfig config;
  config.inspect_only = true;
  config.source = unwrap(openFileSource(path));
  for (const std::string& file : data_files) config.data_files.push_back(unwrap(openFileSource(file)));
  Task<Result<std::unique_ptr<Session>>> task = Session::load(std::move(config));
  task.start();
  if (!task.done()) throw RuntimeFailure({Code::internal, "reading a file did not end"});
  return unwrap(task.take())->inspectJson();
}

}  // namespace
}  // namespace etwgpu

NB_MODULE(_native, m) {
  using namespace etwgpu;
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const RuntimeFailure& e) {
      const std::string code(codeName(e.status.code()));
      const nb::object type = nb::module_::import_("executorch_webgpu.errors").attr("error_class")(code);
      PyErr_SetString(type.ptr(), e.what());
    }
  });
  nb::class_<NativeSession>(m, "Session")
      .def("run", &NativeSession::run, "method"_a, "inputs"_a)
      .def("reset", &NativeSession::reset)
      .def("tune", &NativeSession::tune, "method"_a, "budget_ms"_a)
      .def("set_adapter_scale", &NativeSession::setAdapterScale, "name"_a, "scale"_a)
      .def("adapter_scales", &NativeSession::adapterScales)
      .def("methods", &NativeSession::methods)
      .def("memory_report", &NativeSession::memory)
      .def("last_stats", &NativeSession::stats)
      .def("capabilities", &NativeSession::capabilities)
      .def("inspect_json", &NativeSession::inspectJson)
      .def("close", &NativeSession::close)
      .def("_destroy_device", &NativeSession::destroyDevice);
  nb::class_<NativeGenerator>(m, "Generator")
      .def(nb::init<NativeSession&, const std::string&>(), "session"_a, "method"_a = "forward", nb::keep_alive<1, 2>())
      .def("begin", &NativeGenerator::begin, "ids"_a, nb::kw_only(), "max_tokens"_a = INT64_MAX,
           "stop_tokens"_a = std::vector<int32_t>(), "temperature"_a = 0.0f, "top_k"_a = 0, "top_p"_a = 1.0f,
           "min_p"_a = 0.0f, "repetition_penalty"_a = 1.0f, "seed"_a = 0, "logprobs"_a = false, "chunk"_a = 0,
           "masked"_a = false, "sliding"_a = false, "sinks"_a = 4, "keep"_a = -1, "draft_tokens"_a = 0,
           "draft_ngram"_a = 3)
      .def("new_sequence", &NativeGenerator::newSequence, nb::rv_policy::take_ownership, nb::keep_alive<0, 1>())
      .def("close", &NativeGenerator::close)
      .def("reset", &NativeGenerator::reset)
      .def_prop_ro("state_bytes", &NativeGenerator::stateBytes)
      .def("allow", &NativeGenerator::allow, "mask"_a)
      .def("next", &NativeGenerator::next)
      .def("end", &NativeGenerator::end)
      .def("abort", &NativeGenerator::abort)
      .def("rollback", &NativeGenerator::rollback, "position"_a)
      .def("save", &NativeGenerator::save)
      .def("restore", &NativeGenerator::restore, "saved"_a)
      .def_prop_ro("finish_reason", &NativeGenerator::finishReason)
      .def_prop_ro("speculation", &NativeGenerator::speculation)
      .def("last_stats", &NativeGenerator::stats)
      .def("set_profiling", &NativeGenerator::setProfiling, "on"_a)
      .def("last_profile", &NativeGenerator::profile)
      .def_prop_ro("position", &NativeGenerator::position)
      .def_prop_ro("capacity", &NativeGenerator::capacity)
      .def_prop_ro("vocabulary", &NativeGenerator::vocabulary)
      .def_prop_ro("tokens", &NativeGenerator::tokens);
  m.def("load", &NativeSession::load, nb::rv_policy::take_ownership, "path"_a, "data_files"_a, "device"_a,
        "get_proc_address"_a, "precision"_a, "activations"_a, "kv_cache"_a, "threads"_a, "max_tier"_a, "memory_cap"_a,
        "disabled_passes"_a, "default_limits"_a, "wide_kernels"_a, "emulate_matrices"_a, "max_binding_bytes"_a,
        "tuning"_a, "adapters"_a, "progress"_a.none());
  m.def(
      "check_adapter",
      [](uintptr_t get_proc_address) {
        check(loadWebGpu(reinterpret_cast<WGPUProcGetProcAddress>(get_proc_address)));
        const nb::gil_scoped_release release;
        unwrap(runBlocking(Device::create({})));
      },
      "get_proc_address"_a);
  m.def("inspect", &inspect, "path"_a, "data_files"_a);
  m.def(
      "kernel_names",
      [](const std::string& device) {
        std::vector<std::string> names;
        for (const auto name : device == "cpu" ? cpuKernelNames() : gpuKernelNames()) names.emplace_back(name);
        return names;
      },
      "device"_a);
  m.def("error_codes", [] {
    std::vector<std::string> names;
    for (int i = 0; i < kCodeCount; ++i) names.emplace_back(codeName(Code(i)));
    return names;
  });
}
