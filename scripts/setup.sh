#!/bin/sh
# Installs the Debian packages needed for building, testing and the demo. Does nothing when all are
# installed, and may be run again after it was killed.
#
# usage: scripts/setup.sh [build|check|image|test|demo|clients|cluster|windows]...   (no name: build image test demo)
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
    [ -f "$lists/$list.txt" ] || fail "there is no list called $list; choose from build, check, image, test, demo, clients, cluster, windows"
    wanted="$wanted $(sed 's/#.*//' "$lists/$list.txt" | tr '\n' ' ')"
done

# The user's own kubectl will do.
case " $* " in
*" test "* | *" demo "*) command -v kubectl >/dev/null || wanted="$wanted kubernetes-client" ;;
esac

# The user's own Node.js will do, too.
case " $* " in
*" clients "*) command -v npm >/dev/null || wanted="$wanted nodejs npm" ;;
esac

# Go builds the kube-apiserver that ours is compared with. The user's own Go will do; Debian's must be
# 1.21 or newer to fetch the required version.
case " $* " in
*" test "* | *" cluster "*)
    if ! command -v go >/dev/null && [ ! -x /usr/local/go/bin/go ]; then
        minor=$(apt-cache policy golang-go 2>/dev/null | sed -n 's/.*Candidate: [0-9]*:*1\.\([0-9]*\).*/\1/p')
        if [ "${minor:-0}" -ge 21 ]; then
            wanted="$wanted golang-go"
        else
            echo "setup: apt has no Go 1.21 or newer; install it for the comparison with a real kube-apiserver" >&2
        fi
    fi
    ;;
esac

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "apt not found; install the equivalents of:$wanted"

missing=
for package in $wanted; do
    state=$(dpkg-query --showformat '${db:Status-Status}' --show "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

[ "$(id -u)" -eq 0 ] || fail "run this as root, or install:$missing"

export DEBIAN_FRONTEND=noninteractive
# Wait for another apt, and finish an installation that was interrupted.
patience="-o DPkg::Lock::Timeout=300"
if [ -n "$(dpkg --audit)" ]; then
    echo "setup: finishing an interrupted installation" >&2
    patience_left=300
    until dpkg --configure -a; do
        patience_left=$((patience_left - 1))
        [ "$patience_left" -gt 0 ] || fail "dpkg --configure -a keeps failing; see its message above"
        sleep 1
    done
fi
echo "setup: installing$missing" >&2
install_missing() {
    # shellcheck disable=SC2086  # words are meant to be split
    apt-get $patience install --yes --quiet=2 --no-install-recommends $missing
}
install_missing || {
    # Usually the package lists are missing or outdated.
    # shellcheck disable=SC2086
    apt-get $patience update --quiet=2
    # shellcheck disable=SC2086
    apt-get $patience install --yes --quiet=2 --no-install-recommends --fix-broken $missing ||
        fail "apt could not install:$missing"
}
