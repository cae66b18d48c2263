#!/bin/bash
# demo.sh: export the small models that the requirements bring into models/, and serve the playground.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

mkdir -p models
for recipe in efficientnet-lite0 smollm2-135m-instruct; do
  if [ -d "models/$recipe" ]; then
    echo "demo: reusing models/$recipe"
    continue
  fi
  echo "demo: exporting $recipe"
  rm -rf "models/.partial"
  python -m executorch_webgpu.cli export "$recipe" --out models/.partial
  mv models/.partial "models/$recipe" # only a finished folder gets its name
done
npm run --workspace=playground dev
