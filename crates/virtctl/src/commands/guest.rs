//! `guestosinfo`, `userlist`, `fslist`: what the guest's agent tells; `reset`, `soft-reboot`.

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    connect::Cluster,
    printer::Printer,
    subresource::{get, path, put},
};

const PLURAL: &str = "virtualmachineinstances";

/// Prints the answer of a question to the guest's agent.
pub(crate) async fn ask(
    cluster: &Cluster,
    printer: Printer,
    (vmi, question): (&str, &'static str),
) -> Result<()> {
    let answer = get(cluster, &path(cluster, PLURAL, vmi, question)).await?;
    let text = serde_json::to_string_pretty(&answer).context("write the answer")?;
    printer.line(&text);
    Ok(())
}

/// Asks for something that has no options.
pub(crate) async fn tell(
    cluster: &Cluster,
    printer: Printer,
    (vmi, verb): (&str, &'static str),
) -> Result<()> {
    put(cluster, &path(cluster, PLURAL, vmi, verb), &json!({})).await?;
    printer.line(&format!("VMI {vmi} was scheduled to {verb}"));
    Ok(())
}
