#!/usr/bin/env bash
# Builds virtctl for Windows, and checks that it compiles for macOS. The results are in target/TRIPLE/.
#
# usage: scripts/virtctl-builds.sh [windows|macos]...   (none: both)
#
# windows needs gcc-mingw-w64-x86-64. For macOS nothing is linked: that needs Apple's linker and SDK, which only a
# Mac has, so a C compiler that does nothing stands in for the one of the cryptographic library.
#
# VIRTCTL_PROFILE   the profile of the Windows program (default: release)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo=${CARGO:-cargo}
profile=${VIRTCTL_PROFILE:-release}

add() {
    rustup target list --installed | grep --quiet --line-regexp "$1" || rustup target add "$1"
}

windows() {
    local triple=x86_64-pc-windows-gnu
    command -v x86_64-w64-mingw32-gcc >/dev/null || {
        echo "install gcc-mingw-w64-x86-64: it has the linker of $triple" >&2
        return 1
    }
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
