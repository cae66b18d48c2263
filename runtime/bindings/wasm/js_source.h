// A data source whose bytes JavaScript serves: a download in progress, a Blob, anything that can be read forward.
#pragma once

#include <memory>
#include <string>

#include "runtime/core/data_source.h"

namespace etwgpu {

/// `id`: what JavaScript knows the source by. `size`: 0 where it is not known.
std::unique_ptr<DataSource> makeJsSource(int id, std::string name, uint64_t size);

}  // namespace etwgpu
