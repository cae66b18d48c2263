"""Errors of the runtime: one class per code of runtime/core/status.h, all derived from ExecuTorchWebGPUError."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any


class ExecuTorchWebGPUError(RuntimeError):
    """Base of all errors of the runtime. `code` is the stable lower-case name, as in the web package."""

    code = "internal"


class InvalidArgumentError(ExecuTorchWebGPUError, ValueError):
    """The caller passed something that the method does not accept."""

    code = "invalid_argument"


class InvalidProgramError(ExecuTorchWebGPUError):
    """The file is damaged."""

    code = "invalid_program"


class NotAProgramError(ExecuTorchWebGPUError):
    """The file was never a program: an HTML page, a Git-LFS pointer, an archive …"""

    code = "not_a_program"


class UnsupportedVersionError(ExecuTorchWebGPUError):
    """Written by a newer exporter."""

    code = "unsupported_version"


class UnsupportedOperatorError(ExecuTorchWebGPUError):
    """No kernel serves an operator of the program; the message names all of them with counts."""

    code = "unsupported_operator"


class DataMissingError(ExecuTorchWebGPUError):
    """A weight is in none of the given files."""

    code = "data_missing"


class OutOfMemoryError(ExecuTorchWebGPUError, MemoryError):
    """The device or the machine has no memory left."""

    code = "out_of_memory"


class LimitExceededError(ExecuTorchWebGPUError):
    """Beyond a limit of the device or a configured cap."""

    code = "limit_exceeded"


class NoAdapterError(ExecuTorchWebGPUError):
    """No WebGPU adapter."""

    code = "no_adapter"


class DeviceLostError(ExecuTorchWebGPUError):
    """The GPU device is gone: load the program again."""

    code = "device_lost"


class GPUError(ExecuTorchWebGPUError):
    """WebGPU reported an error."""

    code = "gpu_error"


class FileError(ExecuTorchWebGPUError, OSError):
    """A file could not be read."""

    code = "io_error"


class CancelledError(ExecuTorchWebGPUError):
    """The progress callback returned False."""

    code = "cancelled"


class SavedStateError(ExecuTorchWebGPUError, ValueError):
    """A saved state that is damaged or belongs to another model; nothing was changed."""

    code = "saved_state"


class NonFiniteError(ExecuTorchWebGPUError, ArithmeticError):
    """With check_values=True: an operator gave a NaN or an infinity; the message names it."""

    code = "non_finite"


class InternalError(ExecuTorchWebGPUError):
    """A defect of the runtime."""

    code = "internal"


class PackageMissingError(ExecuTorchWebGPUError, ImportError):
    """An optional package that was asked for is not installed."""

    code = "package_missing"


_CLASSES = {
    c.code: c
    for c in (
        InvalidArgumentError,
        InvalidProgramError,
        NotAProgramError,
        UnsupportedVersionError,
        UnsupportedOperatorError,
        DataMissingError,
        OutOfMemoryError,
        LimitExceededError,
        NoAdapterError,
        DeviceLostError,
        GPUError,
        FileError,
        CancelledError,
        SavedStateError,
        NonFiniteError,
        InternalError,
    )
}


def check_number(name: str, value: Any, low: float, high: float, whole: bool = False) -> Any:
    """The value as an int or, unless it is to be whole, a float: numpy's and other kinds of numbers are taken, too.

    Raises InvalidArgumentError, which names the argument, unless low ≤ value ≤ high and it is finite."""
    try:
        if not isinstance(value, bool) and (whole or isinstance(value, numbers.Real)):
            number = operator.index(value) if whole else value
            if low <= number <= high and math.isfinite(number):
                return number if whole else float(number)
    except (TypeError, OverflowError):  # no whole number; one that no float holds
        pass
    kind = "a whole number " if whole else ""
    wanted = f"{kind}between {low} and {high}" if low > -math.inf else "a finite number"
    raise InvalidArgumentError(f"{name}: {value!r} is not {wanted}")


def check_text(name: str, value: Any) -> str:
    """The value. Raises InvalidArgumentError, which names the argument, unless it is a string."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name}: {value!r} is no string")
    return value


def error_class(code: str) -> type[ExecuTorchWebGPUError]:
    """The class of an error code; the native module calls this."""
    return _CLASSES.get(code, ExecuTorchWebGPUError)
