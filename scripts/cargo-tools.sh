#!/usr/bin/env bash
# Installs the cargo subcommands that `cargo xtask check` uses, pinned by version and hash in
# tools/cargo/requirements.txt, into the cache directory. Does nothing when they are installed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

requirements=$root/tools/cargo/requirements.txt
tools=$cache/tools
stamp=$(sha256sum "$requirements" | cut -d' ' -f1)
[ "$(cat "$tools/stamp" 2>/dev/null)" != "$stamp" ] || exit 0

python3 -m pip --version >/dev/null 2>&1 || "$root/scripts/setup.sh" check
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "cargo-tools: installing into $tools" >&2
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --require-hashes --requirement "$requirements" --dest "$work/wheels"
mkdir -p "$work/bin"
for wheel in "$work"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$work/unpacked"
done
# A wheel keeps programs in its directory of scripts.
find "$work/unpacked" -path '*.data/scripts/cargo-*' -type f -exec install -m 755 -t "$work/bin" {} +
rm -rf "$tools"
mkdir -p "$tools"
mv "$work/bin" "$tools/bin"
echo "$stamp" >"$tools/stamp"
