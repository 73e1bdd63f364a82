//! The program `disk-import`: fills a volume with a disk image.

use std::process::ExitCode;

fn main() -> ExitCode {
    disk_import::main()
}
