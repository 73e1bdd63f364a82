//! How the program is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Addresses that are corrected when the program starts, packed: a tenth of it, else.
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
