//! `vnc screenshot`: saves a picture of the guest's screen.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{
    cli::Screenshot,
    connect::Cluster,
    files,
    printer::Printer,
    subresource::{get_bytes, path},
};

/// The server's own limit.
const LIMIT: usize = 32 << 20;

pub(crate) async fn screenshot(
    cluster: &Cluster,
    printer: Printer,
    options: &Screenshot,
) -> Result<()> {
    let Screenshot {
        vmi,
        file,
        move_cursor,
    } = options;
    let path = path(cluster, "virtualmachineinstances", vmi, "vnc/screenshot");
    let picture = get_bytes(cluster, &format!("{path}?moveCursor={move_cursor}"), LIMIT).await?;
    if file == Path::new("-") {
        return printer.raw(&picture).context("write the picture");
    }
    files::write(file, &picture)?;
    printer.note(&format!("Saved the screen of {vmi} in {}", file.display()));
    Ok(())
}
