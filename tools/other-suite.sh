# Source this (bash): packages of another Debian suite, unpacked into a folder. The host's apt sources, lists and
# packages stay as they are: apt-get gets a private configuration with this machine's own mirror and another suite.
#
#   other_suite "forky"                           prepares APT_OTHER, the options; the lists are fetched once and kept
#   download_with_dependencies FOLDER PACKAGE...  every .deb that PACKAGE needs on an empty system
#   download_alone FOLDER PACKAGE...              these .debs only
#   unpack FOLDER ROOT [TAR-OPTION...]            all .debs of FOLDER into ROOT

other_suite() {
  local suites=$1 state
  state=$ETWGPU_CACHE/apt/${suites// /-}
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  : > "$state/status" # an empty system
  # a security archive has suites of other names, so its stanza goes
  awk -v RS= -v ORS='\n\n' '!/-security/' /etc/apt/sources.list.d/debian.sources |
    sed -E "s/^Suites:.*/Suites: $suites/" > "$state/other.sources"
  APT_OTHER=(-qq -o APT::Sandbox::User=root -o Debug::NoLocking=1 -o Acquire::Retries=3
    -o APT::Install-Recommends=false
    -o Dir::Etc::sourcelist="$state/other.sources" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
    -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status"
    -o Dir::State::extended_states="$state/extended"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
  exec {other_suite_lock}> "$state/lock"
  flock "$other_suite_lock" # installers run in parallel and share the lists
  if [ ! -e "$state/updated" ] || [ -n "$(find "$state/updated" -mtime +0)" ]; then
    apt-get "${APT_OTHER[@]}" update
    touch "$state/updated"
  fi
  exec {other_suite_lock}>&-
}

download_with_dependencies() {
  local folder
  folder=$(realpath -m "$1")
  shift
  mkdir -p "$folder/partial"
  apt-get "${APT_OTHER[@]}" -o Dir::Cache::archives="$folder" -y --download-only install "$@" >/dev/null
}

download_alone() {
  local folder=$1
  shift
  mkdir -p "$folder"
  (cd "$folder" && apt-get "${APT_OTHER[@]}" download "$@")
}

unpack() {
  local folder=$1 root=$2 deb dir
  shift 2
  mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
  for dir in bin sbin lib lib64; do ln -sfn "usr/$dir" "$root/$dir"; done
  for deb in "$folder"/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" |
      tar -x -C "$root" --keep-directory-symlink --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' \
        --exclude='./usr/share/locale/*' "$@"
  done
}
