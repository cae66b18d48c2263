#!/bin/bash
# demo.sh: export the small models that the requirements bring, and serve the playground with them.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

for recipe in ${ETWGPU_DEMO_RECIPES:-efficientnet smollm2}; do
  if [ -e "models/$recipe/manifest.json" ]; then
    echo "demo: reusing models/$recipe"
  else
    python -m executorch_webgpu.cli export "$recipe" --output "models/$recipe"
  fi
done
npm run --workspace=playground dev
