#!/bin/bash
# demo.sh [--serve]: make the demo's models, then ask one in a headless browser (tools/demo.mjs), or only serve the page.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

tools/models.sh --demo
samples=$(_etwgpu_find skimage/data coffee.png)
exec node tools/demo.mjs ${samples:+--samples "$(dirname "$samples")"} "$@"
