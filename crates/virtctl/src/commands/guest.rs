//! `guestosinfo`, `userlist`, `fslist`: reports of the guest agent; `reset`, `soft-reboot`.

use anyhow::Result;
use serde_json::json;

use crate::{
    cli::Output,
    connect::Cluster,
    printer::Printer,
    subresource::{get, path, put},
};

const PLURAL: &str = "virtualmachineinstances";

/// A subresource of a VMI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subresource<'a> {
    vmi: &'a str,
    name: &'static str,
}

impl<'a> Subresource<'a> {
    pub(crate) fn of(vmi: &'a str, name: &'static str) -> Self {
        Self { vmi, name }
    }
}

/// Prints a report of the guest agent.
pub(crate) async fn show(
    cluster: &Cluster,
    printer: Printer,
    Subresource { vmi, name }: Subresource<'_>,
    output: Output,
) -> Result<()> {
    let report = get(cluster, &path(cluster, PLURAL, vmi, name)).await?;
    printer.object(output.into(), &report)
}

/// Sends a request without options, and reports it by the name of the command.
pub(crate) async fn update(
    cluster: &Cluster,
    printer: Printer,
    Subresource { vmi, name }: Subresource<'_>,
    command: &str,
) -> Result<()> {
    put(cluster, &path(cluster, PLURAL, vmi, name), &json!({})).await?;
    printer.line(&format!("VMI {vmi} was scheduled to {command}"));
    Ok(())
}
