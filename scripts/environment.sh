# Sourced by the other scripts: paths, and functions that they share.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
images=$cache/images
programs=$CARGO_TARGET_DIR/debug
times=${FERROVIRT_TIMES:-/dev/null}
# Never touch the cluster that the user works with.
unset KUBECONFIG
# For shells that did not read rustup's profile.
command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
# The usual place of Go's own archive.
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# Runs a step: timed TITLE COMMAND...
timed() {
    local title=$1 began=$SECONDS status
    printf '\n== %s\n' "$title"
    shift
    "$@"
    status=$?
    printf '%8d\t%s\n' $((SECONDS - began)) "$title" >>"$times"
    [ "$status" -eq 0 ] || echo "failed: $title ($*)" >&2
    return "$status"
}

need_root() {
    [ "$(id -u)" -eq 0 ] || fail "root is required to make containers and networks: run this with sudo"
}

need_cargo() {
    command -v cargo >/dev/null ||
        fail "cargo not found: install a Rust toolchain from https://rustup.rs"
}

# The same packages as the tests select: another selection has other features and compiles everything again.
build_programs() {
    cargo build --locked --workspace --bins
}

# Statically linked programs, for images without a system.
need_static_target() {
    local target=x86_64-unknown-linux-musl
    [ -d "$(rustc --print target-libdir --target "$target")" ] || rustup target add "$target"
}

# The launcher image and the tiny guest; both are cached.
build_images() {
    need_static_target && cargo xtask image launcher && cargo xtask guest
}

# For the single host alone; cached, too.
build_debian_guest() {
    cargo xtask guest debian
}
