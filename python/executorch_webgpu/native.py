"""Loads the native module, or says why it cannot be: a processor without its instructions would end the process."""

from __future__ import annotations

from pathlib import Path

__all__ = ["_native"]

# As /proc/cpuinfo names what x86-64-v3 adds (abm: lzcnt), and the AES that Highway counts to AVX2.
_X86_64_V3 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "aes", "pclmulqdq")


def missing_instructions(arch: str, cpuinfo: str) -> list[str]:
    """What a module built for `arch` ("x86_64 x86-64-v3") needs and the processor lacks; nothing where that is
    unknown."""
    flags = [line.partition(":")[2].split() for line in cpuinfo.splitlines() if line.startswith("flags")]
    if not flags or arch.split() != ["x86_64", "x86-64-v3"]:
        return []
    return [f for f in _X86_64_V3 if f not in flags[0]]


def _check_processor() -> None:
    try:
        arch = (Path(__file__).parent / "_native_arch.txt").read_text()
        cpuinfo = Path("/proc/cpuinfo").read_text()
    except OSError:  # another system, or another build
        return
    if missing := missing_instructions(arch, cpuinfo):
        raise ImportError(
            f"executorch_webgpu was built for {arch.split()[1]}, and this processor lacks {', '.join(missing)}: build "
            "it with cmake -D ETWGPU_NATIVE_ARCH=x86-64"
        )


_check_processor()
try:
    from executorch_webgpu import _native
except ImportError as error:
    raise ImportError(
        f"the native module of executorch_webgpu is not there: `make build` makes it ({error})"
    ) from error
