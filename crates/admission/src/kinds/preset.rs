//! Presets: parts of instances, merged into those that match. An old kind that new manifests should
//! not use.

use std::collections::BTreeMap;

use kubevirt_api::{
    domain::DomainSpec,
    preset::VirtualMachineInstancePreset,
    vmi::VirtualMachineInstanceSpec,
    volumes::{PvcVolumeSource, Volume},
};

use super::{Asked, Check, Fault, Kind};
use crate::{
    Violation,
    checks::{self, Input, Origin},
    rules::Rule,
};

type Question<'a> = Asked<'a, VirtualMachineInstancePreset>;

impl Kind for VirtualMachineInstancePreset {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new("preset.domain", "4", "there is a domain", domain),
        Rule::new("preset.disks", "4", "disks are well formed", |asked| {
            part(asked, "spec.domain.devices.disks")
        }),
        Rule::new("preset.firmware", "4", "firmware is well formed", |asked| {
            part(asked, "spec.domain.firmware")
        }),
    ];

    fn warnings(_: &Question<'_>) -> Vec<String> {
        vec![
            "VirtualMachineInstancePreset is deprecated; use an instance type and a preference"
                .to_owned(),
        ]
    }
}

fn domain(asked: &Question<'_>) -> Vec<Fault> {
    if asked.new.spec.domain.is_some() {
        return Vec::new();
    }
    let detail = "missing; describe what matching instances get";
    vec![Violation::required("spec.domain", detail).into()]
}

/// What the checks of an instance say about one part of the domain. What a preset has no place for,
/// such as volumes, is made up so that nothing misses it.
fn part(asked: &Question<'_>, path: &str) -> Vec<Fault> {
    let Some(domain) = &asked.new.spec.domain else {
        return Vec::new();
    };
    let spec = VirtualMachineInstanceSpec {
        volumes: volumes(domain),
        domain: domain.clone(),
        ..VirtualMachineInstanceSpec::default()
    };
    let none = BTreeMap::new();
    let found = checks::run(&Input {
        spec: &spec,
        labels: &none,
        annotations: &none,
        config: asked.config,
        origin: Origin::Instance,
        occasion: asked.occasion(),
        requester: asked.requester,
    });
    found
        .into_iter()
        .filter(|violation| violation.field.starts_with(path))
        .map(Fault::from)
        .collect()
}

/// One for each disk, of the kind that every disk may show.
fn volumes(domain: &DomainSpec) -> Vec<Volume> {
    let disks = domain.devices.disks.iter();
    let volume = |name: &str| Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(PvcVolumeSource {
            claim_name: name.to_owned(),
            ..PvcVolumeSource::default()
        }),
        ..Volume::default()
    };
    disks.map(|disk| volume(&disk.name)).collect()
}
