//! The program `virtctl`.

use std::process::ExitCode;

fn main() -> ExitCode {
    virtctl::main()
}
