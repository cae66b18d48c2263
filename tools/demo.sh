#!/bin/bash
# demo.sh [--serve|--screenshots]: make the demo's models, then ask one in a headless browser (tools/demo.mjs), only serve
# the page, or take its pictures (tools/screenshots.mjs).
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

tools/models.sh --demo
samples=$(_etwgpu_find skimage/data coffee.png)
script=tools/demo.mjs
if [ "${1:-}" = --screenshots ]; then
  script=tools/screenshots.mjs
  shift
fi
exec node "$script" ${samples:+--samples "$(dirname "$samples")"} "$@"
