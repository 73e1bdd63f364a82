#!/usr/bin/env bash
# Runs the end-to-end tests on a real Kubernetes: makes the test cluster and the images, installs
# Ferrovirt, runs the tests, removes everything. The last line is `N passed, N failed`.
#
# usage: scripts/e2e.sh [--include-ignored] [TEST]...
#            parts of test names; none: all. With the flag also those that take minutes
#        scripts/e2e.sh chaos [--guests N] [--minutes M] [--seed S]
#            instead of the tests: kill every component around counting guests
#
# FERROVIRT_KEEP_CLUSTER  set to anything: leave the cluster running
# FERROVIRT_E2E_ROUNDS    how often the crash tests kill their target (default here: 3)
# FERROVIRT_RELEASE       set to anything: test the release build of the components, which takes
#                         minutes to build
# FERROVIRT_TIMES         append the duration of each step and test to this file
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root" || exit 1

passed=0
failed=0
work=$(mktemp -d)
is_up=

finish() {
    if [ -n "$is_up" ] && [ -z "${FERROVIRT_KEEP_CLUSTER:-}" ]; then
        check "cluster down" cargo xtask cluster down
    fi
    rm -rf "$work"
    trap - EXIT
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
trap finish EXIT

# A step that the rest depends on.
require() {
    timed "$@" && return
    failed=$((failed + 1))
    finish
}

# A step that counts as one test.
check() {
    if timed "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

need_programs() {
    need_root && need_cargo && need_static_target
}

# On a cluster the components run from images; only virtctl runs on this host.
programs() {
    # The same selection of packages as in `make test`: another one has other features.
    cargo build --locked --workspace --bin virtctl && build_images
}

control_plane_image() {
    if [ -n "${FERROVIRT_RELEASE:-}" ]; then
        cargo xtask image control-plane
    else
        cargo xtask image control-plane --quick
    fi
}

load() {
    local image
    for image in ferrovirt virt-launcher guest-tiny guest-tiny-kernel; do
        cargo xtask cluster load "$image" || return
    done
}

# Waits until every component reports that it is ready.
ready() {
    local workload
    for workload in deployment/virt-api deployment/virt-controller daemonset/virt-handler; do
        kubectl --namespace kubevirt rollout status --timeout=120s "$workload" || return
    done
    kubectl wait --for=condition=Available --timeout=60s apiservice/v1.subresources.kubevirt.io
}

# No component may have panicked or been denied a permission.
component_logs() {
    local component
    for component in virt-api virt-controller virt-handler; do
        kubectl --namespace kubevirt logs --selector "kubevirt.io=$component" --tail=-1 --prefix
    done | grep -E 'is forbidden: User|panicked' | head -20 | tee "$work/problems"
    [ ! -s "$work/problems" ]
}

tests() {
    local status numbers
    export FERROVIRT_E2E_TIMES=$work/times FERROVIRT_E2E_ROUNDS=${FERROVIRT_E2E_ROUNDS:-3}
    : >"$FERROVIRT_E2E_TIMES"
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-4} cargo test --locked --workspace --test cluster \
        --test cluster_faults --no-fail-fast -- "$@" 2>&1 | tee "$work/log"
    status=${PIPESTATUS[0]}
    numbers=$(awk '/^test result: / { good += $4; bad += $6 } END { print good + 0, bad + 0 }' "$work/log")
    passed=$((passed + ${numbers% *}))
    failed=$((failed + ${numbers#* }))
    if [ "$status" -ne 0 ] && [ "${numbers#* }" -eq 0 ]; then
        failed=$((failed + 1))
    fi
    sort --reverse --numeric-sort "$FERROVIRT_E2E_TIMES" | sed 's/ s  /\te2e /' >>"$times"
    return "$status"
}

# Removing the manifest removes everything, with nothing stuck on a finalizer.
removal() {
    kubectl delete vm,vmi --all --all-namespaces --timeout=120s &&
        kubectl delete --timeout=120s --filename deploy/ferrovirt.yaml &&
        # Definitions of data volumes are in no manifest: their deletion is up to the administrator.
        kubectl delete --timeout=120s crd --selector ferrovirt.io/importer &&
        # Its owner is in the manifest.
        kubectl wait --for=delete --timeout=60s apiservice/v1beta1.upload.cdi.kubevirt.io &&
        ! kubectl get crd --output name | grep -F kubevirt.io
}

require "required programs" need_programs
require "packages" scripts/setup.sh build image test cluster
require "programs and images" programs
require "control-plane image" control_plane_image
is_up=1
require "cluster up" cargo xtask cluster up
KUBECONFIG=$(cargo xtask cluster kubeconfig) || finish
export KUBECONFIG
require "images onto the nodes" load
# Take back only what the manifest sets.
require "installation" kubectl apply --server-side --force-conflicts --filename deploy/ferrovirt.yaml
require "components ready" ready
if [ "${1:-}" = chaos ]; then
    check "chaos run" cargo xtask chaos --on cluster "${@:2}"
else
    timed "end-to-end tests" tests "$@"
fi
check "logs of the components" component_logs
if [ -z "${FERROVIRT_KEEP_CLUSTER:-}" ]; then
    check "removal" removal
fi
finish
