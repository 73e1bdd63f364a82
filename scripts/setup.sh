#!/bin/sh
# Installs by apt what building, testing and the demo take. Does nothing when all is there, and may be
# run again after it was killed at any point.
#
# usage: scripts/setup.sh [build|image|test|demo|cluster]...   (no name: all but the last)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
lists=$here/../deploy/packages

fail() {
    echo "setup: $*" >&2
    exit 1
}

[ "$#" -gt 0 ] || set -- build image test demo

wanted=
for list in "$@"; do
    [ -f "$lists/$list.txt" ] || fail "there is no list called $list; choose from build, image, test, demo, cluster"
    wanted="$wanted $(sed 's/#.*//' "$lists/$list.txt" | tr '\n' ' ')"
done

# A kubectl of the user's own is as good as Debian's.
case " $* " in
*" test "* | *" demo "*) command -v kubectl >/dev/null || wanted="$wanted kubernetes-client" ;;
esac

# Go builds the API server that ours is compared with. A Go of the user's own is as good, and an old
# one of Debian's is no use: only 1.21 and newer fetch the version that is asked for.
case " $* " in
*" test "* | *" cluster "*)
    if ! command -v go >/dev/null && [ ! -x /usr/local/go/bin/go ]; then
        minor=$(apt-cache policy golang-go 2>/dev/null | sed -n 's/.*Candidate: [0-9]*:*1\.\([0-9]*\).*/\1/p')
        if [ "${minor:-0}" -ge 21 ]; then
            wanted="$wanted golang-go"
        else
            echo "setup: apt offers no Go 1.21 or newer; install one for the comparison with a real API server" >&2
        fi
    fi
    ;;
esac

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "this machine has no apt; install the equivalents of:$wanted"

missing=
for package in $wanted; do
    state=$(dpkg-query --showformat '${db:Status-Status}' --show "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

[ "$(id -u)" -eq 0 ] || fail "run this as root, or install:$missing"

export DEBIAN_FRONTEND=noninteractive
# Another apt may be at work, or ours may have been killed in the middle: wait for the one, finish the
# other's work.
patience="-o DPkg::Lock::Timeout=300"
if [ -n "$(dpkg --audit)" ]; then
    echo "setup: finishing an interrupted installation" >&2
    patience_left=300
    until dpkg --configure -a; do
        patience_left=$((patience_left - 1))
        [ "$patience_left" -gt 0 ] || fail "dpkg is in a state that it cannot leave; see its message above"
        sleep 1
    done
fi
echo "setup: installing$missing" >&2
install_missing() {
    # shellcheck disable=SC2086  # words are meant to be split
    apt-get $patience install --yes --quiet=2 --no-install-recommends $missing
}
install_missing || {
    # Lists that are missing or old are the usual cause.
    # shellcheck disable=SC2086
    apt-get $patience update --quiet=2
    # shellcheck disable=SC2086
    apt-get $patience install --yes --quiet=2 --no-install-recommends --fix-broken $missing ||
        fail "apt could not install:$missing"
}
