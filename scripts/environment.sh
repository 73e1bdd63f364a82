# Sourced by the other scripts: where things are, and what every one of them needs.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
images=$cache/images
programs=$CARGO_TARGET_DIR/debug
# What is built and run here is never the user's usual cluster.
unset KUBECONFIG
# rustup's directory, for shells that did not read its profile.
command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
# Where Go's own archive is unpacked as a rule.
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

need_root() {
    [ "$(id -u)" -eq 0 ] || fail "this makes containers and networks and needs root: run it with sudo"
}

need_cargo() {
    command -v cargo >/dev/null ||
        fail "there is no cargo: install a Rust toolchain from https://rustup.rs and try again"
}

# The same selection as for the tests: another one would be compiled anew, for it picks other features.
build_programs() {
    cargo build --locked --workspace --bins
}

# Programs without any library, for images that hold nothing else.
need_static_target() {
    local target=x86_64-unknown-linux-musl
    [ -d "$(rustc --print target-libdir --target "$target")" ] || rustup target add "$target"
}

# The launcher image and the tiny guest; both are kept once they are made.
build_images() {
    need_static_target && cargo xtask image launcher && cargo xtask guest
}
