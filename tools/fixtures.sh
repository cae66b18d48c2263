#!/bin/bash
# fixtures.sh: export the small programs that C++ and Python tests share into build/fixtures, unless they are up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

folder=build/fixtures
mkdir -p build
exec 8>build/.fixtures.lock
flock 8 # suites run side by side
stamp=$( (tools/exporter_sources.sh && echo tests/export/make_fixtures.py) | xargs cat | sha256sum | cut -d' ' -f1)
if [ "$(cat $folder/.stamp 2>/dev/null)" != "$stamp" ]; then
  python tests/export/make_fixtures.py $folder >/dev/null
  echo "$stamp" >$folder/.stamp
fi
