#!/bin/bash
# fuzz.sh: run every fuzz target of build/native-asan for ETWGPU_FUZZ_SECONDS each, from the seeds in
# tests/fuzz/corpus/TARGET; the last line is {"passed": n, "failed": m}.
cd "$(dirname "$0")/.." || exit
passed=0 failed=0
found=$(mktemp -d) # new inputs go here: a test run does not change the source tree
trap 'rm -rf "$found"' EXIT
for target in build/native-asan/*_fuzz; do
  name=$(basename "$target")
  mkdir -p "$found/$name" build/fuzz-failures
  seeds=("tests/fuzz/corpus/$name")
  [ -d "${seeds[0]}" ] || seeds=()
  if "$target" -max_total_time="${ETWGPU_FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=4096 \
    -artifact_prefix=build/fuzz-failures/ "$found/$name" "${seeds[@]}" >"$found/log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -50 "$found/log"
  fi
  echo "$name: $(tail -1 "$found/log")"
done
echo "{\"passed\": $passed, \"failed\": $failed}"
[ $failed = 0 ]
