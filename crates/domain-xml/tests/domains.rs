//! VMIs as data, domains as golden files.
//!
//! Every row of `cases/*.yaml` is a merge patch of a plain guest, with facts that differ from the usual
//! ones. Its domain is `domains/<name>.snap`; `INSTA_UPDATE=always` rewrites them. libvirt's schema accepts
//! all of them (`schema`), and every field that changes a domain is in one of them (`fields`). The test of the
//! coverage of fields in `crates/admission` reads the same rows.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "fields/mod.rs"]
mod fields;
#[path = "schema/mod.rs"]
mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use domain_xml::{
    Acceleration, Allocation, BlockSizes, DirectIo, EfiFirmware, Facts, HostCell, HostCpu, Input,
    InterfaceFacts, Provisioning, SmbiosFacts, VolumeFacts, VolumeMode, render,
};
use kubevirt_api::VirtualMachineInstance;
use model::{AllocatedDevices, DeviceAddress, MediatedUuid, PciAddress, Supported};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// A sentence on what the domain demonstrates.
    shows: String,
    /// Merge patch of the plain guest.
    #[serde(default)]
    vmi: Value,
    #[serde(default)]
    facts: Given,
    /// The expected error, instead of a domain.
    error: Option<String>,
}

/// Facts that differ from those of a node with KVM and direct input and output.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Given {
    emulation: bool,
    cached_files: bool,
    /// Claims and directories of the node by volume: `filesystem` or `block`.
    volumes: BTreeMap<String, Mode>,
    /// Variables of the pod that name its devices of the node.
    variables: BTreeMap<String, String>,
    /// Addresses of devices by `claim/request`.
    claimed: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Filesystem,
    Block,
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn read(path: &Path) -> Vec<Row> {
    let text = fs::read_to_string(path).unwrap();
    let shown = path.display().to_string();
    serde_saphyr::from_str(&text).expect(&shown)
}

