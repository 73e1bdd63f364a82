//! `template convert`.

use anyhow::{Context, Result};
use serde_json::Value;

use super::cli::Convert;
use crate::{connect::Cluster, objects, printer::Printer};

pub(super) async fn convert(cluster: &Cluster, printer: Printer, flags: &Convert) -> Result<()> {
    let name = flags.source.name();
    let name = name.context("name the template, or its file with --file")?;
    let path = objects::OPENSHIFT_TEMPLATE.named(&cluster.namespace, name);
    let template = objects::get(cluster, &path).await?;
    print(printer, flags, &template)
}

pub(super) fn print(printer: Printer, flags: &Convert, template: &Value) -> Result<()> {
    let converted = vm_template::convert(template).context("convert the template")?;
    for warning in converted.warnings {
        printer.warn(&warning);
    }
    printer.object(flags.output, &converted.template)
}
