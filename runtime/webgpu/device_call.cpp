#include "runtime/webgpu/device_call.h"

namespace etwgpu {
namespace {

struct Call {
  std::vector<DelegateArg> inputs, outputs;
  std::vector<OutputValue> values;  // of the outputs
};

Status addInput(Call& call, const Input& input, bool on_gpu) {
  const size_t k = call.inputs.size();
  DelegateArg& arg = call.inputs.emplace_back();
  if (const auto* view = std::get_if<TensorView>(&input)) {
    if (!on_gpu && !view->data && view->count() != 0)
      return Status(Code::invalid_argument, format("input %zu has no data", k));
    arg.tensor = *view;
  } else if (const auto* i = std::get_if<int64_t>(&input)) {
    arg.is_int = true;
    arg.integer = *i;
  } else {
    return Status(Code::invalid_argument, format("input %zu must be a tensor or an integer", k));
  }
  return {};
}

Status addOutput(Call& call, const Graph& graph, std::optional<DeviceBuffer>& place) {
  const size_t k = call.outputs.size();
  const ValueId id = graph.outputs[k].value;
  DelegateArg& arg = call.outputs.emplace_back();
  OutputValue& value = call.values.emplace_back();
  arg.is_int = id == kNoValue;
  if (arg.is_int) {
    if (place && place->buffer)
      return Status(Code::invalid_argument, format("output %zu is a number, which goes into no buffer", k));
    place.reset();
  } else {
    HostTensor& host = value.emplace<HostTensor>();
    if (!place) host.bytes.resize(size_t(graph.maxBytes(id)));
    arg.tensor = {graph.value(id).dtype, {}, host.bytes.data(), {}, nullptr};
  }
  return {};
}

Status makeCall(Call& call, const Graph& graph, std::span<const Input> inputs, DevicePlaces& places) {
  places.inputs.resize(inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) ETWGPU_TRY(addInput(call, inputs[k], places.inputs[k].has_value()));
  const size_t outputs = graph.outputs.size(), given = places.outputs.size();
  if (given > 1 && given != outputs)
    return Status(Code::invalid_argument, format("places for %zu outputs, but there are %zu", given, outputs));
  places.outputs.resize(outputs, given ? places.outputs[0] : std::nullopt);
  for (size_t k = 0; k < outputs; ++k) ETWGPU_TRY(addOutput(call, graph, places.outputs[k]));
  return {};
}

void takeResults(Call& call) {
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    const DelegateArg& arg = call.outputs[k];
    if (arg.is_int) {
      call.values[k] = arg.integer;
      continue;
    }
    HostTensor& host = std::get<HostTensor>(call.values[k]);
    host.dtype = arg.tensor.dtype;
    host.sizes = arg.tensor.sizes;
    if (!host.bytes.empty()) host.bytes.resize(arg.tensor.bytes());
  }
}

}  // namespace

bool DevicePlaces::buffers() const {
  for (const auto* list : {&inputs, &outputs})
    for (const auto& place : *list)
      if (place && place->buffer) return true;
  return false;
}

Task<Result<std::vector<OutputValue>>> runOnDevice(Session& session, std::string method, std::vector<Input> inputs,
                                                   DevicePlaces& places) {
  Delegate* delegate = session.soleDelegate(method);
  if (!delegate) {
    co_return Status(Code::invalid_argument,
                     "there is no method " + method +
                         ", or parts of it run on the CPU and need their tensors there, not in GPU buffers");
  }
  Call call;
  ETWGPU_CO_TRY(makeCall(call, delegate->graph(), inputs, places));
  ExecuteOptions options;
  options.places = &places;
  ETWGPU_CO_TRY(co_await delegate->execute(call.inputs, call.outputs, options));
  takeResults(call);
  co_return std::move(call.values);
}

}  // namespace etwgpu
