//! Launch security: guests whose memory is encrypted.

use kubevirt_api::{domain::LaunchSecurity, vmi::StartStrategy};
use validation::{Cause, Violation};

use super::{
    features::is_on,
    input::{Input, count},
};

const PATH: &str = "domain.launchSecurity";

pub(super) fn architecture(input: &Input<'_>) -> Vec<Violation> {
    let name = input.architecture();
    if input.spec.domain.launch_security.is_none() || matches!(name, "amd64" | "s390x") {
        return Vec::new();
    }
    let detail = format!("{name} does not support it; use amd64 or s390x, or leave it out");
    vec![input.invalid(PATH, detail)]
}

/// Launch security on amd64, the architecture with several kinds.
fn kinds<'a>(input: &Input<'a>) -> Option<&'a LaunchSecurity> {
    let security = input.spec.domain.launch_security.as_ref();
    security.filter(|_| input.architecture() == "amd64")
}

pub(super) fn one_kind(input: &Input<'_>) -> Vec<Violation> {
    let given = kinds(input).map(|security| {
        [
            security.sev.is_some(),
            security.snp.is_some(),
            security.tdx.is_some(),
        ]
    });
    if given.is_none_or(|given| count(&given) == 1) {
        return Vec::new();
    }
    let detail = "give exactly one of sev, snp and tdx";
    vec![Violation::new(Cause::Forbidden, input.at(PATH), detail)]
}

pub(super) fn gates(input: &Input<'_>) -> Vec<Violation> {
    let Some(security) = kinds(input) else {
        return Vec::new();
    };
    [
        (security.sev.is_some(), "WorkloadEncryptionSEV"),
        (security.snp.is_some(), "WorkloadEncryptionSEV"),
        (security.tdx.is_some(), "WorkloadEncryptionTDX"),
    ]
    .into_iter()
    .filter(|(is_given, _)| *is_given)
    .filter_map(|(_, gate)| input.needs_gate(PATH, gate))
    .collect()
}

pub(super) fn firmware(input: &Input<'_>) -> Vec<Violation> {
    let Some(security) = kinds(input) else {
        return Vec::new();
    };
    let features = input.spec.domain.features.as_ref();
    let has_smm = features.is_some_and(|features| is_on(features.smm.as_ref()));
    let mut found = Vec::new();
    if security.tdx.is_some() && has_smm {
        let detail = "TDX does not support SMM; leave out features.smm";
        found.push(input.invalid(PATH, detail));
    }
    let Some(efi) = input.efi() else {
        let detail = "needs EFI; set firmware.bootloader.efi";
        found.push(input.invalid(PATH, detail));
        return found;
    };
    let is_amd = security.sev.is_some() || security.snp.is_some();
    if is_amd && efi.secure_boot != Some(false) {
        let detail = "SEV does not support secure boot; set secureBoot: false";
        found.push(input.invalid(PATH, detail));
    }
    let is_stateless = security.snp.is_some() || security.tdx.is_some();
    if is_stateless && efi.persistent == Some(true) {
        let detail = "SNP and TDX do not support persistent EFI; leave out persistent";
        found.push(input.invalid(PATH, detail));
    }
    found
}

pub(super) fn attestation(input: &Input<'_>) -> Vec<Violation> {
    let sev = kinds(input).and_then(|security| security.sev.as_ref());
    let attests = sev.is_some_and(|sev| sev.attestation.is_some());
    if !attests || input.spec.start_strategy == Some(StartStrategy::Paused) {
        return Vec::new();
    }
    let detail = "attestation happens before the guest runs; set startStrategy: Paused";
    vec![input.invalid(PATH, detail)]
}

pub(super) fn boot_order(input: &Input<'_>) -> Vec<Violation> {
    if kinds(input).is_none() {
        return Vec::new();
    }
    let interfaces = input.spec.domain.devices.interfaces.iter().enumerate();
    interfaces
        .filter(|(_, interface)| interface.boot_order.is_some())
        .map(|(i, _)| {
            let field = format!("domain.devices.interfaces[{i}].bootOrder");
            let detail = "guests with launch security do not boot from the network; leave it out";
            input.invalid(&field, detail)
        })
        .collect()
}
