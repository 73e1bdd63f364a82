//! The plugins against a tree of files in place of sysfs and `/dev`, and a kubelet in this process.

use std::{fs, os::unix::fs::symlink, path::Path};

use cluster_config::ClusterConfig;
use device_plugin::{
    AllocateRequest, Code, ContainerAllocateRequest, KUBELET_SOCKET, Kubelet, PluginClient,
    RegisterRequest, Registrations, Status, Streaming, bind,
};
use kubevirt_api::cluster_config::KubeVirtConfiguration;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{super::sysfs, selection::Selected, *};

const TIMEOUT: Duration = Duration::from_mins(1);
const UUID: &str = "aa618089-8b16-4d01-a136-25a0f3c73123";

/// A host made of files.
struct Host {
    root: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let host = Self {
            root: tempfile::tempdir().unwrap(),
        };
        host.write("dev/vfio/vfio", "");
        host
    }

    fn files(&self) -> DeviceFiles {
        DeviceFiles {
            sys: self.root.path().join("sys"),
            dev: self.root.path().join("dev"),
            run: self.root.path().join("run"),
        }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// A device `vendor:product` with a class, in an IOMMU group with a node.
    fn pci(&self, address: &str, kind: &str, class: &str, driver: &str, group: u32) {
        let at = |file: &str| format!("sys/bus/pci/devices/{address}/{file}");
        let (vendor, product) = kind.split_once(':').unwrap();
        self.write(&at("vendor"), &format!("0x{vendor}\n"));
        self.write(&at("device"), &format!("0x{product}\n"));
        self.write(&at("class"), &format!("{class}\n"));
        self.write(&at("numa_node"), if group == 12 { "1\n" } else { "-1\n" });
        if !driver.is_empty() {
            self.link(&at("driver"), &format!("../../../bus/pci/drivers/{driver}"));
        }
        self.link(
            &at("iommu_group"),
            &format!("../../../kernel/iommu_groups/{group}"),
        );
        self.write(&format!("dev/vfio/{group}"), "");
    }

    fn mediated(&self, uuid: &str, kind: Option<&str>, group: u32) {
        let device = format!("sys/devices/card/{uuid}");
        self.write("sys/devices/card/numa_node", "0\n");
        self.link(
            &format!("{device}/iommu_group"),
            &format!("/groups/{group}"),
        );
        self.write(
            "sys/devices/card/mdev_supported_types/nvidia-222/unused",
            "",
        );
        self.link(
            &format!("{device}/mdev_type"),
            "../mdev_supported_types/nvidia-222",
        );
        if let Some(kind) = kind {
            let name = "sys/devices/card/mdev_supported_types/nvidia-222/name";
            self.write(name, &format!("{kind}\n"));
        }
        self.link(
            &format!("sys/bus/mdev/devices/{uuid}"),
            &format!("../../../devices/card/{uuid}"),
        );
        self.write(&format!("dev/vfio/{group}"), "");
    }

    fn usb(&self, ports: &str, kind: &str, address: &str) {
        let at = |file: &str| format!("sys/bus/usb/devices/{ports}/{file}");
        let (vendor, product) = kind.split_once(':').unwrap();
        let (bus, device) = address.split_once(':').unwrap();
        for (file, value) in [
            ("idVendor", vendor),
            ("idProduct", product),
            ("busnum", bus),
            ("devnum", device),
        ] {
            self.write(&at(file), &format!("{value}\n"));
        }
        self.write(&format!("dev/bus/usb/{bus:0>3}/{device:0>3}"), "");
    }

    fn search(&self, permitted: Value) -> Found {
        self.search_again(permitted, &KnownUnits::default())
    }

    fn search_again(&self, permitted: Value, known: &KnownUnits) -> Found {
        let selected = select(permitted);
        assert_eq!(selected.problems, [] as [&str; 0]);
        discovery::search_now(&self.files(), &selected.permitted, known).unwrap()
    }
}

fn configuration(permitted: Value) -> KubeVirtConfiguration {
    let mut configuration = json!({});
    configuration["permittedHostDevices"] = permitted;
    serde_json::from_value(configuration).unwrap()
}

fn select(permitted: Value) -> Selected {
    selection::of(&configuration(permitted))
}

