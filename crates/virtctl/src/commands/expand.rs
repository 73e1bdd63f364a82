//! `expand`: a VM with the fields of its instance type and preference.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use http::Method;
use serde_json::Value;

use crate::{cli::ObjectOutput, connect::Cluster, objects, printer::Printer, subresource::path};

#[derive(Debug, Clone, Args)]
pub struct Expand {
    /// Name of the VM
    #[arg(long, required_unless_present = "file")]
    pub vm: Option<String>,
    /// File with a VM; - for standard input
    #[arg(long, short, conflicts_with = "vm")]
    pub file: Option<PathBuf>,
    #[arg(long, short, value_enum, default_value = "yaml")]
    pub output: ObjectOutput,
}

pub(crate) async fn expand(cluster: &Cluster, printer: Printer, flags: &Expand) -> Result<()> {
    let expanded = match (&flags.file, &flags.vm) {
        (Some(file), _) => {
            let vm = read(file)?;
            let namespace = &cluster.namespace;
            let path =
                format!("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/expand-vm-spec");
            objects::send(cluster, Method::PUT, &path, &vm).await?
        }
        (None, Some(vm)) => {
            let path = path(cluster, "virtualmachines", vm, "expand-spec");
            objects::get(cluster, &path).await?
        }
        (None, None) => anyhow::bail!("name the VM with --vm or --file"),
    };
    printer.object(flags.output, &expanded)
}

fn read(file: &std::path::Path) -> Result<Value> {
    let text = if file == std::path::Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("read standard input")?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("read --file {}", file.display()))?
    };
    serde_saphyr::from_str(&text)
        .with_context(|| format!("parse --file {} as YAML or JSON", file.display()))
}
