#!/usr/bin/env bash
# Compiles the Kubernetes programs of the tests into Go's own cache at the lowest priority, in the time that
# other work leaves. `cargo xtask` then has little more to do than to link them. Nothing depends on it.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
command -v go >/dev/null || exit 0

# The flags of xtask/src/kubernetes.rs: others make other objects.
export CGO_ENABLED=0 GOFLAGS="" GOWORK=off GOTOOLCHAIN=auto
compile() {
    nice -n 19 go build -trimpath -buildvcs=false -mod=readonly -o /dev/null "$@"
}
# The only program that is linked with a C library.
runc=github.com/opencontainers/runc
for module in etcd kubernetes node multus coredns; do
    cd "$root/tools/$module" || exit
    packages=.
    [ "$module" = coredns ] || packages=$(go list tool | grep -vx "$runc")
    # shellcheck disable=SC2086  # words are meant to be split
    compile $packages
    [ "$module" != node ] || CGO_ENABLED=1 compile -tags seccomp "$runc"
done
