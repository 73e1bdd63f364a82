//! Metrics of the node, as a guest reads them from its disk and asks for them on its port.

use std::fs;

use launcher_channel::{DomainState, DownwardMetrics, GuestPlan, Request};

use crate::bundle::{self, Bundle};
use crate::handler::Handler;
use crate::{disk_plan, pod, single};

const DISK: &str = "/var/run/private/metrics/vhostmd0";
const PORT: &str = "/var/run/private/metrics-port/port.sock";

/// A boot sector that writes the first 1024 bytes of its second disk to the first serial line. Then it sends
/// the request to the second line, again whenever there is no answer for a while, and copies what comes.
const READER: &[u8] = &[
    0x31, 0xc0, 0x8e, 0xd8, // ds = 0
    0xbe, 0x60, 0x7c, 0xb4, 0x42, 0xba, 0x81, 0x00, 0xcd, 0x13, // read what PACKET says
    0xbe, 0x00, 0x7e, 0xb9, 0x00, 0x04, 0xba, 0xf8, 0x03, // 1024 bytes to 0x3f8:
    0xac, 0xee, 0xe2, 0xfc, // lodsb; out; loop
    // 0x1b: the request to 0x2f8
    0xbe, 0x4c, 0x7c, 0xb9, 0x12, 0x00, 0xba, 0xf8, 0x02, 0xac, 0xee, 0xe2, 0xfc, 0x31, 0xc9,
    // 0x2a: until there is a byte; else the request again
    0xba, 0xfd, 0x02, 0xec, 0xa8, 0x01, 0x75, 0x04, 0xe2, 0xf6, 0xeb, 0xe5,
    // 0x36: copy it, and go on at 0x2a
    0xba, 0xf8, 0x02, 0xec, 0xba, 0xf8, 0x03, 0xee, 0xeb, 0xea,
];
const REQUEST: &[u8] = b"GET /metrics/XML\n\n";
/// The place of the request in the boot sector.
const REQUEST_AT: usize = 0x4c;
/// Two sectors from the first on, to 0x7e00.
const PACKET: &[u8] = &[16, 0, 2, 0, 0x00, 0x7e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const PACKET_AT: usize = 0x60;

fn boot_sector() -> Vec<u8> {
    let mut sector = READER.to_vec();
    for (at, bytes) in [(REQUEST_AT, REQUEST), (PACKET_AT, PACKET)] {
        assert!(sector.len() <= at, "{}", sector.len());
        sector.resize(at, 0);
        sector.extend_from_slice(bytes);
    }
    sector
}

fn metrics_plan(pod: &Bundle) -> GuestPlan {
    let mut plan = disk_plan(pod, &boot_sector());
    // The port is the guest's second serial line, which needs no driver.
    let devices = format!(
        "<disk type='file' device='disk'><driver name='qemu' type='raw' cache='writethrough'/>
           <source file='{DISK}'/><target dev='vdb' bus='virtio'/><readonly/>
           <boot order='2'/></disk>
         <channel type='unix'><source mode='bind' path='/var/run/private/metrics-port/virtio.sock'/>
           <target type='virtio' name='org.github.vhostmd.1'/></channel>"
    );
    let second = format!(
        "<serial type='unix'><source mode='bind' path='{PORT}'/><target port='1'/></serial>"
    );
    let xml = plan
        .domain_xml
        .replacen("<serial", &format!("{devices}<serial"), 1);
    let xml = xml.replacen("</serial>", "<target port='0'/></serial>", 1);
    // The firmware knows only disks that it may boot from.
    let xml = xml.replacen("</disk>", "<boot order='1'/></disk>", 1);
    plan.domain_xml = xml.replacen("</devices>", &format!("{second}</devices>"), 1);
    plan.metrics = Some(DownwardMetrics {
        node: "node01".to_owned(),
        virtual_cpus: 1,
        memory_bytes: 32 << 20,
        disk: Some(DISK.to_owned()),
        port: Some(PORT.to_owned()),
    });
    plan
}

#[tokio::test]
async fn guest_reads_metrics_from_its_disk_and_its_port() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    let plan = metrics_plan(&pod);
    let state = handler.done(Request::Sync(Box::new(plan))).await;
    assert_eq!(state.domain, Some(DomainState::Running), "{}", pod.log());
    let log = pod.run_dir().join("private/serial.log");
    let output = pod.wait("an answer on the port", || {
        let output = String::from_utf8_lossy(&fs::read(&log).ok()?).into_owned();
        output.contains("</metrics>\n\n").then_some(output)
    });
    // The disk's page is cut off.
    let (at, _) = output.match_indices("<metrics>").nth(1).unwrap();
    let (disk, port) = output.split_at(at);
    assert!(disk.contains("mvbd\0\0\0\0"), "{disk:?}");
    for part in [disk, port] {
        assert!(part.contains("<value>node01</value>"), "{part:?}");
    }
    assert!(
        port.contains("<name>ResourceMemoryLimit</name>\n    <value>32768</value>"),
        "{port}"
    );

    // The next launcher goes on with both.
    let time = |page: &str| {
        let (_, rest) = page.split_once("<name>Time</name>\n    <value>").unwrap();
        rest.split_once('<').unwrap().0.parse::<u64>().unwrap()
    };
    let launcher = single(&pod.pids("virt-launcher"));
    bundle::kill(launcher, "KILL");
    let _next = Handler::connect_past(&pod, Some(launcher));
    let before = time(port);
    let disk = pod.run_dir().join("private/metrics/vhostmd0");
    pod.wait("newer metrics", || {
        let page = fs::read(&disk).ok()?;
        let page = String::from_utf8_lossy(&page).into_owned();
        (page.starts_with("mvbd\0\0\0\0") && time(&page) > before).then_some(())
    });
}
