//! The volumes of a VM, in the order in which they are tried at boot.

use clap::Args;
use serde_json::{Value, json};

use super::{command::Inputs, imports, parameters::Parameters};
use crate::failure::Usage;

const SYSPREP: &str = "sysprepdisk";

#[derive(Debug, Args)]
#[command(next_help_heading = "Volumes")]
pub struct VolumeFlags {
    /// Container disk: src:IMAGE, name:NAME, bootorder:NUMBER; may be repeated
    #[arg(long = "volume-containerdisk", value_name = "PARAMETERS")]
    pub containerdisk: Vec<String>,
    /// Claim, used directly: src:CLAIM, name:NAME, bootorder:NUMBER; may be repeated
    #[arg(long = "volume-pvc", value_name = "PARAMETERS")]
    pub pvc: Vec<String>,
    /// Data volume that is made for the VM: type:TYPE, name:NAME, size:SIZE, bootorder:NUMBER and the
    /// parameters of the type; may be repeated
    #[arg(long = "volume-import", value_name = "PARAMETERS", long_help = imports::help())]
    pub import: Vec<String>,
    /// Answer file for Windows: src:NAME, type:configmap or secret
    #[arg(long = "volume-sysprep", value_name = "PARAMETERS")]
    pub sysprep: Option<String>,
    /// Deprecated: use --volume-import type:ds
    #[arg(long = "volume-datasource", value_name = "PARAMETERS", hide = true)]
    pub datasource: Vec<String>,
    /// Deprecated: use --volume-import type:pvc
    #[arg(long = "volume-clone-pvc", value_name = "PARAMETERS", hide = true)]
    pub clone_pvc: Vec<String>,
    /// Deprecated: use --volume-import type:blank
    #[arg(long = "volume-blank", value_name = "PARAMETERS", hide = true)]
    pub blank: Vec<String>,
}

/// Whether an instance type or preference can be inferred from a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inferable {
    Yes,
    No,
}

#[derive(Debug)]
pub(super) struct Volume {
    pub(super) name: String,
    /// The field of its source, and the source.
    pub(super) source: (&'static str, Value),
    /// The data volume to make for it.
    pub(super) template: Option<Value>,
    pub(super) boot_order: Option<u32>,
    pub(super) inferable: Inferable,
}

#[derive(Debug, Default)]
pub(super) struct Volumes(Vec<Volume>);

impl Volumes {
    /// All but the cloud-init disk.
    pub(super) fn of(
        flags: &VolumeFlags,
        vm: &str,
        inputs: &mut Inputs<'_>,
    ) -> Result<Self, Usage> {
        let mut volumes = Self::default();
        for (index, text) in flags.containerdisk.iter().enumerate() {
            let parameters = Parameters::parse("--volume-containerdisk", text)?;
            volumes.container_disk(parameters, || format!("{vm}-containerdisk-{index}"))?;
        }
        for text in &flags.pvc {
            volumes.claim(Parameters::parse("--volume-pvc", text)?)?;
        }
        let deprecated = [
            ("--volume-blank", "blank", &flags.blank),
            ("--volume-clone-pvc", "pvc", &flags.clone_pvc),
            ("--volume-datasource", "ds", &flags.datasource),
        ];
        for (flag, kind, texts) in deprecated {
            // The last one boots first, as with the original.
            for text in texts.iter().rev() {
                let parameters = Parameters::parse(flag, text)?;
                volumes.import(parameters, Some(kind), inputs)?;
            }
        }
        for text in &flags.import {
            volumes.import(Parameters::parse("--volume-import", text)?, None, inputs)?;
        }
        if let Some(text) = &flags.sysprep {
            volumes.sysprep(Parameters::parse("--volume-sysprep", text)?)?;
        }
        Ok(volumes)
    }

    fn container_disk(
        &mut self,
        mut parameters: Parameters,
        name: impl FnOnce() -> String,
    ) -> Result<(), Usage> {
        let image = parameters.required("src")?;
        let volume = Volume {
            name: parameters.take("name").unwrap_or_else(name),
            source: ("containerDisk", json!({"image": image})),
            template: None,
            boot_order: parameters.boot_order()?,
            inferable: Inferable::No,
        };
        self.add_parsed(volume, parameters)
    }