/// Resource, ID and addresses of each device.
fn described(found: &Found) -> Vec<String> {
    let all = found.units.iter().flat_map(|(resource, units)| {
        units.iter().map(move |unit| {
            let addresses: Vec<_> = unit.addresses.iter().map(ToString::to_string).collect();
            format!("{resource} {} = {}", unit.id, addresses.join(","))
        })
    });
    all.collect()
}

fn pci(kind: &str, resource: &str) -> Value {
    json!({"pciVendorSelector": kind, "resourceName": resource})
}

#[test]
fn only_pci_devices_that_are_permitted_and_taken_by_vfio_are_offered() {
    let host = Host::new();
    host.pci("0000:81:00.0", "10de:1eb8", "0x030200", "vfio-pci", 12);
    host.pci("0000:82:00.0", "10de:1eb8", "0x030200", "vfio-pci", 13);
    host.pci("0000:83:00.0", "10de:1eb8", "0x030200", "nvidia", 14);
    host.pci("0000:84:00.0", "10de:1eb8", "0x030200", "", 15);
    host.pci("0000:85:00.0", "8086:1572", "0x020000", "vfio-pci", 16);
    host.write("sys/bus/pci/devices/nonsense/vendor", "0x10de");
    let found = host.search(json!({"pciHostDevices": [pci("10DE:1EB8", "example.com/card")]}));
    assert_eq!(
        described(&found),
        [
            "example.com/card 0000:81:00.0 = 0000:81:00.0",
            "example.com/card 0000:82:00.0 = 0000:82:00.0",
        ]
    );
    let units = &found.units["example.com/card"];
    assert_eq!(units[0].nodes, ["vfio/vfio", "vfio/12"]);
    assert_eq!((units[0].numa, units[1].numa), (Some(1), None));
    fs::remove_file(host.root.path().join("dev/vfio/13")).unwrap();
    let found = host.search(json!({"pciHostDevices": [pci("10de:1eb8", "example.com/card")]}));
    assert_eq!(found.units["example.com/card"].len(), 1);
}

#[test]
fn other_drivers_of_vfio_are_known_by_name_or_by_what_they_made() {
    for (driver, files, is_offered) in [
        ("vfio-pci", vec![], true),
        ("nvgrace_gpu_vfio_pci", vec![], true),
        ("mlx5_vfio_pci", vec![], true),
        ("hisi-acc-vfio-pci", vec![], true),
        ("vendors-own", vec![], false),
        ("vendors-own", vec![("vfio-dev/vfio0/dev", "511:0\n")], true),
        ("notvfio_pci", vec![], false),
        // A virtual function gets a part of the card by NVIDIA's driver.
        ("nvidia", vec![("vfio-dev/vfio0/dev", "511:0\n")], false),
        ("nvidia", vec![("nvidia/current_vgpu_type", "0\n")], false),
        ("nvidia", vec![("nvidia/current_vgpu_type", "1032\n")], true),
        (
            "nvidia",
            vec![
                ("nvidia/current_vgpu_type", "1032\n"),
                ("sriov_totalvfs", "16\n"),
            ],
            false,
        ),
        ("", vec![("vfio-dev/vfio0/dev", "511:0\n")], false),
    ] {
        let host = Host::new();
        host.pci("0000:81:00.1", "10de:1eb8", "0x030200", driver, 12);
        for (file, text) in &files {
            host.write(&format!("sys/bus/pci/devices/0000:81:00.1/{file}"), text);
        }
        let found = host.search(json!({"pciHostDevices": [pci("10de:1eb8", "example.com/card")]}));
        assert_eq!(!found.units.is_empty(), is_offered, "{driver} {files:?}");
    }
}

