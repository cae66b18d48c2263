// The preprocessor of our WGSL: see expandWgsl in runtime/executor/gpu_kernel.h.
#pragma once

#include <functional>
#include <string_view>

#include "runtime/executor/gpu_kernel.h"

namespace etwgpu {

/// The text of an include, or an empty view.
using WgslLookup = std::function<std::string_view(std::string_view)>;

/// expandWgsl with another table of sources, for tests. A file is included once, however often it is named; `enable`,
/// `requires` and `diagnostic` directives are moved to the top, where WGSL wants them.
/// Conditions: `NAME` and `!NAME` ("", "0" and "false" are false), `A == B`, `A != B` (a side that is no defined name
/// is a literal; at least one side must be defined), `A <= B` of numbers, joined by `&&` and `||` without parentheses;
/// `#elif`.
/// `#for NAME FIRST END` … `#endfor` repeats lines with `${NAME}` = FIRST … END − 1 (numbers or defined names): what
/// must be unrolled, or has a number in its name.
Result<std::string> expandWgsl(const WgslVariant& variant, const WgslLookup& lookup);

}  // namespace etwgpu
