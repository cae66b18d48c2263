#!/bin/bash
# mutations.sh PRESET COUNT [SEED]: COUNT seeded mutations of the export fixtures through the program layer of a build
# (tests/fuzz/pte_mutations.cpp). A failure prints what repeats it; the last line is {"passed": n, "failed": m}.
cd "$(dirname "$0")/.." || exit
. tools/env.sh
fixtures=build/fixtures
tools/fixtures.sh || exit
exec "build/$1/etwgpu_fuzz" --count "$2" --seed "${3:-1}" $fixtures/{mlp,decoder2,conv,mixed,portable}.pte