/// A pod gets the whole group: what a tenant may not have must not be in it.
#[test]
fn group_with_a_device_that_is_not_permitted_is_not_offered() {
    let host = Host::new();
    let card = |function: &str, kind: &str| {
        host.pci(
            &format!("0000:81:00.{function}"),
            kind,
            "0x030000",
            "vfio-pci",
            12,
        );
    };
    card("0", "10de:1eb8");
    card("1", "10de:10f8");
    host.pci("0000:80:01.0", "8086:2030", "0x060400", "pcieport", 12);
    let permitted = || json!({"pciHostDevices": [pci("10de:1eb8", "example.com/card")]});
    let found = host.search(permitted());
    assert_eq!(
        described(&found),
        ["example.com/card 0000:81:00.0 = 0000:81:00.0"]
    );
    // Devices of the class of bridges can be handed over, too.
    host.pci("0000:80:02.0", "8086:2031", "0x068000", "vfio-pci", 12);
    let found = host.search(permitted());
    assert_eq!(
        found.problems,
        ["PCI device 0000:81:00.0 is in IOMMU group 12 with 0000:80:02.0, which is not permitted"]
    );
    let device = host.root.path().join("sys/bus/pci/devices/0000:80:02.0");
    fs::remove_dir_all(device).unwrap();

    host.pci("0000:82:00.0", "144d:a808", "0x010802", "vfio-pci", 12);
    let found = host.search(permitted());
    assert_eq!(described(&found), [] as [&str; 0]);
    assert_eq!(
        found.problems,
        ["PCI device 0000:81:00.0 is in IOMMU group 12 with 0000:82:00.0, which is not permitted"]
    );
    // Permitted for another resource, it would be in both.
    let both = [
        pci("144d:a808", "example.com/nvme"),
        pci("10de:1eb8", "example.com/card"),
    ];
    let found = host.search(json!({"pciHostDevices": both}));
    assert_eq!(described(&found), [] as [&str; 0]);
    assert_eq!(
        found.problems,
        [
            "PCI device 0000:81:00.0 is in IOMMU group 12 with 0000:82:00.0, which is permitted as \
          example.com/nvme: permit both as one resource"
        ]
    );
}

/// The device of the group that another one may keep from the guest: its address, kind, class and driver, whether it is
/// a physical function, and why it does.
#[test]
fn group_is_offered_only_with_devices_that_may_go_to_the_guest() {
    const NETWORK: &str = "0x020000";
    let other = |address, class, driver| (address, "8086:1572", class, driver, false);
    for ((address, kind, class, driver, is_physical), obstacle) in [
        (other("0000:81:00.1", NETWORK, "vfio-pci"), None),
        (other("0000:81:00.1", NETWORK, ""), None),
        (
            other("0000:81:00.1", NETWORK, "ixgbe"),
            Some("which has another driver: bind it to vfio-pci"),
        ),
        (other("0000:81:00.1", "0x060400", "pcieport"), None),
        (
            ("0000:81:00.1", "10de:1eb8", NETWORK, "nvidia", false),
            Some("which has another driver: bind it to vfio-pci"),
        ),
        (
            ("0000:81:00.1", "8086:1572", NETWORK, "vfio-pci", true),
            Some("which is not permitted"),
        ),
        (
            ("0000:81:00.1", "10de:1eb8", NETWORK, "vfio-pci", true),
            None,
        ),
        (
            other("0000:82:00.0", NETWORK, "vfio-pci"),
            Some("which is not permitted"),
        ),
        (
            other("10000:e1:00.0", NETWORK, "nvme"),
            Some("which cannot be read"),
        ),
        (
            other("0000:81:00.1", "unreadable", "vfio-pci"),
            Some("which cannot be read"),
        ),
    ] {
        let host = Host::new();
        host.pci("0000:81:00.2", "10de:1eb8", NETWORK, "vfio-pci", 12);
        host.pci(address, kind, class, driver, 12);
        if is_physical {
            let file = format!("sys/bus/pci/devices/{address}/sriov_totalvfs");
            host.write(&file, "8\n");
        }
        let found = host.search(json!({"pciHostDevices": [pci("10de:1eb8", "a.b/card")]}));
        let problems: Vec<_> = obstacle
            .iter()
            .map(|why| {
                format!("PCI device 0000:81:00.2 is in IOMMU group 12 with {address}, {why}")
            })
            .collect();
        assert_eq!(found.problems, problems, "{address} {class} {driver}");
        let units = described(&found).len();
        assert_eq!(units, usize::from(obstacle.is_none()), "{address} {driver}");
    }
}

/// The kubelet records it for a pod, and the configuration may change meanwhile.
#[test]
fn id_of_a_group_does_not_depend_on_the_configuration() {
    let host = Host::new();
    host.pci("0000:80:01.0", "8086:2030", "0x060400", "pcieport", 12);
    host.pci("0000:81:00.0", "10de:10f8", "0x040300", "vfio-pci", 12);
    host.pci("0000:81:00.1", "10de:1eb8", "0x030000", "vfio-pci", 12);
    for (kinds, address) in [
        (&["10de:1eb8"][..], "0000:81:00.1"),
        (&["10de:10f8"], "0000:81:00.0"),
        (&["10de:1eb8", "10de:10f8"], "0000:81:00.0"),
    ] {
        let all: Vec<_> = kinds.iter().map(|kind| pci(kind, "a.b/card")).collect();
        let found = host.search(json!({"pciHostDevices": all}));
        let expected = format!("a.b/card 0000:81:00.0 = {address}");
        assert_eq!(described(&found), [expected], "{kinds:?}");
    }
}