fn rows() -> Vec<Row> {
    let mut files: Vec<_> = fs::read_dir(directory("cases"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().flat_map(|path| read(path)).collect()
}

/// The VMI of a row.
fn object(row: &Row) -> Value {
    let plain = fs::read_to_string(directory("plain.yaml")).unwrap();
    let mut object: Value = serde_saphyr::from_str(&plain).unwrap();
    if !row.vmi.is_null() {
        json_patch::merge(&mut object, &row.vmi);
    }
    object
}

/// A host with two cells of two cores with two threads; the pod has all but the first core.
fn cpus() -> Vec<HostCpu> {
    let cpu = |id| HostCpu {
        id,
        core: id / 2,
        cell: id / 4,
    };
    (2..8).map(cpu).collect()
}

fn cells() -> Vec<HostCell> {
    let cell = |id, other| HostCell {
        id,
        distances: [(id, 10), (other, 21)].into(),
    };
    vec![cell(0, 1), cell(1, 0)]
}

fn volume(mode: Mode) -> VolumeFacts {
    VolumeFacts {
        mode: match mode {
            Mode::Filesystem => VolumeMode::Filesystem,
            Mode::Block => VolumeMode::Block,
        },
        direct_io: DirectIo::Supported,
        blocks: BlockSizes {
            logical: 512,
            physical: 4096,
            discard: 65536,
        },
        provisioning: Provisioning::Thin,
        allocation: Allocation::Sparse,
    }
}

/// A registered binding whose sidecar adds the interface to the domain.
const BY_SIDECAR: &str = "by-sidecar";

/// Each interface of the VMI has a tap and an address of its own, unless a sidecar makes it.
fn interfaces(vmi: &VirtualMachineInstance) -> Vec<InterfaceFacts> {
    let all = vmi.spec.domain.devices.interfaces.iter().enumerate();
    let plumbed = all.filter(|(_, interface)| {
        let binding = interface.binding.as_ref();
        binding.is_none_or(|binding| binding.name != BY_SIDECAR)
    });
    plumbed
        .map(|(index, interface)| InterfaceFacts {
            name: interface.name.clone(),
            tap: json!(interface)
                .get("passtBinding")
                .is_none_or(Value::is_null)
                .then(|| format!("tap{index}")),
            mac: format!("12:81:b8:38:4f:5{index}"),
            mtu: 1500,
        })
        .collect()
}

/// Each SR-IOV interface of the VMI has a device.
fn virtual_functions(vmi: &VirtualMachineInstance) -> BTreeMap<String, PciAddress> {
    let interfaces = vmi.spec.domain.devices.interfaces.iter().enumerate();
    let functions = interfaces.filter(|(_, interface)| interface.sriov.is_some());
    let devices = functions.map(|(index, interface)| {
        let address = format!("0000:65:02.{index}");
        let address = PciAddress::parse(&address).expect("an address");
        (interface.name.clone(), address)
    });
    devices.collect()
}

/// The devices that the pod was allocated.
fn allocated(given: &Given) -> AllocatedDevices {
    let variables = given.variables.iter();
    let all = AllocatedDevices::of(variables.map(|(name, value)| (&**name, &**value))).unwrap();
    given.claimed.iter().fold(all, |all, (name, address)| {
        let (claim, request) = name.split_once('/').unwrap();
        let pci = PciAddress::parse(address).map(DeviceAddress::Pci);
        let mediated = || MediatedUuid::parse(address).map(DeviceAddress::Mediated);
        all.with_claimed(claim, request, pci.or_else(mediated).unwrap())
    })
}

fn facts(vmi: &VirtualMachineInstance, given: &Given) -> Facts {
    let volumes = given.volumes.iter();
    Facts {
        acceleration: if given.emulation {
            Acceleration::Emulation
        } else {
            Acceleration::Kvm
        },
        direct_io: if given.cached_files {
            DirectIo::Unsupported
        } else {
            DirectIo::Supported
        },
        hotplugged: [].into(),
        volumes: volumes
            .map(|(name, mode)| (name.clone(), volume(*mode)))
            .collect(),
        interfaces: interfaces(vmi),
        allocated: allocated(given),
        virtual_functions: virtual_functions(vmi),
        device_cells: [].into(),
        smbios: SmbiosFacts::defaults(),
        balloon_stats_seconds: 10,
        free_page_reporting: true,
        efi: EfiFirmware::debian(),
        block_size: 4096,
        cpus: cpus(),
        cells: cells(),
    }
}

fn rendered(row: &Row) -> Result<String, String> {
    domain(&object(row), &row.facts)
}

fn domain(object: &Value, given: &Given) -> Result<String, String> {
    let vmi = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    let guest = &Supported::of(&vmi).map_err(|error| error.to_string())?;
    let facts = &facts(&vmi, given);
    render(&Input { guest, facts }).map_err(|error| error.to_string())
}

#[test]
fn every_row_renders_its_golden_domain() {
    let rows = rows();
    let mut golden = insta::Settings::new();
    golden.set_snapshot_path("domains");
    golden.set_prepend_module_to_snapshot(false);
    golden.set_omit_expression(true);
    for row in &rows {
        match (rendered(row), &row.error) {
            (Ok(domain), None) => {
                golden.set_description(row.shows.clone());
                golden.bind(|| insta::assert_snapshot!(row.name.as_str(), domain));
            }
            (Err(error), Some(wanted)) => assert_eq!(&error, wanted, "{}", row.name),
            (Ok(_), Some(wanted)) => panic!("{} has a domain, and should fail: {wanted}", row.name),
            (Err(error), None) => panic!("{} has no domain: {error}", row.name),
        }
    }
    let wanted: BTreeSet<String> = rows
        .iter()
        .filter(|row| row.error.is_none())
        .map(|row| format!("{}.snap", row.name))
        .collect();
    let files = fs::read_dir(directory("domains")).unwrap();
    let there: BTreeSet<String> = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(there, wanted, "a golden file for each row and for no other");
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names.len(), rows.len(), "the names of rows are unique");
}
