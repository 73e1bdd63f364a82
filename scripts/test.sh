#!/usr/bin/env bash
# Runs every check and every test, whatever the state of the machine. The last line is
# `N passed, N failed`; a failed step counts as one failure.
#
# FERROVIRT_TIMES  append the duration of each step and suite to this file
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root" || exit 1

passed=0
failed=0
numbers=$(mktemp)
trap 'rm -f "$numbers"' EXIT

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}

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
    need_root && need_cargo
}

# All test suites; their numbers are added to ours.
suites() {
    local status
    cargo xtask test --times "$times" | tee "$numbers"
    status=${PIPESTATUS[0]}
    [ "$status" -eq 0 ] || return "$status"
}

require "required programs" need_programs
require "packages" scripts/setup.sh
require "cargo subcommands" scripts/cargo-tools.sh
require "programs" build_programs
require "leftovers of earlier runs" scripts/sweep.sh
require "images" build_images
check "Debian guest" build_debian_guest
check "static checks" cargo xtask check
check "comparison with a real kube-apiserver" cargo xtask differential
# An endless loop is a failure, too.
check "200 scenarios of the controllers" timeout 20m cargo xtask simulate --seeds 200
timed "test suites" suites
sum=$(tail -n 1 "$numbers" | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p')
# Without a sum the tests did not build.
sum=${sum:-0 1}
passed=$((passed + ${sum% *}))
failed=$((failed + ${sum#* }))
check "test machine" cargo xtask machine test
check "doc tests" cargo test --locked --package metrics --doc --quiet
check "nothing left behind" scripts/sweep.sh
finish
