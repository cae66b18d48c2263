# Source this (bash): the environment in which the project is built and tested. It installs nothing; see setup.sh.
# Every variable can be set beforehand to use another copy of a tool.

ETWGPU_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export ETWGPU_ROOT
export ETWGPU_CACHE=${ETWGPU_CACHE:-$HOME/.cache/executorch-webgpu}
export VENV=${VENV:-$ETWGPU_CACHE/venv}

# The first file of that name below the venv's packages, or nothing (never an error: the caller may have set -e).
_etwgpu_find() {
  find "$VENV"/lib/python3*/site-packages/"$1" -name "$2" 2>/dev/null | head -1 || true
}

_etwgpu_prepend_path() {
  case ":$PATH:" in
    *":$1:"*) ;;
    *) PATH="$1:$PATH" ;;
  esac
}
_etwgpu_prepend_path "$ETWGPU_CACHE/bin"
_etwgpu_prepend_path "$VENV/bin"
export PATH

case ":${PYTHONPATH:-}:" in
  *":$ETWGPU_ROOT/python:"*) ;;
  *) export PYTHONPATH=$ETWGPU_ROOT/python${PYTHONPATH:+:$PYTHONPATH} ;;
esac

# An Emscripten of the machine's own (emsdk) goes before ours.
if ! command -v em++ >/dev/null && [ -e "$ETWGPU_CACHE/emscripten/env.sh" ]; then
  . "$ETWGPU_CACHE/emscripten/env.sh"
fi

if [ -z "${EMSCRIPTEN_ROOT:-}" ] && command -v em++ >/dev/null; then
  EMSCRIPTEN_ROOT=$(dirname "$(readlink -f "$(command -v em++)")")
  export EMSCRIPTEN_ROOT
fi
if command -v ccache >/dev/null; then
  # paths below the checkout are relative in the keys, so that a fresh clone finds what another one compiled
  export CCACHE_BASEDIR=$ETWGPU_ROOT CCACHE_NOHASHDIR=1
  export EM_COMPILER_WRAPPER=${EM_COMPILER_WRAPPER:-ccache}
fi

export CHROMIUM=${CHROMIUM:-$(command -v chromium chromium-headless-shell google-chrome | head -1)}
export FIREFOX=${FIREFOX:-$(command -v firefox-esr firefox | head -1)}

# Native Dawn: its library out of the Python package, and a software Vulkan driver where there is no GPU.
if [ -z "${ETWGPU_DAWN_MODULE:-}" ]; then
  ETWGPU_DAWN_MODULE=$(_etwgpu_find wgpudawn '*.so*')
fi
export ETWGPU_DAWN_MODULE
if [ -z "${VK_DRIVER_FILES:-}" ] && [ -e "$ETWGPU_CACHE/lavapipe/icd.json" ] && [ ! -e /dev/dri ] && [ ! -e /dev/nvidia0 ]; then
  export VK_DRIVER_FILES=$ETWGPU_CACHE/lavapipe/icd.json
  export VK_ICD_FILENAMES=$VK_DRIVER_FILES # the same, as older loaders call it
fi

# The schemas of .pte and .ptd, as the executorch package ships them.
if [ -z "${ETWGPU_EXECUTORCH_SCHEMA_DIR:-}" ]; then
  ETWGPU_EXECUTORCH_SCHEMA_DIR=$(dirname "$(_etwgpu_find executorch/schema program.fbs)")
fi
export ETWGPU_EXECUTORCH_SCHEMA_DIR
