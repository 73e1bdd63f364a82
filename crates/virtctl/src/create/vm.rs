//! `create vm`.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{
    access,
    cloud_init::{CloudInitFlags, Disk, Generated},
    command::{Inputs, Manifest},
    inference::{Size, SizeFlags},
    object::{Identity, set_list},
    volumes::{VolumeFlags, Volumes},
};
use crate::failure::Usage;

pub(super) const EXAMPLES: &str = "\
Examples:
  virtctl create vm --name web --volume-containerdisk src:quay.io/containerdisks/debian:13 --user me
  virtctl create vm --name db --instancetype u1.medium --volume-import type:ds,src:images/debian13
  virtctl create vm --name win --memory 8Gi --volume-pvc src:win-root --volume-sysprep src:answers

Disks boot in this order, unless bootorder changes it: container disks, claims, deprecated kinds,
imports.";

#[derive(Debug, Args)]
pub struct Vm {
    /// Name of the VM [default: vm- and five random characters]
    #[arg(long)]
    pub name: Option<String>,
    /// When the VM runs
    #[arg(long, value_enum, default_value = "Always", value_name = "STRATEGY")]
    pub run_strategy: RunStrategy,
    /// Seconds for the guest to shut down
    #[arg(
        long,
        default_value_t = 180,
        value_name = "SECONDS",
        allow_hyphen_values = true
    )]
    pub termination_grace_period: i64,
    #[command(flatten)]
    pub size: SizeFlags,
    #[command(flatten)]
    pub volumes: VolumeFlags,
    #[command(flatten)]
    pub cloud_init: CloudInitFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum RunStrategy {
    Always,
    Manual,
    Halted,
    Once,
    RerunOnFailure,
}

impl RunStrategy {
    fn name(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::Manual => "Manual",
            Self::Halted => "Halted",
            Self::Once => "Once",
            Self::RerunOnFailure => "RerunOnFailure",
        }
    }
}

pub(super) fn manifest(vm: &Vm, inputs: &mut Inputs<'_>) -> Result<Manifest, Usage> {
    let mut warnings = deprecated(&vm.volumes);
    let identity = Identity {
        api_version: "kubevirt.io/v1",
        kind: "VirtualMachine",
        prefix: "vm",
        name: vm.name.as_deref(),
        namespace: inputs.namespace,
    };
    let name = identity.name_with(inputs.suffix);
    let mut volumes = Volumes::of(&vm.volumes, &name, inputs)?;
    let size = Size::of(&vm.size, &volumes)?;
    let flags = &vm.cloud_init;
    let mut generated = Generated::of(flags);
    let access = access::credentials(&flags.access_cred, flags.user.as_deref(), &mut generated)?;
    match generated.disk(flags, inputs.password.as_ref()) {
        Disk::None => {}
        Disk::Suppressed => warnings.push(
            "--cloud-init none: no cloud-init disk is made, so the user, password, keys and data of \
             other flags are left out"
                .to_owned(),
        ),
        Disk::Volume(disk) => {
            if inputs.password.is_some() {
                warnings.push(
                    "--password-file: everybody who may read the VM can read the password".to_owned(),
                );
            }
            volumes.add(disk)?;
        }
    }

    let mut template = json!({
        "domain": {"devices": {}},
        "terminationGracePeriodSeconds": vm.termination_grace_period,
    });
    set_list(&mut template["domain"]["devices"], "disks", volumes.disks());
    if let Some(memory) = size.memory {
        template["domain"]["memory"] = json!({"guest": memory});
    }
    set_list(&mut template, "accessCredentials", access);
    set_list(&mut template, "volumes", volumes.specs());

    let mut spec = json!({"runStrategy": vm.run_strategy.name()});
    for (field, value) in [
        ("instancetype", size.instancetype),
        ("preference", size.preference),
    ] {
        if let Some(value) = value {
            spec[field] = value;
        }
    }
    set_list(&mut spec, "dataVolumeTemplates", volumes.templates());
    spec["template"] = json!({"spec": template});
    let object = identity.object(&name, &spec);
    Ok(Manifest { object, warnings })
}

fn deprecated(flags: &VolumeFlags) -> Vec<String> {
    let all = [
        ("--volume-datasource", "ds", &flags.datasource),
        ("--volume-clone-pvc", "pvc", &flags.clone_pvc),
        ("--volume-blank", "blank", &flags.blank),
    ];
    let used = all.iter().filter(|(.., texts)| !texts.is_empty());
    used.map(|(flag, kind, _)| format!("{flag} is deprecated: use --volume-import type:{kind}"))
        .collect()
}
