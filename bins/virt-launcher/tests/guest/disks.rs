//! Disks that a running guest gets and loses.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use launcher_channel::{
    DiskAccess, DomainState, GuestState, HOTPLUG_DISKS, HotDisk, HotDiskKind, Prepare, Reply,
    Request,
};

use crate::bundle::{self, Bundle};
use crate::failpoints::{armed_pod, call};
use crate::handler::Handler;
use crate::{acpi_plan, pod, wait_for_boot, with_devices};

const ROUNDS: usize = 10;
const DEVICES: &str = "<controller type='scsi' index='0' model='virtio-scsi'/>
    <disk type='block' device='cdrom'><driver name='qemu' type='raw' error_policy='stop'/>
      <target dev='sdb' bus='sata'/><readonly/><alias name='ua-cd'/></disk>";

/// Makes a place for the volume, as virt-handler mounts it.
pub(crate) fn bring(pod: &Bundle, volume: &str) {
    let directory = pod.run_dir().join("kubevirt/hotplug-disks").join(volume);
    fs::create_dir_all(&directory).unwrap();
    std::os::unix::fs::chown(&directory, Some(bundle::UID), None).unwrap();
}

fn image(volume: &str) -> String {
    format!("{HOTPLUG_DISKS}/{volume}/disk.img")
}

fn prepare(volume: &str) -> Prepare {
    Prepare::RawDisk {
        directory: format!("{HOTPLUG_DISKS}/{volume}"),
        name: "disk.img".to_owned(),
        access: DiskAccess::Create {
            bytes: 1 << 20,
            tolerated_percent: 0,
            reserve_bytes: 0,
        },
    }
}

fn disk(volume: &str) -> HotDisk {
    let source = image(volume);
    HotDisk {
        volume: volume.to_owned(),
        xml: format!(
            "<disk type='file' device='disk'><driver name='qemu' type='raw'/>
             <source file='{source}'/><target dev='sda' bus='scsi'/><serial>{volume}</serial>
             <alias name='ua-{volume}'/>
             <address type='drive' controller='0' bus='0' unit='0'/></disk>"
        ),
        source: Some(source),
        kind: HotDiskKind::Disk,
        prepare: Some(prepare(volume)),
    }
}

fn drive(is_full: bool) -> HotDisk {
    let source = is_full.then(|| image("cd"));
    let kind = if is_full { "file" } else { "block" };
    let element = source
        .as_ref()
        .map_or_else(String::new, |path| format!("<source file='{path}'/>"));
    HotDisk {
        volume: "cd".to_owned(),
        xml: format!(
            "<disk type='{kind}' device='cdrom'>
             <driver name='qemu' type='raw' error_policy='stop'/>{element}
             <target dev='sdb' bus='sata'/><readonly/><alias name='ua-cd'/></disk>"
        ),
        prepare: source.as_ref().map(|_| prepare("cd")),
        source,
        kind: HotDiskKind::Medium,
    }
}

fn attached(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(volume, target): &(&str, &str)| ((*volume).to_owned(), (*target).to_owned());
    all.iter().map(owned).collect()
}

/// Reads states until these disks are attached; returns the one that shows it.
async fn reports(
    handler: &mut Handler<'_>,
    mut state: GuestState,
    wanted: &[(&str, &str)],
) -> GuestState {
    let wanted = attached(wanted);
    while state.disks != wanted {
        assert_eq!(state.disk_failures, BTreeMap::new());
        handler.next_state().await;
        state = handler.state.clone().unwrap_or_default();
    }
    state
}

#[tokio::test]
async fn disk_comes_and_goes_and_survives_the_launcher() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    let plan = with_devices(acpi_plan(&pod), DEVICES);
    handler.done(Request::Sync(Box::new(plan))).await;
    wait_for_boot(&pod);
    bring(&pod, "extra");
    bring(&pod, "cd");
    for _ in 0..ROUNDS {
        // A repeated request changes nothing.
        for _ in 0..2 {
            let state = handler.done(Request::Disks(vec![disk("extra")])).await;
            assert_eq!(state.disks, attached(&[("extra", "sda")]), "{state:?}");
        }
        let state = handler.done(Request::Disks(Vec::new())).await;
        reports(&mut handler, state, &[]).await;
    }
    for _ in 0..2 {
        let full = vec![disk("extra"), drive(true)];
        let state = handler.done(Request::Disks(full)).await;
        let both = [("cd", "sdb"), ("extra", "sda")];
        reports(&mut handler, state, &both).await;
        let empty = vec![disk("extra"), drive(false)];
        let state = handler.done(Request::Disks(empty)).await;
        reports(&mut handler, state, &[("extra", "sda")]).await;
    }
    // The next launcher finds the disk.
    let launcher = crate::single(&pod.pids("virt-launcher"));
    bundle::kill(launcher, "KILL");
    let mut next = Handler::connect_past(&pod, Some(launcher));
    let state = next.done(Request::State).await;
    let state = reports(&mut next, state, &[("extra", "sda")]).await;
    assert_eq!(state.domain, Some(DomainState::Running));
}

#[tokio::test]
async fn impossible_disk_is_a_failure_and_does_not_hold_up_others() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    let plan = with_devices(acpi_plan(&pod), DEVICES);
    handler.done(Request::Sync(Box::new(plan))).await;
    wait_for_boot(&pod);
    bring(&pod, "extra");
    let missing = HotDisk {
        prepare: None,
        ..disk("missing")
    };
    let state = handler
        .done(Request::Disks(vec![missing, disk("extra")]))
        .await;
    assert_eq!(state.disks, attached(&[("extra", "sda")]), "{state:?}");
    let failed: Vec<_> = state.disk_failures.keys().collect();
    assert_eq!(failed, ["missing"]);
}

#[tokio::test]
async fn disks_are_right_after_a_kill_at_every_failpoint() {
    let (pod, file) = armed_pod("virt-launcher/disks/", 3);
    let plan = with_devices(acpi_plan(&pod), DEVICES);
    call(&pod, &Request::Sync(Box::new(plan))).await;
    wait_for_boot(&pod);
    bring(&pod, "extra");
    bring(&pod, "cd");
    for (wanted, expected) in [
        (vec![disk("extra")], attached(&[("extra", "sda")])),
        (
            vec![disk("extra"), drive(true)],
            attached(&[("cd", "sdb"), ("extra", "sda")]),
        ),
        (vec![drive(false)], attached(&[])),
    ] {
        let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
        loop {
            let reply = call(&pod, &Request::Disks(wanted.clone())).await;
            if matches!(&reply, Reply::Done(state) if state.disks == expected) {
                break;
            }
            let late = tokio::time::Instant::now() > deadline;
            assert!(!late, "{reply:?}; the log:\n{}", pod.log());
        }
    }
    let unreached = fs::read_to_string(&file).unwrap();
    assert_eq!(unreached, "", "failpoints that were not reached");
}
