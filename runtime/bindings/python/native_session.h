// executorch_webgpu._native.Session.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/bindings/python/conversion.h"
#include "runtime/executor/session.h"
#include "runtime/webgpu/device.h"

namespace etwgpu {

/// Name, path of adapter_model.safetensors, text of adapter_config.json, scale.
using AdapterPath = std::tuple<std::string, std::string, std::string, float>;

class NativeGenerator;

/// A Session with the device that it runs on.
class NativeSession {
 public:
  NativeSession() = default;
  ~NativeSession() { close(); }

  /// Frees all memory of the program; later calls are invalid_argument.
  void close();

  static NativeSession* load(const std::string& path, const std::vector<std::string>& data_files,
                             const std::string& device, uintptr_t get_proc_address, const std::string& precision,
                             const std::string& activations, const std::string& kv_cache, int threads,
                             const std::string& max_tier, uint64_t memory_cap, const std::string& disabled_passes,
                             bool default_limits, bool wide_kernels, int emulate_matrices, uint64_t max_binding_bytes,
                             const std::string& tuning, const std::vector<AdapterPath>& adapters, bool check_values,
                             nb::object progress);

  /// Runs a task of this session, which must not be closed: without the GIL, one at a time.
  template <class Make>
  auto exclusive(Make make) {
    nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    session();
    return drive(make());
  }

  nb::list run(const std::string& method, const nb::list& inputs);

  nb::dict tune(const std::string& method, double budget_ms);

  void add(NativeGenerator* generator) { generators_.insert(generator); }
  void remove(NativeGenerator* generator) { generators_.erase(generator); }

  void reset();

  /// Conversations, which were computed with another scale, are forgotten.
  void setAdapterScale(const std::string& name, float scale);
  nb::dict adapterScales() const;

  /// Frees a sequence of this session, if that has not done so by itself.
  void free(const Sequence* sequence);

  nb::list methods() const;

  nb::dict memory() const;

  nb::dict stats() const { return statsOf(session().lastStats()); }

  /// The delegate that a generator drives; invalid_argument where the method is more than one delegate call.
  Delegate& soleDelegate(const std::string& method);
  bool closed() const { return !session_; }
  Session& session() const;
  /// For tests: as a driver reset would, between two calls.
  void destroyDevice();

  /// None on the CPU.
  nb::object capabilities() const;

  std::string inspectJson() const { return session().inspectJson(); }

 private:
  std::unique_ptr<DataSource> open(const std::string& path);

  template <class T>
  T drive(Task<T> task) {
    if (device_) return runBlocking(std::move(task));
    task.start();
    if (!task.done()) return T(Status(Code::internal, "a task on the CPU did not end"));
    return task.take();
  }

  std::unique_ptr<Device> device_;  // outlives what is on it
  std::unique_ptr<Session> session_;
  std::set<NativeGenerator*> generators_;  // that refer to its delegates
  std::mutex mutex_;
};

}  // namespace etwgpu
