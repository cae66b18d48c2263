#!/bin/bash
# install-tint.sh: tint (Dawn's WGSL compiler) from Debian forky, run under forky's own ld.so; $ETWGPU_CACHE/bin/tint.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/other-suite.sh"

root=$ETWGPU_CACHE/tint
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$root"
mkdir -p "$root" "$ETWGPU_CACHE/bin"

other_suite forky
download_with_dependencies "$work/debs" dawn-tools
unpack "$work/debs" "$root" --exclude='./usr/include/*' --exclude='*LLVM*'

libraries=$root/usr/lib/$(uname -m)-linux-gnu
loader=$(find "$libraries" -maxdepth 1 -name 'ld-linux-*.so.*' | head -1)
cat > "$ETWGPU_CACHE/bin/tint" <<WRAPPER
#!/bin/sh
exec "$loader" --library-path "$libraries" "$root/usr/bin/tint" "\$@"
WRAPPER
chmod +x "$ETWGPU_CACHE/bin/tint"
printf '@compute @workgroup_size(1) fn main() {}\n' > "$work/empty.wgsl"
"$ETWGPU_CACHE/bin/tint" --format spirv -o /dev/null "$work/empty.wgsl"
touch "$root/.done"
