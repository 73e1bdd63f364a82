#!/usr/bin/env bash
# Compiles the Kubernetes programs of the tests into Go's own cache at the lowest priority, in the time that
# other work leaves. `cargo xtask` then has little more to do than to link them. Nothing depends on it.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
command -v go >/dev/null || exit 0

# The flags of xtask/src/kubernetes.rs: others make other objects.
export CGO_ENABLED=0 GOFLAGS="" GOWORK=off GOTOOLCHAIN=auto
for module in etcd kubernetes node coredns; do
    packages=tool
    [ "$module" = coredns ] && packages=.
    cd "$root/tools/$module" || exit
    nice -n 19 go build -trimpath -buildvcs=false -mod=readonly -o /dev/null "$packages"
done