#[test]
fn directory_with_too_many_entries_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..4096 {
        fs::write(directory.path().join(number.to_string()), "").unwrap();
    }
    assert_eq!(sysfs::names(directory.path()).unwrap().len(), 4096);
    fs::write(directory.path().join("one-more"), "").unwrap();
    let error = sysfs::names(directory.path()).unwrap_err();
    assert!(error.to_string().contains("more than 4096"), "{error}");
}

#[test]
fn mediated_devices_are_selected_by_the_name_of_their_type() {
    let host = Host::new();
    host.mediated(UUID, Some("GRID T4-2Q"), 30);
    host.link("sys/bus/mdev/devices/not-a-uuid", "../../../devices/card");
    let select = |name: &str| {
        let one = json!({"mdevNameSelector": name, "resourceName": "example.com/slice"});
        json!({"mediatedDevices": [one]})
    };
    for name in ["GRID T4-2Q", "GRID_T4-2Q"] {
        let found = host.search(select(name));
        assert_eq!(
            described(&found),
            [format!("example.com/slice {UUID} = {UUID}")]
        );
        let unit = &found.units["example.com/slice"][0];
        assert_eq!((unit.numa, &*unit.nodes[1]), (Some(0), "vfio/30"));
    }
    assert_eq!(
        described(&host.search(select("GRID T4-1Q"))),
        [] as [&str; 0]
    );
    let unnamed = Host::new();
    unnamed.mediated(UUID, None, 30);
    assert_eq!(described(&unnamed.search(select("nvidia-222"))).len(), 1);
}

fn usb(resource: &str, kinds: &[&str]) -> Value {
    let selectors: Vec<_> = kinds
        .iter()
        .map(|kind| kind.split_once(':').unwrap())
        .map(|(vendor, product)| json!({"vendor": vendor, "product": product}))
        .collect();
    json!({"resourceName": resource, "selectors": selectors})
}

#[test]
fn usb_unit_has_one_device_of_each_selector() {
    let host = Host::new();
    host.usb("1-1", "0951:1666", "1:4");
    host.usb("1-2", "0781:5581", "1:5");
    host.usb("2-1.3", "46f4:0001", "2:17");
    host.usb("3-1", "1d6b:0002", "3:1");
    host.write("sys/bus/usb/devices/1-1:1.0/bInterfaceClass", "08\n");
    let pair = usb("example.com/pair", &["46F4:0001", "0951:1666"]);
    let single = usb("example.com/single", &["0781:5581"]);
    let found = host.search(json!({"usb": [pair, single]}));
    assert_eq!(
        described(&found),
        [
            "example.com/pair 2-1.3+1-1 = 2:17,1:4",
            "example.com/single 1-2 = 1:5",
        ]
    );
    let nodes = &found.units["example.com/pair"][0].nodes;
    assert_eq!(nodes, &["bus/usb/002/017", "bus/usb/001/004"]);
}

/// The guest's devices are the resource's, in equal parts.
#[test]
fn usb_units_of_a_resource_have_the_same_size() {
    let one = usb("example.com/stick", &["0781:5581"]);
    let two = usb("example.com/stick", &["46f4:0001", "0951:1666"]);
    let selected = select(json!({"usb": [one, two]}));
    let [problem] = selected.problems.as_slice() else {
        panic!("{:?}", selected.problems);
    };
    assert!(problem.contains("usb[1].resourceName"), "{problem}");
    assert!(problem.contains("another size"), "{problem}");
}

