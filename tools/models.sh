#!/bin/bash
# models.sh: export the small models that the demo and the tests use into $ETWGPU_CACHE/models, unless they are up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/env.sh

models=$ETWGPU_CACHE/models
mkdir -p "$models"
exec 8>"$models/.lock"
# a model is up to date while nothing has changed of what makes it
stamp=$(tools/exporter_sources.sh | xargs cat | sha256sum | cut -d' ' -f1)
# the last one has the logits of all positions, for tests of accuracy: `models.sh --demo` leaves it out
names=(smollm2-135m-instruct efficientnet-lite0)
[ "${1:-}" = --demo ] || names+=(smollm2-135m-instruct-all)
for name in "${names[@]}"; do
  recipe=${name%-all}
  options=()
  [ "$name" = "$recipe" ] || options=(--logits all --max-len 512)
  folder=$models/$name
  if [ -e "$folder/manifest.json" ] && [ "$(cat "$folder/.stamp" 2>/dev/null)" = "$stamp" ]; then
    echo "models: reusing $name"
    continue
  fi
  echo "models: exporting $name"
  partial=$folder.partial.$$ # another checkout may be exporting, too
  trap 'rm -rf "$partial"' EXIT
  python -m executorch_webgpu.cli export "$recipe" "${options[@]}" --out "$partial" 8>&-
  echo "$stamp" >"$partial/.stamp"
  # only a finished folder gets its name
  flock 8
  rm -rf "$folder"
  mv "$partial" "$folder"
  flock -u 8
done
