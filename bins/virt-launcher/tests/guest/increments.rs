//! Incremental backups: put together, each chain is the disk of its moment.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use launcher_channel::{BACKUP_MANIFEST, BackupPlan, BackupStage, Lineage, Request};
use libvirt::{Connection, Domain, DomainUuid};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::backups::{DISKS, back_up, cancel, guest, path, plan, raw, source};
use crate::bundle::{self, Bundle};
use crate::failpoints::{armed_pod, call};
use crate::handler::Handler;
use crate::{pod, single, wait_for_boot};

const MIB: u64 = 1 << 20;

/// QEMU's monitor, through libvirtd.
pub(crate) struct Monitor {
    connection: Connection,
    domain: Domain,
    _driver: JoinSet<libvirt::Error>,
}

impl Monitor {
    async fn connect(pod: &Bundle) -> Self {
        let path = pod.run_dir().join("libvirt/libvirt-sock");
        let socket = UnixStream::connect(path).await.unwrap();
        let (connection, driver, _) = libvirt::attach(socket);
        let mut running = JoinSet::new();
        running.spawn(driver.run());
        connection.open("qemu:///session").await.unwrap();
        let uuid = "69a61d3f-50cc-4611-b6e2-e53205a02bad";
        let domain = Domain {
            name: "ns_guest".to_owned(),
            uuid: DomainUuid::parse(uuid).unwrap(),
            id: None,
        };
        Self {
            connection,
            domain,
            _driver: running,
        }
    }

    pub(crate) async fn run(&self, name: &str, arguments: Value) -> Value {
        let command = json!({"execute": name, "arguments": arguments}).to_string();
        let answer = self.connection.monitor(&self.domain, &command).await;
        let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
        assert!(answer.get("error").is_none(), "{command}: {answer}");
        answer["return"].clone()
    }

    /// Has the disk changed as if the guest did it.
    async fn io(&self, disk: &str, action: &str) {
        let device = format!("/machine/peripheral/ua-{disk}/virtio-backend");
        let line = format!("qemu-io -d {device} \"{action}\"");
        let output = self
            .run("human-monitor-command", json!({"command-line": line}))
            .await;
        let output = output.as_str().unwrap_or_default();
        assert!(!output.contains("rror"), "{line}: {output}");
    }

    pub(crate) async fn fill(&self, disk: &str, byte: u8, start: u64, length: u64) {
        let action = format!("write -P {byte} {start} {length}");
        self.io(disk, &action).await;
    }

    pub(crate) async fn clear(&self, disk: &str, start: u64, length: u64) {
        self.io(disk, &format!("write -z {start} {length}")).await;
    }

    /// Our bitmaps, jobs and nodes in QEMU.
    async fn leftovers(&self) -> (usize, usize, usize) {
        let count = |all: &Value, text: &str| all.to_string().matches(text).count();
        let drives = self.run("query-block", json!({})).await;
        let jobs = self.run("query-jobs", json!({})).await;
        let nodes = self
            .run("query-named-block-nodes", json!({"flat": true}))
            .await;
        (
            count(&drives, "ferrovirt-checkpoint:"),
            count(&jobs, "ferrovirt-backup-"),
            count(&nodes, "\"node-name\":\"ferrovirt-backup-"),
        )
    }
}

/// A backup that leaves a checkpoint.
fn tracked(directory: &str, parent: Option<&str>) -> BackupPlan {
    BackupPlan {
        leaves_checkpoint: true,
        parent: parent.map(str::to_owned),
        ..plan(directory)
    }
}

pub(crate) async fn start(pod: &Bundle) -> Monitor {
    let guest = guest(pod);
    call(pod, &Request::Sync(Box::new(guest))).await;
    wait_for_boot(pod);
    Monitor::connect(pod).await
}

fn lineage(pod: &Bundle, stage: &BackupStage) -> Lineage {
    let BackupStage::Done { lineage, .. } = stage else {
        panic!("{stage:?}; the log:\n{}", pod.log());
    };
    lineage.clone()
}

