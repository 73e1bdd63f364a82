//! `create clone`.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{command::Inputs, object::Identity};
use crate::failure::Usage;

#[derive(Debug, Args)]
pub struct Clone {
    /// Name of the clone object [default: a random one]
    #[arg(long)]
    pub name: Option<String>,
    /// Name of the VM or snapshot to clone
    #[arg(long, value_name = "NAME")]
    pub source_name: String,
    /// Kind of the source
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        default_value = "vm",
        value_name = "TYPE"
    )]
    pub source_type: SourceType,
    /// Name of the new VM [default: chosen by the server]
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub target_name: String,
    /// Kind of the target
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        default_value = "vm",
        value_name = "TYPE"
    )]
    pub target_type: TargetType,
    /// Labels to copy, such as * or !app/*; may be repeated
    #[arg(long, value_name = "FILTER")]
    pub label_filter: Vec<String>,
    /// Annotations to copy; may be repeated
    #[arg(long, value_name = "FILTER")]
    pub annotation_filter: Vec<String>,
    /// Labels of the template to copy; may be repeated
    #[arg(long, value_name = "FILTER")]
    pub template_label_filter: Vec<String>,
    /// Annotations of the template to copy; may be repeated
    #[arg(long, value_name = "FILTER")]
    pub template_annotation_filter: Vec<String>,
    /// MAC address of an interface: INTERFACE:ADDRESS; may be repeated
    #[arg(long, value_name = "INTERFACE:ADDRESS")]
    pub new_mac_address: Vec<String>,
    /// Serial number in the guest's SMBIOS
    #[arg(long, value_name = "SERIAL")]
    pub new_smbios_serial: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceType {
    #[value(alias = "virtualmachine")]
    Vm,
    #[value(
        name = "vmsnapshot",
        alias = "snapshot",
        alias = "virtualmachinesnapshot"
    )]
    VmSnapshot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TargetType {
    #[value(alias = "virtualmachine")]
    Vm,
}

pub(super) fn manifest(flags: &Clone, inputs: &mut Inputs<'_>) -> Result<Value, Usage> {
    let (group, kind) = match flags.source_type {
        SourceType::Vm => ("kubevirt.io", "VirtualMachine"),
        SourceType::VmSnapshot => ("snapshot.kubevirt.io", "VirtualMachineSnapshot"),
    };
    let TargetType::Vm = flags.target_type;
    let mut spec = json!({
        "source": {"apiGroup": group, "kind": kind, "name": flags.source_name},
        "target": {
            "apiGroup": "kubevirt.io",
            "kind": "VirtualMachine",
            "name": flags.target_name,
        },
    });
    let mut template = json!({});
    set_filter(&mut spec, "labelFilters", &flags.label_filter);
    set_filter(&mut spec, "annotationFilters", &flags.annotation_filter);
    set_filter(&mut template, "labelFilters", &flags.template_label_filter);
    set_filter(
        &mut template,
        "annotationFilters",
        &flags.template_annotation_filter,
    );
    if template
        .as_object()
        .is_some_and(|fields| !fields.is_empty())
    {
        spec["template"] = template;
    }
    let addresses = addresses(&flags.new_mac_address)?;
    if !addresses.is_empty() {
        spec["newMacAddresses"] = addresses.into();
    }
    if let Some(serial) = &flags.new_smbios_serial {
        spec["newSMBiosSerial"] = serial.as_str().into();
    }
    let identity = Identity {
        api_version: "clone.kubevirt.io/v1beta1",
        kind: "VirtualMachineClone",
        prefix: "clone",
        name: flags.name.as_deref(),
        namespace: inputs.namespace,
    };
    Ok(identity.object(&identity.name_with(inputs.suffix), &spec))
}

fn set_filter(object: &mut Value, field: &str, filter: &[String]) {
    if !filter.is_empty() {
        object[field] = filter.into();
    }
}

/// The address follows the first colon: it has colons of its own.
fn addresses(texts: &[String]) -> Result<Map<String, Value>, Usage> {
    let parse = |text: &String| match text.split_once(':') {
        Some((interface, address)) if !interface.is_empty() && !address.is_empty() => {
            Ok((interface.to_owned(), address.into()))
        }
        _ => Err(Usage::new(format!(
            "--new-mac-address {text}: write INTERFACE:ADDRESS, such as eth0:02:00:00:00:00:01"
        ))),
    };
    texts.iter().map(parse).collect()
}
