//! The instance type and the preference of a VM: named, inferred from a volume, or neither.

use clap::Args;
use serde_json::{Value, json};

use super::{
    matcher,
    volumes::{Inferable, Volume, Volumes},
};
use crate::failure::Usage;

const DEFAULT_MEMORY: &str = "512Mi";

#[derive(Debug, Args)]
#[command(next_help_heading = "Size")]
pub struct SizeFlags {
    /// Memory of the guest, such as 4Gi [default: 512Mi, if no instance type is given]
    #[arg(long, value_name = "SIZE",
          conflicts_with_all = ["instancetype", "infer_instancetype", "infer_instancetype_from"])]
    pub memory: Option<String>,
    /// Instance type: NAME, or KIND/NAME for a namespaced one
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["infer_instancetype", "infer_instancetype_from"])]
    pub instancetype: Option<String>,
    /// Infer the instance type from the first boot disk; without this flag only if the disk has one
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", conflicts_with = "infer_instancetype_from")]
    pub infer_instancetype: Option<bool>,
    /// Infer the instance type from this volume
    #[arg(long, value_name = "VOLUME")]
    pub infer_instancetype_from: Option<String>,
    /// Preference: NAME, or KIND/NAME for a namespaced one
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["infer_preference", "infer_preference_from"])]
    pub preference: Option<String>,
    /// Infer the preference from the first boot disk; without this flag only if the disk has one
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", conflicts_with = "infer_preference_from")]
    pub infer_preference: Option<bool>,
    /// Infer the preference from this volume
    #[arg(long, value_name = "VOLUME")]
    pub infer_preference_from: Option<String>,
}

/// Parts of the VM's spec.
#[derive(Debug)]
pub(super) struct Size {
    pub(super) instancetype: Option<Value>,
    pub(super) preference: Option<Value>,
    /// Memory of the template.
    pub(super) memory: Option<String>,
}

impl Size {
    pub(super) fn of(flags: &SizeFlags, volumes: &Volumes) -> Result<Self, Usage> {
        let instancetype = Choice {
            name: flags.instancetype.as_deref(),
            infer: flags.infer_instancetype,
            from: flags.infer_instancetype_from.as_deref(),
        };
        let preference = Choice {
            name: flags.preference.as_deref(),
            infer: flags.infer_preference,
            from: flags.infer_preference_from.as_deref(),
        };
        if let Some(memory) = &flags.memory {
            quantity::Amount::parse_text(memory)
                .map_err(|err| Usage::new(format!("--memory: {err}")))?;
        }
        let kinds = [
            "virtualmachineinstancetype",
            "virtualmachineclusterinstancetype",
        ];
        let memory = match (&flags.memory, instancetype.is_certain()) {
            (Some(memory), _) => Some(memory.clone()),
            (None, true) => None,
            (None, false) => Some(DEFAULT_MEMORY.to_owned()),
        };
        let instancetype = if flags.memory.is_some() {
            None
        } else {
            instancetype.matcher("instancetype", kinds, volumes)?
        };
        let kinds = [
            "virtualmachinepreference",
            "virtualmachineclusterpreference",
        ];
        Ok(Self {
            instancetype,
            preference: preference.matcher("preference", kinds, volumes)?,
            memory,
        })
    }
}

#[derive(Clone, Copy)]
struct Choice<'a> {
    name: Option<&'a str>,
    infer: Option<bool>,
    from: Option<&'a str>,
}

impl Choice<'_> {
    /// Whether the VM does not start without what it names or infers.
    fn is_certain(self) -> bool {
        self.name.is_some() || self.infer == Some(true) || self.from.is_some()
    }

    fn matcher(
        self,
        what: &'static str,
        kinds: [&'static str; 2],
        volumes: &Volumes,
    ) -> Result<Option<Value>, Usage> {
        if let Some(name) = self.name {
            let flag = if what == "preference" {
                "--preference"
            } else {
                "--instancetype"
            };
            return matcher::reference(flag, name, kinds).map(Some);
        }
        if let Some(from) = self.from {
            let flag = format!("--infer-{what}-from {from}");
            let volume = volumes.named(from).ok_or_else(|| {
                Usage::new(format!(
                    "{flag}: no volume has this name: give it with name:{from}"
                ))
            })?;
            return certain(&flag, volume).map(Some);
        }
        match self.infer {
            Some(true) => {
                let flag = format!("--infer-{what}");
                let first = volumes.first().ok_or_else(|| {
                    Usage::new(format!(
                        "{flag}: there is no volume: add one, e.g. --volume-pvc"
                    ))
                })?;
                certain(&flag, first).map(Some)
            }
            Some(false) => Ok(None),
            None => {
                let first = volumes
                    .first()
                    .filter(|one| one.inferable == Inferable::Yes);
                Ok(first.map(|volume| {
                    json!({
                        "inferFromVolume": volume.name,
                        "inferFromVolumeFailurePolicy": "Ignore",
                    })
                }))
            }
        }
    }
}

fn certain(flag: &str, volume: &Volume) -> Result<Value, Usage> {
    match volume.inferable {
        Inferable::Yes => Ok(json!({"inferFromVolume": volume.name})),
        Inferable::No => Err(Usage::new(format!(
            "{flag}: volume {:?} cannot have defaults: use a claim, or an import of type pvc, \
             registry, snapshot or ds",
            volume.name
        ))),
    }
}
