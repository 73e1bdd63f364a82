//! The program `virtctl`.

fn main() {}
