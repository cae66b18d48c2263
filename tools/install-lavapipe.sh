#!/bin/bash
# install-lavapipe.sh: mesa's software Vulkan driver, for native Dawn on machines without a GPU;
# $ETWGPU_CACHE/lavapipe/icd.json is to be the value of VK_DRIVER_FILES. Dawn refuses the mesa 22.3 of Debian 12, so
# there it comes from the backports; later Debians have a good one of their own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/env.sh"
. "$here/other-suite.sh"

prefix=$ETWGPU_CACHE/lavapipe
root=$prefix/root
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$prefix"
mkdir -p "$root"

. /etc/os-release
if [ "${VERSION_ID%%.*}" -gt 12 ]; then
  driver=$(find /usr/lib -name libvulkan_lvp.so | head -1)
else
  other_suite "bookworm bookworm-backports"
  APT_OTHER+=(-o APT::Default-Release=bookworm-backports)
  download_with_dependencies "$work/debs" mesa-vulkan-drivers
  # The driver is loaded into programs of the host, which bring their own C and C++ libraries.
  rm -f "$work"/debs/{libc6,libgcc-s1,libstdc++6}_*.deb
  unpack "$work/debs" "$root" --exclude='./usr/include/*'
  libraries=$root/usr/lib/$(uname -m)-linux-gnu
  driver=$libraries/libvulkan_lvp.so
  patchelf --force-rpath --set-rpath "$libraries" "$driver"
fi
cat > "$prefix/icd.json" <<ICD
{"file_format_version": "1.0.1", "ICD": {"library_path": "$driver", "api_version": "1.4.305"}}
ICD
touch "$prefix/.done"
