//! `template create`.

use anyhow::Result;
use serde_json::{Value, json};

use super::cli::Create;
use crate::{
    connect::Cluster,
    objects::{self, text},
    printer::Printer,
};

pub(super) async fn create(cluster: &Cluster, printer: Printer, flags: &Create) -> Result<()> {
    let path = objects::VM_TEMPLATE_REQUEST.all(&cluster.namespace);
    let made = objects::create(cluster, &path, &request(flags, &cluster.namespace)).await?;
    if let Some(output) = flags.made.output {
        return printer.object(output, &made);
    }
    let name = text(&made, "/metadata/name").unwrap_or_default();
    printer.line(&format!("Request {name} for a template was made"));
    Ok(())
}

fn request(flags: &Create, namespace: &str) -> Value {
    let metadata = match &flags.name {
        Some(name) => json!({"name": name}),
        None => json!({"generateName": format!("{}-", flags.vm_name)}),
    };
    let namespace = flags.vm_namespace.as_deref().unwrap_or(namespace);
    json!({
        "apiVersion": "template.kubevirt.io/v1beta1",
        "kind": "VirtualMachineTemplateRequest",
        "metadata": metadata,
        "spec": {"virtualMachineRef": {"namespace": namespace, "name": flags.vm_name}},
    })
}
