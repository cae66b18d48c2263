// Data sources over memory and files.
#pragma once

#include <memory>
#include <span>

#include "runtime/core/data_source.h"

namespace etwgpu {

/// Over bytes that it owns.
std::unique_ptr<DataSource> makeMemorySource(std::string name, std::vector<uint8_t> bytes);
/// Over bytes that the caller keeps alive.
std::unique_ptr<DataSource> makeMemoryView(std::string name, std::span<const uint8_t> bytes);
/// A file of the machine, mapped into memory (native builds). io_error where it can't be opened.
Result<std::unique_ptr<DataSource>> openFileSource(const std::string& path);

}  // namespace etwgpu
