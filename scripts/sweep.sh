#!/usr/bin/env bash
# Takes down single hosts that killed test runs left behind. A test process holds a lock on the file
# `owner` of its host; without that lock the host is abandoned.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

for base in "${TMPDIR:-/tmp}"/ferrovirt-e2e-*; do
    [ -d "$base" ] || continue
    if [ ! -e "$base/owner" ]; then
        # Being created, or its creation was cut off.
        find "$base" -maxdepth 0 -empty -mmin +1 -delete
        continue
    fi
    exec {owner}<"$base/owner"
    if flock --nonblock "$owner"; then
        echo "taking down an abandoned host in $base" >&2
        if [ -d "$base/state" ]; then
            "$programs/ferrovirt" reset --yes --state-dir "$base/state" >&2
        fi
        # The full disk that one test mounts.
        while umount "$base/full" 2>/dev/null; do :; done
        rm -rf --one-file-system "$base"
    fi
    exec {owner}<&-
done
