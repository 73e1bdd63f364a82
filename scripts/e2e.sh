#!/usr/bin/env bash
# From nothing to stories on a real Kubernetes and back to nothing: the test cluster, the images, the
# installation, the stories with the time of each, the end. The last line is `N passed, N failed`.
#
# usage: scripts/e2e.sh [STORY]...   (words of names of stories; none: all)
#        scripts/e2e.sh nothing-notices [--guests N] [--minutes M] [--seed S]
#            in place of stories: everything around guests is killed, and none may notice
#
# FERROVIRT_KEEP_CLUSTER  set to anything: leave the cluster up
# FERROVIRT_STORY_ROUNDS  how often stories about crashes kill what they kill (default here: 3)
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root" || exit 1

passed=0
failed=0
work=$(mktemp -d)
is_up=

leave() {
    if [ -n "$is_up" ] && [ -z "${FERROVIRT_KEEP_CLUSTER:-}" ]; then
        step "Taking the cluster down"
        if cargo xtask cluster down; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    fi
    rm -rf "$work"
    trap - EXIT
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
trap leave EXIT

step() {
    printf '\n== %s (after %s s)\n' "$*" "$SECONDS"
}

# A step without which the rest makes no sense.
must() {
    step "$1"
    shift
    "$@" && return
    echo "failed: $*" >&2
    failed=$((failed + 1))
    leave
}

needs() {
    need_root && need_cargo && need_static_target
}

# Everything but virtctl runs from images here, so nothing else is built for this machine.
programs() {
    cargo build --locked --package virtctl-bin && build_images && cargo xtask image control-plane
}

load() {
    local image
    for image in ferrovirt virt-launcher guest-tiny guest-tiny-kernel; do
        cargo xtask cluster load "$image" || return
    done
}

# Everything that has a status says that it is ready.
ready() {
    local what
    for what in deployment/virt-api deployment/virt-controller daemonset/virt-handler; do
        kubectl --namespace kubevirt rollout status --timeout=120s "$what" || return
    done
    kubectl wait --for=condition=Available --timeout=60s apiservice/v1.subresources.kubevirt.io
}

# What the components said that nobody should have to read.
complaints() {
    local component
    for component in virt-api virt-controller virt-handler; do
        kubectl --namespace kubevirt logs --selector "kubevirt.io=$component" --tail=-1 --prefix
    done | grep -E 'is forbidden: User|panicked' | head -20 | tee "$work/complaints"
    [ ! -s "$work/complaints" ]
}

tell() {
    local status numbers
    export FERROVIRT_STORY_TIMES=$work/times FERROVIRT_STORY_ROUNDS=${FERROVIRT_STORY_ROUNDS:-3}
    : >"$FERROVIRT_STORY_TIMES"
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-4} cargo test --locked --package stories --test cluster \
        --test cluster_faults --no-fail-fast -- "$@" 2>&1 | tee "$work/log"
    status=${PIPESTATUS[0]}
    numbers=$(awk '/^test result: / { good += $4; bad += $6 } END { print good + 0, bad + 0 }' "$work/log")
    passed=$((passed + ${numbers% *}))
    failed=$((failed + ${numbers#* }))
    if [ "$status" -ne 0 ] && [ "${numbers#* }" -eq 0 ]; then
        failed=$((failed + 1))
    fi
    sort --reverse --numeric-sort "$FERROVIRT_STORY_TIMES"
}

nothing_notices() {
    if cargo xtask nothing-notices --on cluster "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

# What was installed goes, and nothing hangs on what is gone.
removal() {
    kubectl delete vm,vmi --all --all-namespaces --timeout=120s &&
        kubectl delete --timeout=120s --filename deploy/ferrovirt.yaml &&
        ! kubectl get crd --output name | grep -F kubevirt.io
}

must "What is missing" needs
must "Packages" scripts/setup.sh build image test cluster
must "Programs and images" programs
is_up=1
must "The cluster" cargo xtask cluster up
KUBECONFIG=$(cargo xtask cluster kubeconfig) || leave
export KUBECONFIG
must "Images onto the nodes" load
# Only what is set by the manifest is ours to change.
must "Installation" kubectl apply --server-side --force-conflicts --filename deploy/ferrovirt.yaml
must "Everything ready" ready
if [ "${1:-}" = nothing-notices ]; then
    step "Everything is killed"
    nothing_notices "${@:2}"
else
    step "Stories"
    tell "$@"
fi
step "Logs of the components"
if complaints; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
if [ -z "${FERROVIRT_KEEP_CLUSTER:-}" ]; then
    step "Removal"
    if removal; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
fi
leave
