#!/usr/bin/env bash
# Every check and every test, from whatever state the machine is in. The last line is
# `N passed, N failed`; a step that breaks counts as one failure.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root" || exit 1

passed=0
failed=0

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}

# A step without which the rest makes no sense.
must() {
    echo "== $1"
    shift
    "$@" && return
    echo "failed: $*" >&2
    failed=$((failed + 1))
    finish
}

# A step that is judged, and the rest goes on.
judge() {
    echo "== $1"
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "failed: $*" >&2
        failed=$((failed + 1))
    fi
}

need_programs() {
    need_root && need_cargo
}

# A run of cargo's tests; their numbers are added to ours.
run_tests() {
    local status numbers
    echo "== $1"
    shift
    cargo test --locked --workspace --no-fail-fast "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    numbers=$(awk '/^test result: / { good += $4; bad += $6 } END { print good + 0, bad + 0 }' "$log")
    passed=$((passed + ${numbers% *}))
    failed=$((failed + ${numbers#* }))
    # Something broke that no test reported: a build, or a test process that was killed.
    if [ "$status" -ne 0 ] && [ "${numbers#* }" -eq 0 ]; then
        failed=$((failed + 1))
    fi
    grep -E '^test .* FAILED$|^error: test failed|^error(\[E[0-9]+\])?: ' "$log" >>"$complaints"
}

must "needs" need_programs
must "packages" scripts/setup.sh
must "programs" build_programs
must "leftovers" scripts/sweep.sh
must "images" build_images
judge "checks" cargo xtask check
judge "judged by a real API server" cargo xtask differential
# A loop without end is a finding too.
judge "500 stories of the controllers" timeout 20m cargo xtask simulate --seeds 500
log=$(mktemp)
complaints=$(mktemp)
trap 'rm -f "$log" "$complaints"' EXIT
run_tests "tests and doc tests" --exclude stories
# Stories mostly wait for guests, so more of them than processors are told at once.
RUST_TEST_THREADS=${RUST_TEST_THREADS:-4} run_tests "stories" --test stories
judge "nothing left behind" scripts/sweep.sh
cat "$complaints" >&2
finish
