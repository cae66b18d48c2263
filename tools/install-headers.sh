#!/bin/bash
# install-headers.sh: the C++ headers that this Debian does not have, or not new enough, into $ETWGPU_CACHE/include:
# Dawn's webgpu.h, Highway (header-only use) and flatbuffers.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/other-suite.sh"

include=$ETWGPU_CACHE/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$include/webgpu"

other_suite forky
download_alone "$work/debs" libwebgpu-dawn-dev libhwy-dev
unpack "$work/debs" "$work/root"

# Dawn's header refuses Emscripten, whose own port it does not want to be mixed with; we have no such port.
# (The package's webgpu/webgpu.h only includes this one.)
sed '/^#ifdef __EMSCRIPTEN__$/,/^#endif/d' "$work/root/usr/include/dawn/webgpu.h" > "$include/webgpu/webgpu.h"
if grep -q __EMSCRIPTEN__ "$include/webgpu/webgpu.h"; then
  echo "webgpu.h: the block that refuses Emscripten has another form now" >&2
  exit 1
fi
rm -rf "$include/hwy" "$include/flatbuffers"
cp -r "$work/root/usr/include/hwy" "$include/hwy"
# Wasm builds must not see the rest of /usr/include.
cp -r /usr/include/flatbuffers "$include/flatbuffers"
touch "$include/.done"
