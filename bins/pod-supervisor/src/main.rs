//! The program `pod-supervisor`.

fn main() {}
