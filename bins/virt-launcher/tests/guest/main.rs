//! The pod of a guest, with real libvirtd and QEMU: the test takes the handler's part, and kills
//! processes.

#![cfg(test)]

#[path = "../../../../crates/libvirt/tests/bundle/mod.rs"]
mod bundle;
mod handler;

mod backups;
mod broken_post_copy;
mod disks;
mod dumps;
mod failpoints;
mod firmware;
mod flows;
mod increments;
mod interfaces;
mod lifecycle;
mod metrics;
mod migration;
mod moved_disks;
mod offers;
mod own_cpus;
mod paused_move;
mod post_copy;
mod probe;
mod resize;
mod saved;
mod tpm;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bundle::{Bundle, Setup};
use launcher_channel::{Backing, GuestPlan, Prepare};

const UID: &str = "0b7cb5a7-ac01-4f3e-8d2b-e5b3a1d9a001";
const PROGRAM: &str = env!("CARGO_BIN_EXE_virt-launcher");
const QEMU: &str = "qemu-system-x86";

/// A boot sector that prints `G` on the serial line, then waits for the power button and powers the
/// VM off.
const ACPI_GUEST: &[u8] = &[
    0xfb, 0xba, 0xf8, 0x03, 0xb0, b'G', 0xee, // sti; out 0x3f8, 'G'
    0xba, 0x02, 0x06, 0xb8, 0x00, 0x01, 0xef, // enable the button: out 0x602, 0x100
    0xf4, 0xba, 0x00, 0x06, 0xed, 0xf6, 0xc4, 0x01, 0x74, 0xf6, // hlt until it is pressed
    0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, // off: out 0x604, 0x2000
    0xf4, 0xeb, 0xfd,
];

fn xml(disk: &str) -> String {
    format!(
        "<domain type='qemu'><name>ns_guest</name><uuid>69a61d3f-50cc-4611-b6e2-e53205a02bad</uuid>
        <memory unit='MiB'>32</memory><vcpu>1</vcpu>
        <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
        <on_poweroff>destroy</on_poweroff><on_crash>destroy</on_crash>
        <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
          <controller type='usb' model='none'/><memballoon model='none'/>{disk}
          <serial type='unix'><source mode='bind' path='/var/run/private/serial0'/>
            <log file='/var/run/private/serial.log' append='on'/></serial>
        </devices></domain>"
    )
}

fn plan() -> GuestPlan {
    GuestPlan {
        vmi_uid: UID.to_owned(),
        domain_name: "ns_guest".to_owned(),
        domain_uuid: "69a61d3f-50cc-4611-b6e2-e53205a02bad".to_owned(),
        domain_xml: xml(""),
        prepare: Vec::new(),
        dhcp: Vec::new(),
        ipv6: Vec::new(),
        start_paused: false,
        grace_seconds: 1,
        console_to_log: false,
        agent_probes_paused: false,
        credentials: Vec::new(),
        filesystems: Vec::new(),
        passt: Vec::new(),
        refreshed_links: Vec::new(),
        claim_disks: Vec::new(),
        separate_cpus: Vec::new(),
        metrics: None,
        hooks: None,
        restore: None,
    }
}

/// A guest that boots from a container disk and handles the power button.
fn acpi_plan(pod: &Bundle) -> GuestPlan {
    disk_plan(pod, ACPI_GUEST)
}

/// A guest whose container disk has this boot sector.
fn disk_plan(pod: &Bundle, boot_sector: &[u8]) -> GuestPlan {
    let image = pod.run_dir().join("kubevirt-image-volume/disk_0/disk");
    std::fs::create_dir_all(&image).unwrap();
    let mut disk = boot_sector.to_vec();
    disk.resize(510, 0);
    disk.extend_from_slice(&[0x55, 0xaa]);
    // Firmware does not boot from a disk with a single sector.
    disk.resize(1 << 20, 0);
    std::fs::write(image.join("boot.img"), disk).unwrap();
    let path = "/var/run/private/disks/root/disk.qcow2".to_owned();
    let root = "/var/run/kubevirt-image-volume/disk_0".to_owned();
    let disk = format!(
        "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
         <source file='{path}'/><target dev='vda' bus='virtio'/></disk>"
    );
    let backing = Backing::ImageRoot { root, path: None };
    GuestPlan {
        domain_xml: xml(&disk),
        prepare: vec![Prepare::Overlay { path, backing }],
        ..plan()
    }
}

/// The same domain with further devices.
fn with_devices(mut plan: GuestPlan, devices: &str) -> GuestPlan {
    let end = "<serial type='unix'>";
    plan.domain_xml = plan.domain_xml.replacen(end, &format!("{devices}{end}"), 1);
    plan
}

fn pod() -> Bundle {
    pod_with("VIRT_LAUNCHER_LOG=debug")
}

fn pod_with(environment: &str) -> Bundle {
    pod_sharing(environment, None)
}

/// The same with a directory that other pods have, too.
fn pod_sharing(environment: &str, shared: Option<(&Path, &str)>) -> Bundle {
    let program = Path::new(PROGRAM);
    let programs = [
        ("virt-launcher", program),
        ("virt-launcher-monitor", program),
    ];
    let setup = Setup {
        programs: &programs,
        environment,
        kvm: false,
        shared,
    };
    Bundle::start(
        &setup,
        &[
            "/run/bin/virt-launcher-monitor",
            "--name=guest",
            "--uid",
            UID,
        ],
    )
}

/// The only element.
fn single(pids: &[i32]) -> i32 {
    assert_eq!(pids.len(), 1, "{pids:?}");
    pids[0]
}

/// Waits for the end of the pod and returns its exit code.
fn exit_code(pod: &mut Bundle) -> i32 {
    let deadline = std::time::Instant::now() + Duration::from_mins(3);
    loop {
        if let Some(code) = pod.exit_code() {
            return code;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "the pod did not end:\n{}",
            pod.log()
        );
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Waits for the guest's output.
fn wait_for_boot(pod: &Bundle) {
    let log: PathBuf = pod.run_dir().join("private/serial.log");
    pod.wait("output", || {
        std::fs::read(&log).ok()?.contains(&b'G').then_some(())
    });
}