    fn claim(&mut self, mut parameters: Parameters) -> Result<(), Usage> {
        let claim = parameters.local_source("claim")?;
        let volume = Volume {
            name: parameters.take("name").unwrap_or_else(|| claim.clone()),
            source: ("persistentVolumeClaim", json!({"claimName": claim})),
            template: None,
            boot_order: parameters.boot_order()?,
            inferable: Inferable::Yes,
        };
        self.add_parsed(volume, parameters)
    }

    fn import(
        &mut self,
        mut parameters: Parameters,
        kind: Option<&str>,
        inputs: &mut Inputs<'_>,
    ) -> Result<(), Usage> {
        let kind = match kind {
            Some(kind) => kind.to_owned(),
            None => parameters.required("type")?,
        };
        let name = parameters.take("name");
        let name = name.unwrap_or_else(|| format!("imported-volume-{}", (inputs.suffix)()));
        let boot_order = parameters.boot_order()?;
        let imported = imports::data_volume(&kind, &mut parameters)?;
        let volume = Volume {
            source: ("dataVolume", json!({"name": name})),
            template: Some(json!({"metadata": {"name": name}, "spec": imported.spec})),
            name,
            boot_order,
            inferable: imported.inferable,
        };
        self.add_parsed(volume, parameters)
    }

    fn sysprep(&mut self, mut parameters: Parameters) -> Result<(), Usage> {
        let name = parameters.local_source("config map or secret")?;
        let kind = parameters
            .take("type")
            .unwrap_or_else(|| "configmap".to_owned());
        let field = match kind.to_ascii_lowercase().as_str() {
            "configmap" => "configMap",
            "secret" => "secret",
            other => {
                let message = format!("unknown type {other:?}: use configmap or secret");
                return Err(parameters.wrong(&message));
            }
        };
        let volume = Volume {
            name: SYSPREP.to_owned(),
            source: ("sysprep", json!({field: {"name": name}})),
            template: None,
            boot_order: None,
            inferable: Inferable::No,
        };
        self.add_parsed(volume, parameters)
    }

    fn add_parsed(&mut self, volume: Volume, parameters: Parameters) -> Result<(), Usage> {
        if let Some(conflict) = self.conflict(&volume) {
            return Err(parameters.wrong(&conflict));
        }
        parameters.finish()?;
        self.0.push(volume);
        Ok(())
    }

    pub(super) fn add(&mut self, volume: Volume) -> Result<(), Usage> {
        if let Some(conflict) = self.conflict(&volume) {
            return Err(Usage::new(conflict));
        }
        self.0.push(volume);
        Ok(())
    }

    fn conflict(&self, new: &Volume) -> Option<String> {
        let name = &new.name;
        if self.0.iter().any(|one| one.name == *name) {
            return Some(format!(
                "two volumes are named {name:?}: give one another name:NAME"
            ));
        }
        let order = new.boot_order?;
        let other = self.0.iter().find(|one| one.boot_order == Some(order))?;
        Some(format!(
            "bootorder {order} is also that of volume {:?}: give another number",
            other.name
        ))
    }

    pub(super) fn named(&self, name: &str) -> Option<&Volume> {
        self.0.iter().find(|volume| volume.name == name)
    }

    /// The volume that is tried first at boot.
    pub(super) fn first(&self) -> Option<&Volume> {
        // Volumes without an order follow those with one, as they are listed.
        let order = |volume: &&Volume| volume.boot_order.unwrap_or(u32::MAX);
        self.0.iter().min_by_key(order)
    }

    pub(super) fn templates(&self) -> Vec<Value> {
        let templates = self.0.iter().map(|volume| volume.template.clone());
        templates.flatten().collect()
    }

    /// Only a volume with a boot order needs a disk; admission adds the other disks.
    pub(super) fn disks(&self) -> Vec<Value> {
        let ordered = self.0.iter().filter_map(|volume| {
            let order = volume.boot_order?;
            Some(json!({"name": volume.name, "bootOrder": order}))
        });
        ordered.collect()
    }

    pub(super) fn specs(&self) -> Vec<Value> {
        let specs = self.0.iter().map(|volume| {
            let (field, source) = &volume.source;
            json!({"name": volume.name, *field: source})
        });
        specs.collect()
    }
}