/// Makes a backup, and checks that it builds on its parent.
async fn back_up_on(pod: &Bundle, directory: &str, parent: Option<&str>) {
    let (_, stage) = back_up(pod, &tracked(directory, parent)).await;
    let expected = Lineage {
        parent: parent.map(str::to_owned),
        has_checkpoint: true,
        note: None,
    };
    assert_eq!(lineage(pod, &stage), expected, "the log:\n{}", pod.log());
}

/// Makes a backup, which has all blocks although it has a parent; returns why.
async fn falls_back(pod: &Bundle, plan: &BackupPlan) -> String {
    let (_, stage) = back_up(pod, plan).await;
    let lineage = lineage(pod, &stage);
    assert_eq!((&lineage.parent, lineage.has_checkpoint), (&None, true));
    assert_eq!(manifest(pod, &plan.directory)["type"], "Full");
    lineage.note.unwrap()
}

fn manifest(pod: &Bundle, directory: &str) -> Value {
    let path = path(pod, &plan(directory)).join(BACKUP_MANIFEST);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn copy(pod: &Bundle, directory: &str, disk: &str) -> PathBuf {
    path(pod, &plan(directory)).join(format!("{disk}.qcow2"))
}

type Content = [Vec<u8>; 2];

fn content(pod: &Bundle) -> Content {
    DISKS.map(|disk| fs::read(source(pod, disk)).unwrap())
}

/// Puts the chain together by the manifests, whose files have no backing file, and compares it with the disks.
/// Changes the files: call it for all backups of a chain in order, in the end.
fn check(pod: &Bundle, directory: &str, expected: &Content) {
    let own = manifest(pod, directory);
    let parent = own["parent"].as_str().map(str::to_owned);
    let digest = parent.as_ref().map(|parent| {
        let path = path(pod, &plan(parent)).join(BACKUP_MANIFEST);
        let sum = Command::new("sha256sum").arg(path).output().unwrap();
        String::from_utf8(sum.stdout).unwrap()[..64].to_owned()
    });
    assert_eq!(own["parentSha256"].as_str(), digest.as_deref());
    for (disk, expected) in DISKS.iter().zip(expected) {
        let file = copy(pod, directory, disk);
        let output = Command::new("qemu-img")
            .args(["info", "--output=json"])
            .arg(&file)
            .output();
        let info: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        assert_eq!(info["backing-filename"], Value::Null);
        if let Some(parent) = &parent {
            let status = Command::new("qemu-img")
                .args(["rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b"])
                .args([copy(pod, parent, disk), file.clone()])
                .status();
            assert!(status.unwrap().success());
        }
        let found = raw(&file);
        let differs = found
            .iter()
            .zip(expected)
            .position(|(one, other)| one != other);
        assert_eq!(
            (found.len(), differs),
            (expected.len(), None),
            "{directory}: {disk}"
        );
    }
}

/// Changes the disks while the copy is made: what has changed belongs to the next increment.
async fn back_up_while_changing(pod: &Bundle, monitor: &Monitor, plan: &BackupPlan, byte: u8) {
    let mut handler = Handler::connect(pod);
    handler.done(Request::Backup(plan.clone())).await;
    loop {
        let state = handler.done(Request::State).await;
        let report = state.backup.filter(|report| report.is_of(plan));
        let has_begun = report.is_some_and(|one| one.quiesce.is_some() || !one.stage.is_running());
        if has_begun {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for number in 0..8 {
        monitor
            .fill("data", byte, (8 + number) * MIB / 2, 4096)
            .await;
        monitor.fill("more", byte, number * MIB + 512, 512).await;
    }
    drop(handler);
    let (_, stage) = back_up(pod, plan).await;
    assert_eq!(lineage(pod, &stage).parent, plan.parent);
}

/// A full backup and three increments, with changes before and while each is made.
#[tokio::test]
async fn each_chain_is_the_disk_of_its_moment() {
    let pod = pod();
    let monitor = start(&pod).await;
    let mut expected = Vec::new();
    let names = ["full", "one", "two", "three"];
    for (number, name) in (0_u8..).zip(names) {
        let parent = number
            .checked_sub(1)
            .map(|before| names[usize::from(before)]);
        monitor
            .fill("data", 0x41 + number, 5 * MIB + 100 * 512, 200 * 512)
            .await;
        monitor
            .clear("data", u64::from(number) * MIB / 2, MIB / 4)
            .await;
        if number == 2 {
            monitor.fill("more", 0x7f, 15 * MIB, MIB).await;
        }
        expected.push(content(&pod));
        back_up_while_changing(&pod, &monitor, &tracked(name, parent), 0x61 + number).await;
    }
    let [all, changes] =
        ["full", "three"].map(|name| fs::metadata(copy(&pod, name, "data")).unwrap().len());
    assert!(changes < all, "{changes} of {all} bytes");
    // One checkpoint for each disk, of the last backup, and that of its parent.
    assert_eq!(monitor.leftovers().await, (4, 0, 0));
    for (name, expected) in names.iter().zip(&expected) {
        check(&pod, name, expected);
    }
}

/// Two trackers of one guest do not disturb each other, and a backup without a tracker disturbs none.
#[tokio::test]
async fn trackers_are_independent() {
    let pod = pod();
    let monitor = start(&pod).await;
    let kept = |other: &str, plan: BackupPlan| BackupPlan {
        kept_checkpoints: vec![other.to_owned()],
        ..plan
    };
    back_up_on(&pod, "a0", None).await;
    monitor.fill("data", 1, MIB, 4096).await;
    back_up(&pod, &kept("a0", tracked("b0", None))).await;
    monitor.fill("data", 2, 2 * MIB, 4096).await;
    back_up(&pod, &plan("untracked")).await;
    let first = content(&pod);
    back_up(&pod, &kept("b0", tracked("a1", Some("a0")))).await;
    monitor.fill("data", 3, 3 * MIB, 4096).await;
    let second = content(&pod);
    let (_, stage) = back_up(&pod, &kept("a1", tracked("b1", Some("b0")))).await;
    assert_eq!(lineage(&pod, &stage).parent.as_deref(), Some("b0"));
    assert_eq!(manifest(&pod, "a1")["parent"], "a0");
    check(&pod, "a1", &first);
    check(&pod, "b1", &second);
    // Nothing needs those of tracker a any more.
    back_up_on(&pod, "b2", Some("b1")).await;
    assert_eq!(monitor.leftovers().await, (4, 0, 0));
}

/// A cancelled increment takes nothing from the next one, nor does the death of libvirtd.
#[tokio::test]
async fn changes_survive_a_backup_that_does_not_end() {
    let pod = pod();
    let monitor = start(&pod).await;
    let full = content(&pod);
    back_up_on(&pod, "full", None).await;
    monitor.fill("data", 1, MIB, 2 * MIB).await;
    let cancelled = tracked("cancelled", Some("full"));
    let mut handler = Handler::connect(&pod);
    handler.done(Request::Backup(cancelled.clone())).await;
    handler.done(Request::CancelBackup(cancelled.clone())).await;
    drop(handler);
    cancel(&pod, &cancelled).await;
    let lost = BackupPlan {
        volume: "nowhere".to_owned(),
        ..tracked("lost", Some("full"))
    };
    let (_, stage) = back_up(&pod, &lost).await;
    assert!(matches!(stage, BackupStage::Failed(_)), "{stage:?}");
    assert_eq!(monitor.leftovers().await.1, 0);
    monitor.fill("data", 2, 4 * MIB, MIB).await;
    let expected = content(&pod);
    let one = tracked("one", Some("full"));
    call(&pod, &Request::Backup(one.clone())).await;
    bundle::kill(single(&pod.pids("libvirtd")), "KILL");
    let (_, stage) = back_up(&pod, &one).await;
    assert_eq!(lineage(&pod, &stage).parent.as_deref(), Some("full"));
    check(&pod, "full", &full);
    check(&pod, "one", &expected);
}

/// Each way to lose changes makes the next backup a full one, which says why.
#[tokio::test]
async fn changes_that_are_not_known_make_a_full_backup() {
    let pod = pod();
    let monitor = start(&pod).await;
    let why = falls_back(&pod, &tracked("early", Some("never"))).await;
    assert!(
        why.contains("backup never is not complete in this claim"),
        "{why}"
    );
    back_up(&pod, &plan("bare")).await;
    let why = falls_back(&pod, &tracked("late", Some("bare"))).await;
    assert!(why.contains("backup bare left no checkpoint"), "{why}");

    let fewer = BackupPlan {
        disks: vec![DISKS[0].to_owned()],
        ..tracked("fewer", Some("late"))
    };
    let why = falls_back(&pod, &fewer).await;
    assert!(
        why.contains("other disks than it had at backup late"),
        "{why}"
    );
    back_up_on(&pod, "again", None).await;
    back_up_on(&pod, "child", Some("again")).await;
    fs::remove_file(copy(&pod, "again", "more")).unwrap();
    let why = falls_back(&pod, &tracked("orphan", Some("child"))).await;
    assert!(
        why.contains("more.qcow2 of backup again is missing"),
        "{why}"
    );

    let drives = monitor.run("query-block", json!({})).await;
    let drives = drives.as_array().unwrap();
    let data = drives
        .iter()
        .find(|one| one["qdev"].as_str().unwrap().contains("ua-data"));
    let node = &data.unwrap()["inserted"]["node-name"];
    let bitmap = json!({"node": node, "name": "ferrovirt-checkpoint:orphan"});
    monitor.run("block-dirty-bitmap-remove", bitmap).await;
    let why = falls_back(&pod, &tracked("unrecorded", Some("orphan"))).await;
    assert!(
        why.contains("has not recorded the changes of disk data"),
        "{why}"
    );

    let resize = json!({"node-name": node, "size": 20 * MIB});
    monitor.run("block_resize", resize).await;
    let why = falls_back(&pod, &tracked("resized", Some("unrecorded"))).await;
    assert!(why.contains("disk data was resized"), "{why}");
    back_up_on(&pod, "last", Some("resized")).await;
    check(&pod, "resized", &content(&pod));
}

/// Kills the launcher at each of its failpoints of increments; the next launcher finishes the backup.
#[tokio::test]
async fn increments_survive_kills() {
    let (pod, armed) = armed_pod("virt-launcher/increment/", 3);
    let monitor = start(&pod).await;
    let full = content(&pod);
    back_up_on(&pod, "full", None).await;
    monitor.fill("data", 9, MIB, MIB).await;
    let expected = content(&pod);
    back_up_on(&pod, "one", Some("full")).await;
    let unreached = fs::read_to_string(&armed).unwrap();
    assert_eq!(unreached, "", "failpoints that were not reached");
    assert_eq!(monitor.leftovers().await, (4, 0, 0));
    // At those of all backups.
    let names = ::failpoints::NAMES.lines();
    let names: Vec<_> = names
        .filter(|name| name.starts_with("virt-launcher/backup/"))
        .collect();
    fs::write(&armed, names.join("\n") + "\n").unwrap();
    monitor.fill("data", 10, 2 * MIB, MIB).await;
    let last = content(&pod);
    back_up_on(&pod, "two", Some("one")).await;
    assert_eq!(fs::read_to_string(&armed).unwrap(), "");
    for (name, expected) in [("full", &full), ("one", &expected), ("two", &last)] {
        check(&pod, name, expected);
    }
}
