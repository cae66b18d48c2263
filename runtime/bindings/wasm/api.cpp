// The C API of the WebAssembly module. Plain functions over numbers; outwards JSON or the records of values.h.
//
// An asynchronous function takes a request id and answers exactly once through the imported
//   etwgpu_complete(request, code, message, message_length, payload, payload_length)
// inside the call or later; message and payload are valid only during it. One asynchronous call a session at a time:
// the worker on the JavaScript side queues. Strings come in as pointer and length, and go out of synchronous functions
// as NUL-terminated text that is valid until the next call of the same function.
#include <emscripten/emscripten.h>

#include <map>
#include <memory>
#include <string>

#include "generated/build_id.h"
#include "runtime/bindings/wasm/detach.h"
#include "runtime/bindings/wasm/js_source.h"
#include "runtime/bindings/wasm/json.h"
#include "runtime/bindings/wasm/values.h"
#include "runtime/executor/session.h"
#include "runtime/llm/generator.h"
#include "runtime/llm/tuner.h"
#include "runtime/webgpu/device.h"
#include "runtime/webgpu/gpu_backend.h"

namespace etwgpu {

extern "C" void etwgpu_complete(int request, int code, const char* message, int message_length, const uint8_t* payload,
                                int payload_length);

/// A generated token, why it is the last one (FinishReason), and its log probability. 0: stop here.
extern "C" int etwgpu_token(int request, int token, int reason, float log_probability);
/// Fills in what the next token of a masked generation may be, a bit for each; then etwgpu_resume(token).
extern "C" void etwgpu_mask(int request, uint32_t* words, int count, void* token);
/// The next bytes of a saved state, to be copied.
extern "C" void etwgpu_state_piece(int request, const uint8_t* bytes, int length);
/// Lets the event loop handle what waits; then etwgpu_resume(token).
extern "C" void etwgpu_pause(void* token);

namespace {

/// A session with its own states, or another sequence of one: `session` is then the parent's.
struct LoadedSession {
  std::shared_ptr<Session> session;
  Sequence* sequence = nullptr;
  std::string method;  // of the generator
  std::unique_ptr<Generator> generator;
  std::vector<DispatchTime> profile;  // of the last step, where that is switched on
  bool busy = false;
  bool on_gpu = false;
  const Delegate* on_device = nullptr;  // that the last run went straight to; null: it went through the session
};

struct Module {
  std::unique_ptr<Device> device;
  std::map<int, LoadedSession> sessions;
  int next_session = 1;
  std::vector<AdapterFiles> adapters;  // of the next session
};

Module& module() {
  static Module instance;
  return instance;
}

void complete(int request, const Status& status, std::span<const uint8_t> payload = {}) {
  etwgpu_complete(request, int(status.code()), status.message().data(), int(status.message().size()), payload.data(),
                  int(payload.size()));
}
void complete(int request, std::string_view text) {
  complete(request, Status(), {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

Status noSession(int id) { return {Code::invalid_argument, format("there is no session %d", id)}; }

/// The session `id` if no call of it is under way.
Result<LoadedSession*> idle(int id) {
  const auto it = module().sessions.find(id);
  if (it == module().sessions.end()) return noSession(id);
  if (it->second.busy) return Status(Code::invalid_argument, "the session is busy with another call");
  return &it->second;
}
LoadedSession* find(int id) {
  const auto it = module().sessions.find(id);
  return it == module().sessions.end() ? nullptr : &it->second;
}

std::string capabilitiesJson() {
  const GpuCapabilities& c = module().device->capabilities();
  return JsonObject()
      .text("vendor", c.vendor)
      .text("architecture", c.architecture)
      .text("description", c.description)
      .flag("software", c.software)
      .flag("f16", c.f16)
      .flag("subgroups", c.subgroups)
      .flag("subgroupMatrix", c.subgroup_matrix)
      .flag("timestamps", module().device->hasTimestamps())
      .number("handle", double(uintptr_t(module().device->handle())))
      .take();
}

std::string statsJson(const ExecuteStats& s) {
  return JsonObject()
      .number("dispatches", s.dispatches)
      .number("submits", s.submits)
      .number("readBackBytes", double(s.read_back_bytes))
      .number("uploadBytes", double(s.upload_bytes))
      .take();
}

/// In a browser a computation on the CPU never waits by itself.
Task<void> pause() {
  auto awaiter = awaitCallback<int>([](Completion<int>* completion) { etwgpu_pause(completion); });
  co_await awaiter;
}

Task<Status> allow(Generator& generator, int request, std::vector<uint32_t>& words) {
  words.assign(size_t((generator.vocabulary() + 31) / 32), 0);
  auto awaiter = awaitCallback<int>(
      [&](Completion<int>* completion) { etwgpu_mask(request, words.data(), int(words.size()), completion); });
  co_await awaiter;
  co_return generator.allow(words);
}

/// The tokens go to etwgpu_token; nothing of JavaScript is waited for but masks. payload: what was reused, and the
/// reason.
Task<Status> generate(LoadedSession& s, int request, std::vector<int32_t> ids, GenerateOptions options,
                      std::string& payload) {
  const bool masked = options.masked;
  if (options.draft_tokens > 0) {
    Task<Result<Delegate*>> task =
        s.sequence ? s.sequence->verifier(s.method, kVerifyRows) : s.session->verifier(s.method, kVerifyRows);
    ETWGPU_CO_ASSIGN(Delegate * verifier, co_await task);
    s.generator->setVerifier(verifier);
  }
  std::vector<uint32_t> words;
  ETWGPU_CO_ASSIGN(const int64_t reused, s.generator->begin(std::move(ids), std::move(options)));
  Status status;
  for (;;) {
    if (masked && s.generator->finishReason() == FinishReason::none) {
      status = co_await allow(*s.generator, request, words);
      if (!status.ok()) break;
    }
    const auto token = co_await s.generator->next();
    status = token.status();
    if (!token.ok() || !*token) break;
    const GeneratedToken t = **token;
    if (!etwgpu_token(request, t.id, int(s.generator->finishReason()), t.log_probability)) break;
  }
  const Status ended = co_await s.generator->end();
  const SpeculationCounts& counts = s.generator->speculation();
  payload = JsonObject()
                .number("reused", double(reused))
                .number("reason", int(s.generator->finishReason()))
                .number("proposed", double(counts.proposed))
                .number("accepted", double(counts.accepted))
                .number("calls", double(counts.calls))
                .take();
  co_return status.ok() ? ended : status;
}

Task<Status> restoreState(Generator& generator, std::unique_ptr<DataSource> source) {
  co_return co_await generator.restore(*source);
}

/// Answers with the status of a task on the generator of an idle session.
template <class Make>
void withGenerator(int request, int id, Make make) {
  auto loaded = idle(id);
  if (!loaded.ok()) return complete(request, loaded.status());
  LoadedSession& s = **loaded;
  if (!s.generator) return complete(request, Status(Code::invalid_argument, "the session has no generator"));
  s.busy = true;
  detach(make(*s.generator), [request, &s](Status status) {
    s.busy = false;
    complete(request, status);
  });
}

/// Keeps a result that C callers read after the call.
const char* keep(std::string& slot, std::string text) {
  slot = std::move(text);
  return slot.c_str();
}

struct FreeDeleter {
  void operator()(uint8_t* p) const { std::free(p); }
};

Task<Status> runMethod(LoadedSession& loaded, std::string method, std::unique_ptr<uint8_t, FreeDeleter> bytes,
                       size_t size, std::vector<uint8_t>& payload) {
  ETWGPU_CO_ASSIGN(DecodedCall call, decodeCall({bytes.get(), size}));
  if (call.on_device && !loaded.on_gpu)
    co_return Status(Code::invalid_argument, "the model runs on the CPU, which has no use for GPU buffers");
  loaded.on_device = call.on_device ? loaded.session->soleDelegate(method) : nullptr;
  // the call may write to the states of the conversation, which begins anew
  if (loaded.generator && !loaded.sequence) ETWGPU_CO_TRY(loaded.generator->rollback(0));
  Task<Result<std::vector<OutputValue>>> run =
      call.on_device ? runOnDevice(*loaded.session, std::move(method), std::move(call.inputs), call.places)
                     : loaded.session->run(std::move(method), std::move(call.inputs));
  ETWGPU_CO_ASSIGN(auto outputs, co_await run);
  payload = encodeOutputs(outputs, call.places.outputs);
  co_return Status();
}

/// Another sequence of `parent`, which has a generator.
Task<Status> makeSequence(LoadedSession& parent, std::string& payload) {
  LoadedSession made;
  made.session = parent.session;
  made.method = parent.method;
  ETWGPU_CO_ASSIGN(made.sequence, co_await made.session->newSequence({made.method}));
  ETWGPU_CO_ASSIGN(made.generator, Generator::create(*made.sequence->soleDelegate(made.method)));
  made.generator->setPause(pause);
  const int id = module().next_session++;
  payload = JsonObject().number("session", id).number("stateBytes", double(made.sequence->stateBytes())).take();
  module().sessions.emplace(id, std::move(made));
  co_return Status();
}

}  // namespace

extern "C" {

/// Hash of the sources that this module was built from; the JavaScript around it has the same baked in.
EMSCRIPTEN_KEEPALIVE const char* etwgpu_build_id() { return kBuildId; }
/// Name of an error code, or nullptr beyond the last.
EMSCRIPTEN_KEEPALIVE const char* etwgpu_code_name(int code) {
  return code >= 0 && code < kCodeCount ? codeName(Code(code)).data() : nullptr;
}

/// Asks for an adapter and a device, which all sessions of this module then share; `existing`: handle of a device to
/// use instead, or 0. Payload: {"vendor", "architecture", "description", "f16", "subgroups", "timestamps", "handle"}.
EMSCRIPTEN_KEEPALIVE void etwgpu_device_create(int request, void* existing, int default_limits, int disable_f16,
                                               int disable_subgroups) {
  if (module().device && module().device->status().ok()) return complete(request, capabilitiesJson());
  DeviceOptions options;
  options.existing = static_cast<WGPUDevice>(existing);
  options.default_limits = default_limits;
  options.disable_f16 = disable_f16;
  options.disable_subgroups = disable_subgroups;
  detach(Device::create(options), [request](Result<std::unique_ptr<Device>> device) {
    if (!device.ok()) return complete(request, device.status());
    module().device = std::move(*device);
    complete(request, capabilitiesJson());
  });
}
/// As a driver reset would: for tests.
EMSCRIPTEN_KEEPALIVE void etwgpu_device_destroy() {
  if (module().device) module().device->destroy();
}
/// Gives the device back; sessions on it must be gone. Returns a code.
EMSCRIPTEN_KEEPALIVE int etwgpu_device_free() {
  if (!module().sessions.empty()) return int(Code::invalid_argument);
  module().device.reset();
  return 0;
}

/// An adapter of the session that is loaded next. `source`: what JavaScript serves adapter_model.safetensors by, of
/// `size` bytes (0: unknown); config: adapter_config.json.
EMSCRIPTEN_KEEPALIVE void etwgpu_adapter_add(const char* name, int name_length, int source, double size,
                                             const char* config, int config_length, float scale) {
  std::string text(name, size_t(name_length));
  auto weights = makeJsSource(source, "adapter '" + text + "'", uint64_t(size));
  module().adapters.push_back({std::move(text), std::string(config, size_t(config_length)), std::move(weights), scale});
}

/// `source`: what JavaScript serves the program by. device: DeviceKind; precision: Precision; activations: Activations;
/// max_tier: Tier; tuning: Tuning::text(). Payload: {"session": id}.
EMSCRIPTEN_KEEPALIVE void etwgpu_session_load(int request, int source, const char* name, int name_length, double size,
                                              int data_source, int device, int precision, int activations, int threads,
                                              int max_tier, double memory_cap, int check_values,
                                              const char* disabled_passes, int disabled_passes_length,
                                              const char* tuning, int tuning_length) {
  SessionConfig config;
  config.adapters = std::exchange(module().adapters, {});
  LoadOptions& options = config.options;
  auto tuned = Tuning::parse({tuning, size_t(tuning_length)});
  if (!tuned.ok()) return complete(request, tuned.status());
  options.tuning = std::move(*tuned);
  options.device = DeviceKind(device);
  options.precision = Precision(precision);
  options.activations = Activations(activations);
  options.threads = threads < 1 ? 1 : threads;
  options.max_tier = Tier(max_tier);
  if (memory_cap > 0) options.memory_cap = uint64_t(memory_cap);
  options.check_values = check_values;
  options.disabled_passes.assign(disabled_passes, size_t(disabled_passes_length));
  config.source = makeJsSource(source, std::string(name, size_t(name_length)), uint64_t(size));
  if (data_source)
    config.data_files.push_back(makeJsSource(data_source, std::string(name, size_t(name_length)) + " (.ptd)", 0));
  if (options.device == DeviceKind::webgpu) {
    if (!module().device) return complete(request, Status(Code::no_adapter, "no device was made"));
    if (Status s = module().device->status(); !s.ok()) return complete(request, s);
    config.backend = makeGpuBackend(*module().device, options);
  } else {
    config.backend = makeCpuBackend(options);
  }
  const bool on_gpu = options.device == DeviceKind::webgpu;
  detach(Session::load(std::move(config)), [request, on_gpu](Result<std::unique_ptr<Session>> session) {
    if (!session.ok()) return complete(request, session.status());
    const int id = module().next_session++;
    LoadedSession& loaded = module().sessions[id];
    loaded.session = std::shared_ptr<Session>(std::move(*session));
    loaded.on_gpu = on_gpu;
    complete(request, JsonObject().number("session", id).take());
  });
}

/// Before a generator is made: see tune(). Payload: {"tuning", "tokenMsBefore", "tokenMs", "chunkMsBefore", "chunkMs",
/// "candidates"}.
EMSCRIPTEN_KEEPALIVE void etwgpu_session_tune(int request, int id, const char* method, int method_length,
                                              double budget_ms) {
  auto loaded = idle(id);
  if (!loaded.ok()) return complete(request, loaded.status());
  LoadedSession& s = **loaded;
  if (s.generator) return complete(request, Status(Code::invalid_argument, "a generator uses the session"));
  s.busy = true;
  TuneOptions options;
  options.budget_ms = budget_ms;
  detach(tune(*s.session, std::string(method, size_t(method_length)), options),
         [request, &s](Result<TuneReport> report) {
           s.busy = false;
           if (!report.ok()) return complete(request, report.status());
           complete(request, JsonObject()
                                 .text("tuning", report->tuning.text())
                                 .number("tokenMsBefore", report->token_ms_before)
                                 .number("tokenMs", report->token_ms)
                                 .number("chunkMsBefore", report->chunk_ms_before)
                                 .number("chunkMs", report->chunk_ms)
                                 .number("candidates", report->candidates)
                                 .take());
         });
}

/// Returns a code: invalid_argument for an unknown or a busy session. The program is freed with the last of the session
/// and its sequences.
EMSCRIPTEN_KEEPALIVE int etwgpu_session_free(int id) {
  const auto loaded = idle(id);
  if (!loaded.ok()) return int(loaded.status().code());
  LoadedSession& s = **loaded;
  s.generator.reset();
  if (s.sequence) s.session->freeSequence(s.sequence);
  module().sessions.erase(id);
  return 0;
}

/// Another conversation on the session `id`, which has a generator: the functions of generators take its id, those for
/// freeing and resetting, too. Payload: {"session", "stateBytes"}.
EMSCRIPTEN_KEEPALIVE void etwgpu_sequence_create(int request, int id) {
  auto loaded = idle(id);
  if (!loaded.ok()) return complete(request, loaded.status());
  LoadedSession& s = **loaded;
  if (!s.generator) return complete(request, Status(Code::invalid_argument, "the session has no generator"));
  s.busy = true;
  auto payload = std::make_shared<std::string>();
  detach(makeSequence(s, *payload), [request, &s, payload](Status status) {
    s.busy = false;
    if (!status.ok()) return complete(request, status);
    complete(request, *payload);
  });
}

/// `inputs`: records of values.h, places behind the inputs, in memory from malloc, which this call takes over. Payload:
/// the outputs' records.
EMSCRIPTEN_KEEPALIVE void etwgpu_session_run(int request, int id, const char* method, int method_length,
                                             uint8_t* inputs, int inputs_length) {
  std::unique_ptr<uint8_t, FreeDeleter> bytes(inputs);
  auto loaded = idle(id);
  if (!loaded.ok()) return complete(request, loaded.status());
  LoadedSession& s = **loaded;
  s.busy = true;
  auto payload = std::make_shared<std::vector<uint8_t>>();
  detach(runMethod(s, std::string(method, size_t(method_length)), std::move(bytes), size_t(inputs_length), *payload),
         [request, &s, payload](Status status) {
           s.busy = false;
           complete(request, status, *payload);
         });
}

/// States back to their initial values, and an empty cache.
EMSCRIPTEN_KEEPALIVE void etwgpu_session_reset(int request, int id) {
  auto loaded = idle(id);
  if (!loaded.ok()) return complete(request, loaded.status());
  LoadedSession& s = **loaded;
  s.busy = true;
  detach(s.sequence ? s.sequence->reset() : s.session->reset(), [request, &s](Status status) {
    s.busy = false;
    if (status.ok() && s.generator) status = s.generator->rollback(0);
    complete(request, status);
  });
}

/// What an adapter counts from the next call on, in all sequences; conversations, which were computed with another
/// scale, are forgotten.
EMSCRIPTEN_KEEPALIVE void etwgpu_session_set_adapter_scale(int request, int id, const char* name, int name_length,
                                                           float scale) {
  auto loaded = idle(id);
  if (!loaded.ok()) return complete(request, loaded.status());
  const std::shared_ptr<Session> session = (*loaded)->session;
  for (const auto& [_, s] : module().sessions) {
    if (s.session == session && s.busy)
      return complete(request, Status(Code::invalid_argument, "a sequence of the model is busy"));
  }
  Status status = session->setAdapterScale({name, size_t(name_length)}, scale);
  for (auto& [_, s] : module().sessions)
    if (status.ok() && s.session == session && s.generator) status = s.generator->rollback(0);
  complete(request, status);
}

/// JSON of Session::inspectJson, or nullptr for an unknown session.
EMSCRIPTEN_KEEPALIVE const char* etwgpu_session_inspect(int id) {
  static std::string text;
  LoadedSession* s = find(id);
  return s ? keep(text, s->session->inspectJson()) : nullptr;
}
/// {"methods": [{"name", "constant", "gpuBuffers", "values"}]}, gpuBuffers: for runOnDevice(); values: the integers of
/// a constant method.
EMSCRIPTEN_KEEPALIVE const char* etwgpu_session_methods(int id) {
  static std::string text;
  LoadedSession* s = find(id);
  if (!s) return nullptr;
  std::string list;
  for (const MethodSpec& m : s->session->methods()) {
    std::string values;
    for (int64_t v : s->session->constantIntegers(m.name))
      values += (values.empty() ? "" : ",") + format("%lld", (long long)v);
    list += (list.empty() ? "" : ",") + JsonObject()
                                            .text("name", m.name)
                                            .flag("constant", m.constant)
                                            .flag("gpuBuffers", s->on_gpu && s->session->soleDelegate(m.name))
                                            .raw("values", "[" + values + "]")
                                            .take();
  }
  return keep(text, "[" + list + "]");
}
/// {"weights", "state", "arena", "other", "arenaWithoutReuse"} in bytes.
EMSCRIPTEN_KEEPALIVE const char* etwgpu_session_memory(int id) {
  static std::string text;
  LoadedSession* s = find(id);
  if (!s) return nullptr;
  const MemoryReport m = s->session->memory();
  return keep(text, JsonObject()
                        .number("weights", double(m.weights))
                        .number("state", double(m.state))
                        .number("arena", double(m.arena))
                        .number("other", double(m.other))
                        .number("arenaWithoutReuse", double(m.arena_without_reuse))
                        .take());
}
/// Counters of the last run or generated token.
EMSCRIPTEN_KEEPALIVE const char* etwgpu_session_stats(int id) {
  static std::string text;
  LoadedSession* s = find(id);
  if (!s) return nullptr;
  return keep(text, statsJson(s->generator   ? s->generator->lastStats()
                              : s->on_device ? s->on_device->lastStats()
                                             : s->session->lastStats()));
}

/// Switches the timing of dispatches (GPU) or nodes (CPU) of generated steps on or off. Returns a code.
EMSCRIPTEN_KEEPALIVE int etwgpu_session_set_profile(int id, int on) {
  LoadedSession* s = find(id);
  if (!s || !s->generator) return int(Code::invalid_argument);
  s->generator->profileInto(on ? &s->profile : nullptr);
  return 0;
}
/// [{"kernel", "node", "us", "bytes", "flops"}] of the last step.
EMSCRIPTEN_KEEPALIVE const char* etwgpu_session_profile(int id) {
  static std::string text;
  LoadedSession* s = find(id);
  if (!s) return nullptr;
  std::string list;
  for (const DispatchTime& t : s->profile) {
    list += (list.empty() ? "" : ",") + JsonObject()
                                            .text("kernel", t.kernel)
                                            .text("node", t.node)
                                            .number("us", t.microseconds)
                                            .number("bytes", t.bytes)
                                            .number("flops", t.flops)
                                            .take();
  }
  return keep(text, "[" + list + "]");
}

/// A generator over `method`. Payload: {"capacity", "vocabulary"}.
EMSCRIPTEN_KEEPALIVE void etwgpu_generator_create(int request, int id, const char* method, int method_length) {
  auto loaded = idle(id);
  if (!loaded.ok()) return complete(request, loaded.status());
  LoadedSession& s = **loaded;
  const std::string name(method, size_t(method_length));
  Delegate* delegate = s.session->soleDelegate(name);
  if (!delegate) {
    return complete(
        request, Status(Code::invalid_argument, "method '" + name + "' cannot generate: it is not one delegate call"));
  }
  auto generator = Generator::create(*delegate);
  if (!generator.ok()) return complete(request, generator.status());
  s.generator = std::move(*generator);
  s.method = name;
  s.generator->setPause(pause);
  complete(request, JsonObject()
                        .number("capacity", double(s.generator->capacity()))
                        .number("vocabulary", double(s.generator->vocabulary()))
                        .take());
}
/// Generates after the prompt `ids` until a token of `stops`, max_tokens, the end of the context, etwgpu_token's 0 or
/// etwgpu_generator_abort. The seed is a whole number below 2^53; chunk 0: automatic; masked: etwgpu_mask is asked
/// before each token; sliding, sinks, keep: see Overflow; draft_tokens, draft_ngram: see GenerateOptions. Payload:
/// {"reused", "reason", "proposed", "accepted", "calls"}.
EMSCRIPTEN_KEEPALIVE void etwgpu_generator_generate(int request, int id, const int32_t* ids, int count,
                                                    const int32_t* stops, int stop_count, double max_tokens,
                                                    float temperature, int top_k, float top_p, float min_p,
                                                    float repetition_penalty, double seed, int log_probabilities,
                                                    int chunk, int masked, int sliding, int sinks, int keep,
                                                    int draft_tokens, int draft_ngram) {
  auto loaded = idle(id);
  if (!loaded.ok()) return complete(request, loaded.status());
  LoadedSession& s = **loaded;
  if (!s.generator) return complete(request, Status(Code::invalid_argument, "the session has no generator"));
  s.busy = true;
  GenerateOptions options{max_tokens < 9e15 ? int64_t(max_tokens) : INT64_MAX,
                          std::vector<int32_t>(stops, stops + stop_count),
                          {temperature, top_k, top_p, min_p, repetition_penalty, uint64_t(seed)},
                          log_probabilities != 0,
                          chunk,
                          masked != 0,
                          sliding ? Overflow::sliding : Overflow::stop,
                          sinks,
                          keep,
                          draft_tokens,
                          draft_ngram};
  auto payload = std::make_shared<std::string>();
  detach(generate(s, request, std::vector<int32_t>(ids, ids + count), std::move(options), *payload),
         [request, &s, payload](Status status) {
           s.busy = false;
           if (!status.ok()) return complete(request, status);
           complete(request, *payload);
         });
}
/// Ends a generation under way after the step or chunk that is running.
EMSCRIPTEN_KEEPALIVE void etwgpu_generator_abort(int id) {
  LoadedSession* s = find(id);
  if (s && s->generator) s->generator->abort();
}
EMSCRIPTEN_KEEPALIVE void etwgpu_resume(void* token) { static_cast<Completion<int>*>(token)->resolve(0); }
/// Tokens in the cache, or -1 without a generator.
EMSCRIPTEN_KEEPALIVE int etwgpu_generator_position(int id) {
  LoadedSession* s = find(id);
  return s && s->generator ? int(s->generator->position()) : -1;
}
/// The pieces go to etwgpu_state_piece; see Generator::save.
EMSCRIPTEN_KEEPALIVE void etwgpu_generator_save(int request, int id) {
  withGenerator(request, id, [request](Generator& generator) {
    return generator.save([request](std::span<const uint8_t> piece) {
      etwgpu_state_piece(request, piece.data(), int(piece.size()));
      return Status();
    });
  });
}
/// `source`: what JavaScript serves the `size` bytes by; see Generator::restore.
EMSCRIPTEN_KEEPALIVE void etwgpu_generator_restore(int request, int id, int source, double size) {
  withGenerator(request, id, [source, size](Generator& generator) {
    return restoreState(generator, makeJsSource(source, "the saved state", uint64_t(size)));
  });
}

}  // extern "C"

}  // namespace etwgpu
