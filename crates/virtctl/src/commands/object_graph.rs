//! `objectgraph`: the objects that a VM consists of and depends on.

use anyhow::Result;
use clap::Args;
use http::Method;
use serde_json::json;

use crate::{
    cli::Output,
    connect::Cluster,
    key_values::{self, KeyValue},
    objects,
    printer::Printer,
    subresource::path,
};

#[derive(Debug, Clone, Args)]
pub struct ObjectGraph {
    /// Name of the VM or VMI
    pub name: String,
    /// Start from the VMI instead of the VM
    #[arg(long)]
    pub vmi: bool,
    /// Leave out objects that the VM can do without
    #[arg(long)]
    pub exclude_optional: bool,
    /// Only objects with these labels in the graph
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub selector: Vec<KeyValue>,
    #[arg(long, short, value_enum, default_value = "json")]
    pub output: Output,
}

pub(crate) async fn object_graph(
    cluster: &Cluster,
    printer: Printer,
    flags: &ObjectGraph,
) -> Result<()> {
    let mut options = json!({"includeOptionalNodes": !flags.exclude_optional});
    if !flags.selector.is_empty() {
        options["labelSelector"] = json!({"matchLabels": key_values::object(&flags.selector)});
    }
    let plural = if flags.vmi {
        "virtualmachineinstances"
    } else {
        "virtualmachines"
    };
    let path = path(cluster, plural, &flags.name, "objectgraph");
    let graph = objects::send(cluster, Method::GET, &path, &options).await?;
    printer.object(flags.output.into(), &graph)
}
