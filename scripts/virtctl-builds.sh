#!/usr/bin/env bash
# Builds virtctl for Windows, and checks that it compiles for macOS. The results are in TRIPLE/ of
# the target directory, which is that of the other scripts.
#
# usage: scripts/virtctl-builds.sh [windows|macos]...   (none: both)
#
# windows needs the packages of deploy/packages/windows.txt (scripts/setup.sh build windows), and both a toolchain of
# rustup, to which the target is added. For macOS nothing is linked: that needs Apple's linker and SDK, which only a
# Mac has, so a C compiler that does nothing stands in for the one of the cryptographic library.
#
# VIRTCTL_PROFILE   the profile of the Windows program (default: release)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"

cargo=${CARGO:-cargo}
profile=${VIRTCTL_PROFILE:-release}

add() {
    command -v rustup >/dev/null || fail "rustup not found: it has the standard library of $1"
    rustup target list --installed | grep --quiet --line-regexp "$1" || rustup target add "$1"
}

windows() {
    local triple=x86_64-pc-windows-gnu
    local program
    for program in x86_64-w64-mingw32-gcc nasm; do
        command -v "$program" >/dev/null ||
            fail "$program not found, which $triple needs: run scripts/setup.sh build windows"
    done
    add "$triple"
    "$cargo" build --locked --package virtctl-bin --target "$triple" --profile "$profile"
}

macos() {
    local triple=aarch64-apple-darwin
    add "$triple"
    CC_aarch64_apple_darwin=true AR_aarch64_apple_darwin=true \
        "$cargo" check --locked --package virtctl-bin --target "$triple"
}

[ $# -gt 0 ] || set -- windows macos
for system in "$@"; do
    case $system in
    windows | macos) "$system" ;;
    *)
        echo "usage: scripts/virtctl-builds.sh [windows|macos]..." >&2
        exit 2
        ;;
    esac
done