/// A guest may have a device already when another one is plugged in.
#[test]
fn usb_device_is_in_one_unit_whatever_is_plugged_in_later() {
    let host = Host::new();
    let known = KnownUnits::default();
    let pair = || json!({"usb": [usb("example.com/pair", &["46f4:0001", "0951:1666"])]});
    host.usb("2-1", "46f4:0001", "2:17");
    host.usb("1-3", "0951:1666", "1:6");
    let first = ["example.com/pair 2-1+1-3 = 2:17,1:6"];
    assert_eq!(described(&host.search_again(pair(), &known)), first);
    host.usb("1-1", "0951:1666", "1:4");
    assert_eq!(described(&host.search_again(pair(), &known)), first);

    // Without its second device the unit is not offered, and its first is not paired with another.
    let stick = host.root.path().join("sys/bus/usb/devices/1-3");
    fs::remove_dir_all(stick).unwrap();
    let found = host.search_again(pair(), &known);
    assert_eq!(described(&found), [] as [&str; 0]);
    assert_eq!(
        found.problems,
        [
            "USB unit 2-1+1-3 of example.com/pair lacks a device: plug it into the same port, or restart \
          virt-handler when no guest has the unit"
        ]
    );
    host.usb("1-3", "0951:1666", "1:9");
    host.usb("2-2", "46f4:0001", "2:18");
    assert_eq!(
        described(&host.search_again(pair(), &known)),
        [
            "example.com/pair 2-1+1-3 = 2:17,1:9",
            "example.com/pair 2-2+1-1 = 2:18,1:4",
        ]
    );
}

/// With the same stick in both, a search would move it from one resource to the other.
#[test]
fn usb_device_of_two_entries_belongs_to_the_first() {
    let pair = usb("example.com/pair", &["46f4:0001", "0951:1666"]);
    let single = usb("example.com/single", &["0951:1666"]);
    let selected = select(json!({"usb": [single, pair]}));
    assert_eq!(
        selected.problems,
        [
            "usb[1].selectors: a device of this kind is in another resource already; name each kind once"
        ]
    );
    let host = Host::new();
    let known = KnownUnits::default();
    host.usb("1-1", "0951:1666", "1:4");
    for _before_and_after_another_is_plugged_in in 0..2 {
        let found = discovery::search_now(&host.files(), &selected.permitted, &known).unwrap();
        assert_eq!(described(&found), ["example.com/single 1-1 = 1:4"]);
        host.usb("2-1", "46f4:0001", "2:17");
    }
}

#[test]
fn configuration_that_cannot_be_offered_is_named() {
    let mediated = |name: &str| json!({"mdevNameSelector": name, "resourceName": "a.b/x"});
    let external = json!({"pciVendorSelector": "10de:1eb8", "resourceName": "a.b/x", "externalResourceProvider": true});
    let usb = |count: usize| {
        let selectors = vec![json!({"vendor": "0951", "product": "1666"}); count];
        json!({"usb": [{"resourceName": "a.b/x", "selectors": selectors}]})
    };
    let pcis = |all: Vec<Value>| json!({"pciHostDevices": all});
    for (permitted, resources, problem) in [
        (json!(null), 0, None),
        (pcis(vec![external]), 0, None),
        (
            pcis(vec![pci("10de:1eb8", "a.b/x"), pci("10de:1eb9", "a.b/x")]),
            1,
            None,
        ),
        (
            pcis(vec![pci("10de", "a.b/x")]),
            0,
            Some("pciVendorSelector"),
        ),
        (
            pcis(vec![pci("10de:1eb8:1", "a.b/x")]),
            0,
            Some("pciVendorSelector"),
        ),
        (
            pcis(vec![pci("10de:+eb8", "a.b/x")]),
            0,
            Some("pciVendorSelector"),
        ),
        (pcis(vec![pci("10de:1eb8", "x")]), 0, Some("resourceName")),
        (
            pcis(vec![pci("10de:1eb8", "a.b/x/../y")]),
            0,
            Some("resourceName"),
        ),
        (
            pcis(vec![pci("10de:1eb8", "devices.kubevirt.io/kvm")]),
            0,
            Some("resourceName"),
        ),
        (
            pcis(vec![pci("10de:1eb8", "node.kubernetes.io/x")]),
            0,
            Some("resourceName"),
        ),
        (
            pcis(vec![pci("10de:1eb8", "a.b/x"), pci("10de:1eb8", "A_B/x")]),
            1,
            Some("choose another name"),
        ),
        (
            json!({"pciHostDevices": [pci("10de:1eb8", "a.b/x")], "mediatedDevices": [mediated("t")]}),
            1,
            Some("choose another name"),
        ),
        (
            json!({"mediatedDevices": [mediated(" ")]}),
            0,
            Some("mdevNameSelector"),
        ),
        (usb(0), 0, Some("selectors")),
        (usb(17), 0, Some("selectors")),
        (usb(16), 1, None),
        (
            pcis(
                (0..57)
                    .map(|n| pci("10de:1eb8", &format!("a.b/x{n}")))
                    .collect(),
            ),
            56,
            Some("only 56"),
        ),
    ] {
        let selected = select(permitted.clone());
        assert_eq!(selected.permitted.len(), resources, "{permitted}");
        let problems = selected.problems.join("; ");
        assert_eq!(
            !problems.is_empty(),
            problem.is_some(),
            "{permitted}: {problems}"
        );
        assert!(
            problems.contains(problem.unwrap_or_default()),
            "{permitted}: {problems}"
        );
    }
}

