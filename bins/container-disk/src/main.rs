//! The program `container-disk`: copies a disk out of the image that it runs in.

use std::process::ExitCode;

fn main() -> ExitCode {
    panics::install();
    container_disk::main()
}
