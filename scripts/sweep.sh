#!/usr/bin/env bash
# Takes down the hosts that killed runs of the stories left behind. A host is left behind when the
# test process that made it is gone: it held a lock on the file `owner` for as long as it lived.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

for base in "${TMPDIR:-/tmp}"/ferrovirt-stories-*; do
    [ -d "$base" ] || continue
    if [ ! -e "$base/owner" ]; then
        # Just being made, or cut off before there was anything in it.
        find "$base" -maxdepth 0 -empty -mmin +1 -delete
        continue
    fi
    exec {owner}<"$base/owner"
    if flock --nonblock "$owner"; then
        echo "taking down what a killed run left in $base" >&2
        if [ -d "$base/state" ]; then
            "$programs/ferrovirt" reset --yes --state-dir "$base/state" >&2
        fi
        # The full disk of a story that needs one.
        while umount "$base/full" 2>/dev/null; do :; done
        rm -rf --one-file-system "$base"
    fi
    exec {owner}<&-
done