#[derive(Clone)]
struct Registered(mpsc::Sender<RegisterRequest>);

impl Registrations for Registered {
    async fn register(&self, request: RegisterRequest) -> Result<(), Status> {
        self.0.send(request).await.unwrap();
        Ok(())
    }
}

async fn next_list(lists: &mut Streaming<device_plugin::ListAndWatchResponse>) -> Vec<String> {
    let list = lists.next().await.unwrap().unwrap();
    let devices = list.devices.iter();
    devices
        .map(|one| format!("{} {}", one.id, one.health))
        .collect()
}

async fn allocate(
    client: &PluginClient,
    ids: &[&str],
) -> Result<device_plugin::ContainerAllocateResponse, Status> {
    let device_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    let request = AllocateRequest {
        container_requests: vec![ContainerAllocateRequest { device_ids }],
    };
    let response = client.allocate(&request).await?;
    Ok(response.container_responses.into_iter().next().unwrap())
}

async fn client(dir: &Path, request: &RegisterRequest) -> PluginClient {
    PluginClient::connect(dir, &request.endpoint).await.unwrap()
}

#[tokio::test]
async fn kubelet_is_offered_devices_and_told_their_addresses() {
    let host = Host::new();
    host.pci("0000:81:00.0", "10de:1eb8", "0x030200", "vfio-pci", 12);
    host.pci("0000:82:00.0", "10de:1eb8", "0x030200", "vfio-pci", 13);
    let dir = tempfile::tempdir().unwrap();
    let permitted: Arc<[Permitted]> =
        select(json!({"pciHostDevices": [pci("10de:1eb8", "example.com/card")]}))
            .permitted
            .into();
    let (sender, mut registered) = mpsc::channel(4);
    let kubelet = Kubelet::new(bind(dir.path(), KUBELET_SOCKET).unwrap());
    let serving = kubelet.serve(Registered(sender), CancellationToken::new());
    let (files, known) = (host.files(), KnownUnits::default());
    let offering = offer(
        dir.path(),
        &files,
        &permitted,
        &known,
        CancellationToken::new(),
    );
    let checking = async {
        let request = registered.recv().await.unwrap();
        assert_eq!(request.resource_name, "example.com/card");
        let client = client(dir.path(), &request).await;
        let mut lists = client.list_and_watch().await.unwrap();
        assert_eq!(
            next_list(&mut lists).await,
            ["0000:81:00.0 Healthy", "0000:82:00.0 Healthy"]
        );
        let both = allocate(&client, &["0000:82:00.0", "0000:81:00.0"])
            .await
            .unwrap();
        let variable = &both.envs["PCI_RESOURCE_EXAMPLE_COM_CARD"];
        assert_eq!(variable, "0000:82:00.0,0000:81:00.0");
        let nodes: Vec<&str> = both.devices.iter().map(|node| &*node.host_path).collect();
        assert_eq!(nodes, ["/dev/vfio/12", "/dev/vfio/13", "/dev/vfio/vfio"]);

        // Another driver takes it: it is refused at once, and then unhealthy.
        let driver = host
            .root
            .path()
            .join("sys/bus/pci/devices/0000:81:00.0/driver");
        fs::remove_file(driver).unwrap();
        let refused = allocate(&client, &["0000:81:00.0"]).await.unwrap_err();
        assert_eq!(refused.code, Code::FailedPrecondition);
        host.write("dev/vfio/99", "");
        assert_eq!(
            next_list(&mut lists).await,
            ["0000:82:00.0 Healthy", "0000:81:00.0 Unhealthy"]
        );
    };
    tokio::select! {
        () = offering => panic!("the plugins ended"),
        () = serving => panic!("the kubelet ended"),
        checked = tokio::time::timeout(TIMEOUT, checking) => checked.unwrap(),
    }
}

