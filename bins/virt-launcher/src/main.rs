//! The program `virt-launcher`, also called `virt-launcher-monitor` and `virt-probe`.

use std::process::ExitCode;

fn main() -> ExitCode {
    panics::install();
    virt_launcher::main()
}
