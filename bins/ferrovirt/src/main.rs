//! The program `ferrovirt`.

fn main() {}
