//! PCI devices of NVIDIA Grace boards: they work only in guests of one make.
//!
//! What such a device is, the cluster's list of devices says: the vendor selector of the resource.

use super::Input;
use crate::violation::Violation;

const VENDOR: &str = "10DE";
/// Device numbers of the GPUs of Grace boards.
const DEVICES: &[&str] = &["2342", "2348", "2941", "31C2", "31C3"];
const ON_ROOT_COMPLEX: &str = "kubevirt.io/placePCIDevicesOnRootComplex";
const NO_HOLE: &str = "kubevirt.io/disablePCIHole64";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Grace,
    /// Of the vendor, but any device.
    Unclear,
}

fn kind(selector: &str) -> Option<Kind> {
    let (vendor, device) = selector.trim().split_once(':')?;
    let plain = |id: &str| {
        let id = id.trim().to_ascii_uppercase();
        id.strip_prefix("0X").map(str::to_owned).unwrap_or(id)
    };
    let device = plain(device);
    match plain(vendor) == VENDOR {
        true if DEVICES.contains(&&*device) => Some(Kind::Grace),
        true if device == "*" => Some(Kind::Unclear),
        _ => None,
    }
}

/// Path of each device by name that is, or may be, of such a board.
fn requests(input: &Input<'_>) -> Vec<(String, Kind)> {
    if input.config.pci_devices.is_empty() {
        return Vec::new();
    }
    let devices = &input.spec.domain.devices;
    let gpus = devices.gpus.iter().map(|gpu| gpu.device_name.as_deref());
    let others = devices.host_devices.iter();
    let others = others.map(|device| device.device_name.as_deref());
    let named = |list: &'static str| {
        move |(i, name): (usize, Option<&str>)| {
            let selector = input.config.pci_devices.get(name?)?;
            Some((
                format!("domain.devices.{list}[{i}].deviceName"),
                kind(selector)?,
            ))
        }
    };
    gpus.enumerate()
        .filter_map(named("gpus"))
        .chain(others.enumerate().filter_map(named("hostDevices")))
        .collect()
}

pub(super) fn devices(input: &Input<'_>) -> Vec<Violation> {
    let gate = "GraceIOVirtualization";
    let is_on = input.config.has_gate(gate);
    let requests = requests(input);
    let mut found = Vec::new();
    for (path, kind) in &requests {
        match kind {
            Kind::Unclear if is_on => {
                let detail = "the cluster's selector of this resource stands for any device of \
                              the vendor; it must name one";
                found.push(input.invalid(path, detail));
            }
            Kind::Grace => found.extend(input.needs_gate(path, gate)),
            Kind::Unclear => {}
        }
    }
    let has_grace = requests.iter().any(|(_, kind)| *kind == Kind::Grace);
    if has_grace && is_on {
        found.extend(surroundings(input));
    }
    found
}

fn surroundings(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    if input.architecture() != "arm64" {
        let detail = "Grace devices work on arm64 only";
        found.push(input.invalid("architecture", detail));
    }
    let machine = input.spec.domain.machine.as_ref();
    let machine = machine.and_then(|machine| machine.type_.as_deref());
    if !machine.unwrap_or_default().starts_with("virt") {
        let detail = "Grace devices need a machine of type virt";
        found.push(input.invalid("domain.machine.type", detail));
    }
    if !input.has_dedicated_cpus() {
        let detail = "Grace devices need this to be true";
        found.push(input.required("domain.cpu.dedicatedCpuPlacement", detail));
    }
    for gate in ["PCINUMAAwareTopology", "IOMMUFD"] {
        found.extend(input.needs_gate("domain.devices", gate));
    }
    found
}

pub(super) fn annotations(input: &Input<'_>) -> Vec<Violation> {
    if requests(input).iter().all(|(_, kind)| *kind != Kind::Grace) {
        return Vec::new();
    }
    [ON_ROOT_COMPLEX, NO_HOLE]
        .into_iter()
        .filter(|key| {
            input
                .annotations
                .get(*key)
                .is_some_and(|value| value == "true")
        })
        .map(|key| {
            let field = format!("{}.annotations", input.metadata_path());
            let detail = format!("Grace devices do not bear {key}; remove it");
            Violation::invalid(field, detail)
        })
        .collect()
}
