#!/bin/bash
# exporter_sources.sh: the files that an exported program depends on, one a line. What is exported is kept while these do
# not change.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files --cached --others --exclude-standard 'python/*.py' schema |
  grep -vE '/(runtime|native|generation|grammar|text|inspect|cli|errors|evaluation)[.]py' | sort
