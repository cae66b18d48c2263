// Values between Python and the runtime; failures become exceptions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
// without its caster in every file that converts it a type is taken for a class
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "runtime/executor/session.h"

namespace etwgpu {

namespace nb = nanobind;

/// Becomes the class of executorch_webgpu.errors that belongs to the code.
struct RuntimeFailure : std::exception {
  explicit RuntimeFailure(Status s) : status(std::move(s)) {}
  const char* what() const noexcept override { return status.message().c_str(); }
  Status status;
};

inline void check(const Status& status) {
  if (!status.ok()) throw RuntimeFailure(status);
}
template <class T>
T unwrap(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

/// An array of numpy or another library on the CPU, contiguous; read only.
using InputArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

/// A number, or a view of an array, which goes into `arrays` and must outlive the view.
Input toInput(nb::handle h, std::vector<InputArray>& arrays);
/// Tensors become numpy arrays that own their bytes.
nb::object toPython(OutputValue value);

nb::list specs(const std::vector<ValueSpec>& values);
nb::dict statsOf(const ExecuteStats& stats);
nb::list profileOf(const std::vector<DispatchTime>& times);

}  // namespace etwgpu
