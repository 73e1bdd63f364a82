//! Linker options of the program.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Pack the relocations, which are a tenth of the program otherwise.
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
