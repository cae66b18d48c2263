// Adapters as peft saves them. Keys of the tensors: base_model.model.<path of the linear>.lora_A.weight [r, K] and
// .lora_B.weight [N, r]. The change of a weight is B · A · alpha / r, with rslora alpha / sqrt(r)
// (https://huggingface.co/docs/peft: LoraConfig).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/core/digest.h"
#include "runtime/executor/adapters.h"
#include "runtime/program/json_value.h"
#include "runtime/program/safetensors.h"

namespace etwgpu {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";

struct Config {
  double alpha = 0;
  bool rank_stabilised = false;
  std::vector<std::pair<std::string, double>> alphas;  // of modules whose path ends with the name
};

class Reader {
 public:
  Reader(AdapterFiles& files, uint64_t memory_cap) : files_(files), cap_(memory_cap) {}

  Task<Result<Adapter>> run() {
    ETWGPU_CO_TRY(readConfig());
    ETWGPU_CO_ASSIGN(SafeTensors tensors, co_await readSafeTensors(*files_.weights, cap_));
    ETWGPU_CO_TRY(collect(tensors));
    ETWGPU_CO_TRY(co_await readTensors(tensors));
    ETWGPU_CO_TRY(finish(tensors));
    co_return std::move(adapter_);
  }

 private:
  Status refuse(std::string message) const {
    return {Code::invalid_argument, "adapter '" + files_.name + "': " + std::move(message)};
  }
  Status damaged(std::string message) const {
    return {Code::invalid_program, files_.weights->name() + ": " + std::move(message)};
  }

  Status readConfig() {
    adapter_.name = files_.name;
    Result<JsonValue> json = parseJson(files_.config);
    if (!json.ok() || !json->is(JsonValue::Kind::object)) return refuse("adapter_config.json is no JSON object");
    const auto on = [&](const char* field) {
      const JsonValue* v = json->find(field);
      return v && v->is(JsonValue::Kind::boolean) && v->boolean;
    };
    const JsonValue* type = json->find("peft_type");
    if (!type || type->string != "LORA")
      return refuse("adapter_config.json has peft_type '" + (type ? type->string : "") + "'; supported is LORA");
    for (const char* field : {"use_dora", "lora_bias", "use_qalora"})
      if (on(field)) return refuse(std::string(field) + " is not supported");
    const JsonValue* bias = json->find("bias");
    if (bias && bias->is(JsonValue::Kind::string) && bias->string != "none")
      return refuse("bias '" + bias->string + "' is not supported; it must be 'none'");
    const JsonValue* alpha = json->find("lora_alpha");
    if (!alpha || !alpha->is(JsonValue::Kind::number) || !std::isfinite(alpha->number))
      return refuse("adapter_config.json lacks the number lora_alpha");
    config_.alpha = alpha->number;
    config_.rank_stabilised = on("use_rslora");
    const JsonValue* alphas = json->find("alpha_pattern");
    for (size_t i = 0; alphas && i < alphas->members.size(); ++i) {
      const auto& [name, value] = alphas->members[i];
      if (!value.is(JsonValue::Kind::number) || name.find_first_of("*+?[](){}|^$\\") != std::string::npos)
        return refuse("alpha_pattern '" + name + "': supported are names of modules with numbers");
      config_.alphas.emplace_back(name, value.number);
    }
    return {};
  }

  double alphaOf(std::string_view path) const {
    for (const auto& [name, alpha] : config_.alphas) {
      const bool ends = path.ends_with(name);
      if (ends && (path.size() == name.size() || path[path.size() - name.size() - 1] == '.')) return alpha;
    }
    return config_.alpha;
  }

  /// "….lora_A.weight" or "….lora_A.<adapter>.weight" → path and whether it is A.
  static bool split(std::string_view key, std::string_view& path, bool& is_a) {
    if (!key.ends_with(".weight")) return false;
    for (const bool a : {true, false}) {
      const size_t at = key.rfind(a ? ".lora_A." : ".lora_B.");
      if (at == std::string_view::npos) continue;
      path = key.substr(0, at);
      if (path.starts_with(kPrefix)) path.remove_prefix(kPrefix.size());
      is_a = a;
      return !path.empty();
    }
    return false;
  }

