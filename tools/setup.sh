#!/bin/bash
# setup.sh [TARGET...]: install what the project is built and tested with (all of it without a target).
#
#   apt            compilers, cmake, GoogleTest, flatc and other Debian packages
#   venv           the Python environment of tools/requirements*.txt
#   webgpu-headers Dawn's webgpu.h, Highway, flatbuffers      emscripten  em++ >= 5 and its system libraries
#   tint           the WGSL validator                         lavapipe    a software Vulkan driver for native Dawn
#   chromium       firefox                                    node        npm packages of the workspace
#
# Debian packages aside, everything goes to $ETWGPU_CACHE (~/.cache/executorch-webgpu), so that a fresh clone finds it.
# What is there is reused; deleting a folder of the cache makes it again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
mkdir -p "$ETWGPU_CACHE"
exec 9>"$ETWGPU_CACHE/.lock"
flock 9 # another checkout may be doing the same

AS_ROOT=()
[ "$EUID" = 0 ] || AS_ROOT=(sudo)

say() { printf 'setup: %-15s %s\n' "$1" "$2"; }

# install_debian TARGET PACKAGE...: the missing ones of PACKAGE
install_debian() {
  local target=$1 package missing=()
  shift
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then
    say "$target" "reusing the installed packages"
    return
  fi
  say "$target" "installing ${missing[*]}"
  "${AS_ROOT[@]}" apt-get -qq -o DPkg::Lock::Timeout=600 update
  "${AS_ROOT[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
    -o DPkg::Lock::Timeout=600 install "${missing[@]}" >/dev/null
}

# cached TARGET MARKER: whether MARKER, the last file that the target's installer writes, is there
cached() {
  if [ -e "$2" ]; then
    say "$1" "reusing $(dirname "$2")"
    return 0
  fi
  say "$1" "installing into $(dirname "$2")"
  return 1
}

setup_apt() {
  local clang_version
  clang_version=$(apt-cache depends clang 2>/dev/null | sed -nE 's/.*Depends: clang-([0-9]+)$/\1/p' | head -1)
  if [ -z "$clang_version" ]; then
    "${AS_ROOT[@]}" apt-get -qq update
    clang_version=$(apt-cache depends clang | sed -nE 's/.*Depends: clang-([0-9]+)$/\1/p' | head -1)
  fi
  # libclang-rt has the sanitizers and libFuzzer
  install_debian apt build-essential cmake ninja-build ccache clang clang-format "libclang-rt-$clang_version-dev" \
    flatbuffers-compiler libflatbuffers-dev libgtest-dev libvulkan1 mesa-vulkan-drivers patchelf python3-venv \
    unzip zstd
}

setup_venv() {
  local wanted marker=$VENV/.requirements
  wanted=$(cat "$here"/requirements*.txt | sha256sum)
  if [ "$(cat "$marker" 2>/dev/null)" = "$wanted" ]; then
    say venv "reusing $VENV"
    return
  fi
  say venv "installing into $VENV"
  if [ ! -x "$VENV/bin/python" ]; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { say venv "needs python3 >= 3.11"; return 1; }
    python3 -m venv "$VENV"
  fi
  "$VENV/bin/pip" install --quiet --progress-bar off -r "$here/requirements.txt"
  "$VENV/bin/pip" install --quiet --progress-bar off --no-deps -r "$here/requirements-data.txt"
  echo "$wanted" > "$marker"
}

setup_emscripten() {
  local found
  found=$(em++ --version 2>/dev/null | sed -nE '1s/.* ([0-9]+)\.[0-9]+\.[0-9]+.*/\1/p' || true)
  if [ "${found:-0}" -ge 5 ] && [[ "$(command -v em++)" != "$ETWGPU_CACHE"/* ]]; then
    say emscripten "reusing $(command -v em++)"
  else
    cached emscripten "$ETWGPU_CACHE/emscripten/.done" || "$here/install-emscripten.sh"
  fi
}

setup_webgpu-headers() { cached webgpu-headers "$ETWGPU_CACHE/include/.done" || "$here/install-headers.sh"; }
setup_tint() { cached tint "$ETWGPU_CACHE/tint/.done" || "$here/install-tint.sh"; }
setup_lavapipe() { cached lavapipe "$ETWGPU_CACHE/lavapipe/.done" || "$here/install-lavapipe.sh"; }

setup_chromium() {
  if [ -n "$CHROMIUM" ]; then say chromium "reusing $CHROMIUM"; else install_debian chromium chromium; fi
}

setup_firefox() {
  if [ -n "$FIREFOX" ]; then say firefox "reusing $FIREFOX"; else install_debian firefox firefox-esr; fi
}

setup_node() {
  local lock=$ETWGPU_ROOT/package-lock.json marker=$ETWGPU_ROOT/node_modules/.etwgpu-lock
  if [ -e "$lock" ] && cmp -s "$lock" "$marker"; then
    say node "reusing node_modules"
  elif [ -e "$lock" ]; then
    say node "npm ci"
    (cd "$ETWGPU_ROOT" && npm ci --no-audit --no-fund --loglevel=error) && cp "$lock" "$marker"
  elif [ -e "$ETWGPU_ROOT/web/package.json" ]; then
    say node "npm install"
    (cd "$ETWGPU_ROOT" && npm install --no-audit --no-fund --loglevel=error) && cp "$lock" "$marker"
  else
    say node "nothing to install yet"
  fi
}

[ $# -gt 0 ] || set -- apt venv webgpu-headers emscripten tint lavapipe chromium firefox node
for target in "$@"; do
  if ! declare -F "setup_$target" >/dev/null; then
    say "$target" "no such target" >&2
    exit 2
  fi
  "setup_$target"
done
