//! PCI devices of NVIDIA Grace boards and the configuration that they require of a guest.
//!
//! The vendor selector in the cluster's list of permitted devices identifies them.

use validation::Violation;

use super::input::Input;

const VENDOR: &str = "10DE";
/// Device numbers of the GPUs of Grace boards.
const DEVICES: &[&str] = &["2342", "2348", "2941", "31C2", "31C3"];
const ON_ROOT_COMPLEX: &str = "kubevirt.io/placePCIDevicesOnRootComplex";
const NO_HOLE: &str = "kubevirt.io/disablePCIHole64";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Grace,
    /// Any device of the vendor.
    AnyOfVendor,
}

fn kind(selector: &str) -> Option<Kind> {
    let (vendor, device) = selector.trim().split_once(':')?;
    let normalized = |id: &str| {
        let id = id.trim().to_ascii_uppercase();
        id.strip_prefix("0X").map(str::to_owned).unwrap_or(id)
    };
    let device = normalized(device);
    match normalized(vendor) == VENDOR {
        true if DEVICES.contains(&&*device) => Some(Kind::Grace),
        true if device == "*" => Some(Kind::AnyOfVendor),
        _ => None,
    }
}

/// A requested device that is, or may be, of a Grace board.
struct Requested {
    path: String,
    kind: Kind,
}

fn requests(input: &Input<'_>) -> Vec<Requested> {
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
            Some(Requested {
                path: format!("domain.devices.{list}[{i}].deviceName"),
                kind: kind(selector)?,
            })
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
    for Requested { path, kind } in &requests {
        match kind {
            Kind::AnyOfVendor if is_on => {
                let detail = "the cluster's selector of this resource matches any device of the \
                              vendor; it must name one";
                found.push(input.invalid(path, detail));
            }
            Kind::Grace => found.extend(input.needs_gate(path, gate)),
            Kind::AnyOfVendor => {}
        }
    }
    let has_grace = requests.iter().any(|one| one.kind == Kind::Grace);
    if has_grace && is_on {
        found.extend(guest_requirements(input));
    }
    found
}

fn guest_requirements(input: &Input<'_>) -> Vec<Violation> {
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
    if requests(input).iter().all(|one| one.kind != Kind::Grace) {
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
            let detail = format!("Grace devices do not support {key}; remove it");
            Violation::invalid(field, detail)
        })
        .collect()
}
