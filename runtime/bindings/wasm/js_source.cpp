#include "runtime/bindings/wasm/js_source.h"

#include <emscripten/emscripten.h>

namespace etwgpu {
namespace {

using ReadCompletion = Completion<Status>;

/// What JavaScript sees of a ReadRequest; doubles hold every offset below 2^53 and need no struct layout of the
/// compiler's.
struct WireRequest {
  double offset, size, host, gpu, gpu_offset;
};

}  // namespace

extern "C" {
/// Serves `count` requests in order of offset and calls etwgpu_source_done with the same token, later or inside the
/// call. The requests are copied before it returns.
extern void etwgpu_source_read(int source, const double* requests, int count, void* token);
}

namespace {

class JsSource final : public DataSource {
 public:
  JsSource(int id, std::string name, uint64_t size) : id_(id), name_(std::move(name)), size_(size) {}
  std::string name() const override { return name_; }
  uint64_t size() const override { return size_; }

  Task<Status> read(std::vector<ReadRequest> requests) override {
    if (requests.empty()) co_return Status();
    std::vector<WireRequest> wire;
    wire.reserve(requests.size());
    for (const ReadRequest& r : requests) {
      wire.push_back({double(r.offset), double(r.size), double(uintptr_t(r.host)), double(uintptr_t(r.gpu)),
                      double(r.gpu_offset)});
    }
    co_return co_await awaitCallback<Status>([&](ReadCompletion* completion) {
      etwgpu_source_read(id_, &wire.data()->offset, int(wire.size()), completion);
    });
  }

 private:
  int id_;
  std::string name_;
  uint64_t size_;
};

}  // namespace

std::unique_ptr<DataSource> makeJsSource(int id, std::string name, uint64_t size) {
  return std::make_unique<JsSource>(id, std::move(name), size);
}

/// The end of an etwgpu_source_read: code 0, or a Code with a message of `length` bytes.
extern "C" EMSCRIPTEN_KEEPALIVE void etwgpu_source_done(void* token, int code, const char* message, int length) {
  const Code c = code >= 0 && code < kCodeCount ? Code(code) : Code::internal;
  static_cast<ReadCompletion*>(token)->resolve(c == Code::ok ? Status()
                                                             : Status(c, std::string(message, size_t(length))));
}

}  // namespace etwgpu
