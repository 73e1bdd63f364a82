//! Presets: parts of VMIs that are merged into matching VMIs. A deprecated kind.

use kubevirt_api::{
    domain::DomainSpec,
    preset::VirtualMachineInstancePreset,
    vmi::VirtualMachineInstanceSpec,
    volumes::{PvcVolumeSource, Volume},
};
use validation::{Rule, Subject, Violation};

use super::kind::{Check, Kind, Problem, TypedRequest};

type Request<'a> = TypedRequest<'a, VirtualMachineInstancePreset>;

impl Kind for VirtualMachineInstancePreset {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "preset.domain",
            Subject::Preset,
            "there is a domain",
            domain,
        ),
        Rule::new(
            "preset.disks",
            Subject::Preset,
            "disks are well formed",
            |request| part(request, "spec.domain.devices.disks"),
        ),
        Rule::new(
            "preset.firmware",
            Subject::Preset,
            "firmware is well formed",
            |request| part(request, "spec.domain.firmware"),
        ),
    ];

    fn warnings(_: &Request<'_>) -> Vec<String> {
        vec![instancetype::presets::DEPRECATION.to_owned()]
    }
}

fn domain(request: &Request<'_>) -> Vec<Problem> {
    if request.new.spec.domain.is_some() {
        return Vec::new();
    }
    let detail = "missing; describe the domain to merge into matching VMIs";
    vec![Violation::required("spec.domain", detail).into()]
}

/// Problems of one part of the domain, by the checks of a VMI. Generates the fields that a preset
/// cannot have, such as volumes, so that no check reports them as missing.
fn part(request: &Request<'_>, path: &str) -> Vec<Problem> {
    let Some(domain) = &request.new.spec.domain else {
        return Vec::new();
    };
    let spec = VirtualMachineInstanceSpec {
        volumes: volumes(domain),
        domain: domain.clone(),
        ..VirtualMachineInstanceSpec::default()
    };
    let found = request.check_guest(&spec);
    found
        .into_iter()
        .filter(|violation| violation.field.starts_with(path))
        .map(Problem::from)
        .collect()
}

/// One volume per disk, of a type that every disk target supports.
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