  /// What belongs together, from the names and shapes alone.
  Status collect(const SafeTensors& tensors) {
    uint64_t floats = 0;
    for (const SafeTensors::Entry& e : tensors.entries) {
      std::string_view path;
      bool is_a = false;
      if (!split(e.name, path, is_a))
        return refuse("tensor '" + e.name + "' is not supported; there are lora_A and lora_B of linears only");
      if (!isFloating(e.dtype) || e.sizes.size() != 2 || e.sizes[0] < 1 || e.sizes[1] < 1)
        return damaged("tensor '" + e.name + "' is " + std::string(dtypeName(e.dtype)) + sizesToString(e.sizes) +
                       ", not a matrix of floating point numbers");
      const int64_t rank = e.sizes[is_a ? 0 : 1];
      if (rank > kMaxAdapterRank)
        return refuse(format("tensor '%s' has rank %lld, supported is up to %lld", e.name.c_str(), (long long)rank,
                             (long long)kMaxAdapterRank));
      auto it = std::find_if(adapter_.modules.begin(), adapter_.modules.end(),
                             [&](const AdapterModule& m) { return m.path == path; });
      if (it == adapter_.modules.end()) {
        adapter_.modules.emplace_back();
        it = adapter_.modules.end() - 1;
        it->path = std::string(path);
        it->rank = rank;
      }
      if (it->rank != rank || (is_a ? it->inputs : it->outputs) != 0)
        return damaged("lora_A and lora_B of '" + it->path + "' do not belong together");
      (is_a ? it->inputs : it->outputs) = e.sizes[is_a ? 1 : 0];
      places_.emplace_back(size_t(it - adapter_.modules.begin()), is_a);
      floats += uint64_t(elementCount(e.sizes));
      if (floats > cap_ / sizeof(float))
        return {Code::limit_exceeded, format("%s: its tensors do not fit the memory cap of %llu bytes",
                                             files_.weights->name().c_str(), (unsigned long long)cap_)};
    }
    for (const AdapterModule& m : adapter_.modules)
      if (!m.inputs || !m.outputs) return damaged("'" + m.path + "' lacks lora_A or lora_B");
    if (adapter_.modules.empty()) return refuse("it has no tensors");
    return {};
  }

  Task<Status> readTensors(const SafeTensors& tensors) {
    std::vector<ReadRequest> requests;
    for (const SafeTensors::Entry& e : tensors.entries) {
      bytes_.emplace_back(size_t(e.range.size));
      ReadRequest request;
      request.offset = e.range.offset;
      request.size = e.range.size;
      request.host = bytes_.back().data();
      requests.push_back(request);
    }
    co_return co_await files_.weights->read(std::move(requests));
  }

  static std::vector<float> toFloats(DType dtype, const std::vector<uint8_t>& bytes) {
    std::vector<float> out(bytes.size() / dtypeSize(dtype));
    for (size_t i = 0; i < out.size(); ++i) {
      uint16_t half = 0;
      double wide = 0;
      if (dtype == DType::f32) {
        std::memcpy(&out[i], &bytes[4 * i], 4);
      } else if (dtype == DType::f64) {
        std::memcpy(&wide, &bytes[8 * i], 8);
        out[i] = float(wide);
      } else {
        std::memcpy(&half, &bytes[2 * i], 2);
        out[i] = dtype == DType::f16 ? halfToFloat(half) : bfloatToFloat(half);
      }
    }
    return out;
  }

  Status finish(const SafeTensors& tensors) {
    Digest digest;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const SafeTensors::Entry& e = tensors.entries[i];
      AdapterModule& m = adapter_.modules[places_[i].first];
      digest.add({reinterpret_cast<const uint8_t*>(e.name.data()), e.name.size()});
      digest.add(bytes_[i]);
      std::vector<float> floats = toFloats(e.dtype, bytes_[i]);
      bytes_[i] = {};
      for (const float f : floats)
        if (!std::isfinite(f)) return damaged("tensor '" + e.name + "' holds a number that is not finite");
      if (places_[i].second) {
        m.a = std::move(floats);
        continue;
      }
      const double rank = double(m.rank);
      const double scale = alphaOf(m.path) / (config_.rank_stabilised ? std::sqrt(rank) : rank);
      for (float& f : floats) f = float(f * scale);
      m.b = std::move(floats);
    }
    adapter_.digest = digest.value();
    return {};
  }

  AdapterFiles& files_;
  const uint64_t cap_;
  Config config_;
  Adapter adapter_;
  std::vector<std::pair<size_t, bool>> places_;  // of each tensor: its module, and whether it is A
  std::vector<std::vector<uint8_t>> bytes_;
};

}  // namespace

Task<Result<Adapter>> readAdapter(AdapterFiles& files, uint64_t memory_cap) {
  if (!files.weights) co_return Status(Code::invalid_argument, "adapter '" + files.name + "': no weights given");
  Reader reader(files, memory_cap);
  co_return co_await reader.run();
}

}  // namespace etwgpu