/// The list of registrations is what a kubelet learns from a changed configuration.
#[tokio::test]
async fn resources_follow_the_configuration() {
    let host = Host::new();
    let dir = tempfile::tempdir().unwrap();
    let (sender, mut registered) = mpsc::channel(4);
    let kubelet = Kubelet::new(bind(dir.path(), KUBELET_SOCKET).unwrap());
    let serving = kubelet.serve(Registered(sender), CancellationToken::new());
    let config = |resource: Option<&str>| {
        let all: Vec<_> = resource
            .into_iter()
            .map(|name| pci("10de:1eb8", name))
            .collect();
        Arc::new(ClusterConfig {
            written: configuration(json!({"pciHostDevices": all})),
            ..ClusterConfig::default()
        })
    };
    let current = watch::Sender::new(config(Some("a.b/first")));
    let plugins = Plugins {
        dir: dir.path(),
        files: &host.files(),
        known: KnownUnits::default(),
    };
    let following = plugins.follow(current.subscribe(), CancellationToken::new());
    let checking = async {
        let first = registered.recv().await.unwrap();
        assert_eq!(first.resource_name, "a.b/first");
        let old = client(dir.path(), &first).await;
        let mut lists = old.list_and_watch().await.unwrap();
        current.send_replace(config(Some("a.b/second")));
        let second = registered.recv().await.unwrap();
        assert_eq!(second.resource_name, "a.b/second");
        // The kubelet sees that the plugin of the first resource has ended.
        while let Ok(Some(_list)) = lists.next().await {}
        current.send_replace(config(None));
        current.send_replace(config(Some("a.b/third")));
        assert_eq!(registered.recv().await.unwrap().resource_name, "a.b/third");
    };
    tokio::select! {
        () = following => panic!("the plugins ended"),
        () = serving => panic!("the kubelet ended"),
        checked = tokio::time::timeout(TIMEOUT, checking) => checked.unwrap(),
    }
}

#[tokio::test]
async fn helper_for_reservations_is_offered_if_they_are_permitted() {
    let host = Host::new();
    let dir = tempfile::tempdir().unwrap();
    let (sender, mut registered) = mpsc::channel(4);
    let kubelet = Kubelet::new(bind(dir.path(), KUBELET_SOCKET).unwrap());
    let serving = kubelet.serve(Registered(sender), CancellationToken::new());
    let config = |persistent_reservation| {
        Arc::new(ClusterConfig {
            persistent_reservation,
            ..ClusterConfig::default()
        })
    };
    let current = watch::Sender::new(config(Permission::Refused));
    let files = host.files();
    let plugins = Plugins {
        dir: dir.path(),
        files: &files,
        known: KnownUnits::default(),
    };
    let following = plugins.follow(current.subscribe(), CancellationToken::new());
    let checking = async {
        current.send_replace(config(Permission::Allowed));
        let request = registered.recv().await.unwrap();
        assert_eq!(request.resource_name, "devices.kubevirt.io/pr-helper");
        let client = client(dir.path(), &request).await;
        let mut lists = client.list_and_watch().await.unwrap();
        let first = next_list(&mut lists).await;
        assert!(first[0].ends_with("Unhealthy"), "{first:?}");
        let refused = allocate(&client, &["pr-helper0"]).await.unwrap_err();
        assert_eq!(refused.code, Code::FailedPrecondition);

        let socket = files.run.join("kubevirt/daemons/pr/pr-helper.sock");
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let _helper = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let mut list = next_list(&mut lists).await;
        while !list[0].ends_with(" Healthy") {
            list = next_list(&mut lists).await;
        }
        let allocated = allocate(&client, &["pr-helper0"]).await.unwrap();
        let mount = &allocated.mounts[0];
        assert_eq!(mount.host_path, "/var/run/kubevirt/daemons/pr");
        assert_eq!(mount.container_path, mount.host_path);
        assert!(mount.read_only);

        current.send_replace(config(Permission::Refused));
        while let Ok(Some(_list)) = lists.next().await {}
    };
    tokio::select! {
        () = following => panic!("the plugins ended"),
        () = serving => panic!("the kubelet ended"),
        checked = tokio::time::timeout(TIMEOUT, checking) => checked.unwrap(),
    }
}
