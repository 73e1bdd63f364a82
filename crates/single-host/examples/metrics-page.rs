//! Prints the tables of `docs/reference/metrics.md`, for `cargo xtask generate`.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    let page = metrics::page(&single_host::metrics::tables());
    std::io::stdout().lock().write_all(page.as_bytes())
}
