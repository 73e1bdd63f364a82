//! The program `virt-launcher`.

fn main() {}
