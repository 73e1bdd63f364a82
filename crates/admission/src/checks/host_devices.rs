//! GPUs and host devices: by the name of a resource, or by a resource claim.

use std::collections::BTreeSet;

use validation::Violation;

use super::input::{Input, count, given};

/// The common fields of GPUs and host devices.
struct Requested<'a> {
    path: String,
    device: Option<&'a str>,
    claim: Option<&'a str>,
    request: Option<&'a str>,
    gate: &'static str,
}

impl Requested<'_> {
    fn is_by_claim(&self) -> bool {
        self.claim.is_some() || self.request.is_some()
    }
}

fn devices<'a>(input: &Input<'a>) -> impl Iterator<Item = Requested<'a>> + use<'a> {
    let devices = &input.spec.domain.devices;
    let gpus = devices.gpus.iter().enumerate().map(|(i, gpu)| Requested {
        path: format!("domain.devices.gpus[{i}]"),
        device: given(gpu.device_name.as_deref()),
        claim: gpu.claim_name.as_deref(),
        request: gpu.request_name.as_deref(),
        gate: "GPUsWithDRA",
    });
    let others = devices.host_devices.iter().enumerate();
    gpus.chain(others.map(|(i, device)| Requested {
        path: format!("domain.devices.hostDevices[{i}]"),
        device: given(device.device_name.as_deref()),
        claim: device.claim_name.as_deref(),
        request: device.request_name.as_deref(),
        gate: "HostDevicesWithDRA",
    }))
}

pub(super) fn gpus(input: &Input<'_>) -> Vec<Violation> {
    let gpus = &input.spec.domain.devices.gpus;
    let field = "domain.devices.gpus";
    let displays = gpus.iter().filter(|gpu| {
        let options = gpu.virtual_gpu_options.as_ref();
        let display = options.and_then(|options| options.display.as_ref());
        display.is_some_and(|display| {
            let ram_fb = display.ram_fb.as_ref();
            display.enabled != Some(false)
                && ram_fb.is_none_or(|ram_fb| ram_fb.enabled != Some(false))
        })
    });
    let mut found = Vec::new();
    if displays.count() > 1 {
        let detail = "more than one GPU has a boot display; set ramFB.enabled: false on the others";
        found.push(input.invalid(field, detail));
    }
    let by_claim = gpus
        .iter()
        .filter(|gpu| gpu.claim_name.is_some() || gpu.request_name.is_some())
        .count();
    let by_name = gpus
        .iter()
        .filter(|gpu| given(gpu.device_name.as_deref()).is_some())
        .count();
    if by_claim > 0 && by_name > 0 {
        let detail = "GPUs by deviceName together with GPUs by claim; use one way for all";
        found.push(input.invalid(field, detail));
    }
    found
}

pub(super) fn sources(input: &Input<'_>) -> Vec<Violation> {
    devices(input)
        .filter_map(
            |one| match count(&[one.device.is_some(), one.is_by_claim()]) {
                1 => None,
                0 => {
                    let detail = "no device; give deviceName, or claimName and requestName";
                    Some(input.required(&one.path, detail))
                }
                _ => {
                    let detail = "deviceName and a claim are both set; choose one";
                    Some(input.invalid(&one.path, detail))
                }
            },
        )
        .collect()
}

pub(super) fn claims(input: &Input<'_>) -> Vec<Violation> {
    let networks = input.spec.networks.iter().filter_map(|network| {
        let claim = network.resource_claim.as_ref()?;
        Some((
            given(claim.claim_name.as_deref())?,
            given(claim.request_name.as_deref())?,
        ))
    });
    let mut used: BTreeSet<_> = networks.collect();
    let mut found = Vec::new();
    for one in devices(input).filter(Requested::is_by_claim) {
        found.extend(input.needs_gate(&one.path, one.gate));
        let parts = [
            ("claimName", given(one.claim)),
            ("requestName", given(one.request)),
        ];
        for (field, value) in parts {
            if value.is_none() {
                let detail = "empty; name the claim and the request in it";
                found.push(input.required(&format!("{}.{field}", one.path), detail));
            }
        }
        if let (Some(claim), Some(request)) = (given(one.claim), given(one.request))
            && !used.insert((claim, request))
        {
            let detail = format!("request {request:?} of claim {claim:?} is used twice");
            found.push(input.duplicate(&one.path, detail));
        }
        if let Some(claim) = given(one.claim)
            && !input
                .spec
                .resource_claims
                .iter()
                .any(|own| own.name == claim)
        {
            let detail = format!("no resource claim is named {claim:?}; add it to resourceClaims");
            found.push(input.invalid(&format!("{}.claimName", one.path), detail));
        }
    }
    found
}

pub(super) fn gate(input: &Input<'_>) -> Vec<Violation> {
    let is_given = !input.spec.domain.devices.host_devices.is_empty();
    let problem = input.needs_gate("domain.devices.hostDevices", "HostDevices");
    problem.filter(|_| is_given).into_iter().collect()
}
