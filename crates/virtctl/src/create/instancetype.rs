//! `create instancetype`.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{
    command::Inputs,
    object::{Identity, set_list},
    parameters::Parameters,
};
use crate::failure::Usage;

#[derive(Debug, Args)]
pub struct Instancetype {
    /// Name [default: a random one]
    #[arg(long)]
    pub name: Option<String>,
    /// Number of vCPUs
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub cpu: u32,
    /// Memory of the guest, such as 4Gi
    #[arg(long, value_name = "SIZE")]
    pub memory: String,
    /// GPU: name:NAME, devicename:RESOURCE; may be repeated
    #[arg(long, value_name = "PARAMETERS")]
    pub gpu: Vec<String>,
    /// Host device: name:NAME, devicename:RESOURCE; may be repeated
    #[arg(long, value_name = "PARAMETERS")]
    pub hostdevice: Vec<String>,
    /// How disks use I/O threads
    #[arg(long, value_enum, value_name = "POLICY")]
    pub iothreadspolicy: Option<IoThreads>,
    /// For one namespace instead of the cluster
    #[arg(long)]
    pub namespaced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IoThreads {
    Auto,
    Shared,
}

pub(super) fn manifest(flags: &Instancetype, inputs: &mut Inputs<'_>) -> Result<Value, Usage> {
    quantity::Amount::parse_text(&flags.memory)
        .map_err(|err| Usage::new(format!("--memory: {err}")))?;
    let mut spec = json!({
        "cpu": {"guest": flags.cpu},
        "memory": {"guest": flags.memory},
    });
    set_list(&mut spec, "gpus", devices("--gpu", &flags.gpu)?);
    set_list(
        &mut spec,
        "hostDevices",
        devices("--hostdevice", &flags.hostdevice)?,
    );
    match flags.iothreadspolicy {
        None => {}
        Some(IoThreads::Auto) => spec["ioThreadsPolicy"] = "auto".into(),
        Some(IoThreads::Shared) => spec["ioThreadsPolicy"] = "shared".into(),
    }
    let (kind, prefix, namespace) = if flags.namespaced {
        (
            "VirtualMachineInstancetype",
            "instancetype",
            inputs.namespace,
        )
    } else {
        (
            "VirtualMachineClusterInstancetype",
            "clusterinstancetype",
            None,
        )
    };
    let identity = Identity {
        api_version: "instancetype.kubevirt.io/v1beta1",
        kind,
        prefix,
        name: flags.name.as_deref(),
        namespace,
    };
    Ok(identity.object(&identity.name_with(inputs.suffix), &spec))
}

fn devices(flag: &'static str, texts: &[String]) -> Result<Vec<Value>, Usage> {
    let parse = |text: &String| {
        let mut parameters = Parameters::parse(flag, text)?;
        let name = parameters.required("name")?;
        let device = parameters.required("devicename")?;
        parameters.finish()?;
        Ok(json!({"name": name, "deviceName": device}))
    };
    texts.iter().map(parse).collect()
}
