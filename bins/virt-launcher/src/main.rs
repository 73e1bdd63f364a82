//! The program `virt-launcher`, also called `virt-launcher-monitor` and `virt-probe`.

use std::process::ExitCode;

fn main() -> ExitCode {
    virt_launcher::main()
}
