//! The programs `disk-import`, which fills a volume with a disk image, and `disk-export`, which serves volumes: one
//! file, which is called by either name.

use std::env;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    panics::install();
    let called = env::args_os().next().unwrap_or_default();
    if Path::new(&called)
        .file_name()
        .is_some_and(|name| name == disk_export::NAME)
    {
        disk_export::main()
    } else {
        disk_import::main()
    }
}
