#include "runtime/program/kernel_names.h"

namespace etwgpu {
namespace {

constexpr KernelName kNames[] = {
#include "runtime/program/kernel_names.inc"
};

}  // namespace

const KernelName* findKernelName(std::string_view name, std::string_view overload) {
  for (const KernelName& k : kNames) {
    if (!k.name.empty() && k.name == name && k.overload == overload) return &k;
  }
  return nullptr;
}

const KernelName* findKernelSchema(std::string_view kernel) {
  for (const KernelName& k : kNames) {
    if (k.kernel == kernel) return &k;
  }
  return nullptr;
}

std::string functionalName(std::string_view name, std::string_view overload) {
  if (const KernelName* known = findKernelName(name, overload)) return std::string(known->kernel);
  std::string s(name);
  if (const size_t colons = s.find("::"); colons != std::string::npos) s.replace(colons, 2, ".");
  std::string_view base = overload;
  if (base == "out" || base.empty()) base = "default";
  if (base.size() > 4 && base.substr(base.size() - 4) == "_out") base.remove_suffix(4);
  return s + "." + std::string(base);
}

}  // namespace etwgpu
