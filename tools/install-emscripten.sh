#!/bin/bash
# install-emscripten.sh: Emscripten from Debian forky into $ETWGPU_CACHE/emscripten, with libraries and ld.so of its
# own, so that it runs on an older Debian. The result works only at the path where it was made.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/other-suite.sh"

prefix=$ETWGPU_CACHE/emscripten
root=$prefix/root
work=$prefix/.work
rm -rf "$prefix"
mkdir -p "$work"

other_suite forky
clang=$(apt-cache "${APT_OTHER[@]}" show emscripten | sed -nE 's/^Depends:.*clang-([0-9]+).*/\1/p' | head -1)
# Emscripten itself is taken without its dependencies: they would bring a Node, a Java and a whole desktop.
download_with_dependencies "$work/debs" binaryen "clang-$clang" "lld-$clang" "llvm-$clang"
download_alone "$work/debs" emscripten node-acorn
unpack "$work/debs" "$root" --exclude='./usr/include/*' --exclude='./usr/lib/gcc/*'

# Programs get the prefix's own ld.so and libraries (RPATH, not RUNPATH: it must reach indirect libraries too).
libraries=$root/usr/lib/$(uname -m)-linux-gnu
loader=$(find "$libraries" -maxdepth 1 -name 'ld-linux-*.so.*' | head -1)
find "$root/usr/lib/llvm-$clang/bin" "$root/usr/bin" -maxdepth 1 -type f -perm -u+x | while read -r program; do
  if patchelf --print-interpreter "$program" >/dev/null 2>&1; then
    patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$program"
  fi
done
# A library's own RUNPATH would switch the RPATH off.
for library in "$libraries"/lib{LLVM,clang,binaryen}*.so*; do
  if [ ! -L "$library" ] && [ -n "$(patchelf --print-rpath "$library" 2>/dev/null)" ]; then
    patchelf --force-rpath --set-rpath '$ORIGIN' "$library"
  fi
done

# acorn must be real copies below emscripten/: node resolves symbolic links first.
emscripten=$root/usr/share/emscripten
mkdir -p "$emscripten/node_modules"
for module in acorn acorn-import-phases; do
  if [ -d "$root/usr/share/nodejs/$module" ]; then
    cp -rL "$root/usr/share/nodejs/$module" "$emscripten/node_modules/$module"
  fi
done
cat > "$emscripten/.emscripten" <<CONFIG
LLVM_ROOT = '$root/usr/lib/llvm-$clang/bin'
BINARYEN_ROOT = '$root/usr'
NODE_JS = '$(command -v node)'
CACHE = '$prefix/cache'
CONFIG
cat > "$prefix/env.sh" <<ENV
case ":\$PATH:" in *":$emscripten:"*) ;; *) export PATH="$emscripten:\$PATH" ;; esac
export EM_CONFIG="$emscripten/.emscripten" EMSCRIPTEN_ROOT="$emscripten"
export EMSDK_PYTHON="\${EMSDK_PYTHON:-/usr/bin/python3}"
ENV
rm -rf "$work"

# Emscripten builds its system libraries at the first link of each family of flags: do it now, for the families that
# the presets use (SIMD flags share the libraries of the plain build).
. "$prefix/env.sh"
warm=$(mktemp -d)
printf '#include <cstdio>\n#include <string>\nint main(int n, char**) { puts(std::to_string(n).c_str()); }\n' \
  > "$warm/warm.cpp"
for threads in '' -pthread; do
  em++ -O3 -fno-exceptions -fno-rtti $threads "$warm/warm.cpp" -o "$warm/warm.mjs"
done
rm -rf "$warm"
touch "$prefix/.done"
