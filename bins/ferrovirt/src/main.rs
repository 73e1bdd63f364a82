//! The program `ferrovirt`.

use std::process::ExitCode;

fn main() -> ExitCode {
    single_host::main()
}
