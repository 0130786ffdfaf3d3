#!/usr/bin/env bash
# Installs the Debian packages named, where this machine has apt-get and this user may run it.
# Elsewhere it says in one line what is skipped, and fails only when CI=true.
set -euo pipefail

(($# > 0)) || exit 0

skip() {
    echo "skipped: $packages ($1)"
    [[ "${CI:-}" != true ]]
    exit
}

packages=$*
as_root=()
command -v apt-get >/dev/null || skip "there is no apt-get"
if ((EUID != 0)); then
    sudo -n true 2>/dev/null || skip "this user may not install packages"
    as_root=(sudo -n)
fi
"${as_root[@]}" apt-get update -qq || skip "apt-get cannot update its lists"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" || skip "apt-get cannot install them"
