"""Builds the package: the native module by CMake, as `make build` does, and the files of schema/ beside the modules.

tools/setup.sh installs the tools that this needs, tools/env.sh finds them. Everything else is in pyproject.toml.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
BUILD = "cmake --preset native && cmake --build --preset native --target etwgpu_python"


class BuildPackage(build_py):
    def run(self):
        package = ROOT / "python/executorch_webgpu"
        module = package / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
        built = subprocess.run(["bash", "-c", f". tools/env.sh && {BUILD}"], cwd=ROOT).returncode == 0
        if not built or not module.exists():
            sys.exit(
                f"setup.py: {module.name} could not be built. Run tools/setup.sh, which installs what the build needs, "
                "and build for the Python of its environment ($VENV, see tools/env.sh)."
            )
        super().run()
        if not self.editable_mode:  # from the source tree the package finds them in the repository
            target = Path(self.build_lib) / "executorch_webgpu/schema"
            target.mkdir(parents=True, exist_ok=True)
            for file in (ROOT / "schema").iterdir():
                shutil.copy(file, target)


class NativeDistribution(Distribution):
    """The wheel is for one platform and one Python."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"build_py": BuildPackage}, distclass=NativeDistribution)
