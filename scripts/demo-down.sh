#!/usr/bin/env bash
# Takes away what `scripts/demo.sh` brought up, and all that was defined in it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"

state=${FERROVIRT_STATE_DIR:-/var/lib/ferrovirt}
if [ ! -e "$state" ]; then
    echo "Ferrovirt is not up: $state does not exist."
    exit
fi
need_root
if [ ! -x "$programs/ferrovirt" ]; then
    need_cargo
    build_programs
fi
exec "$programs/ferrovirt" reset --yes --state-dir "$state"
