//! The program `virtctl`.

use std::process::ExitCode;

fn main() -> ExitCode {
    panics::install();
    virtctl::main()
}
