//! What happens to a guest that runs: snapshots, backups and volumes that come.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use http::Request;
use serde_json::{Value, json};

use super::{
    super::{
        figures::{Figure, as_f64, median, milliseconds},
        host::Host,
        objects::{Guest, Objects, Running, VMI, claim, has_condition, on_claim},
        qemu::Qemu,
        shell::Shell,
        silence::observe,
    },
    StorageOptions,
    copies::volume_of,
};
use crate::printer::Printer;

const SNAPSHOT: (&str, &str) = ("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot");
const BACKUP: (&str, &str) = ("backup.kubevirt.io/v1alpha1", "VirtualMachineBackup");
const TRACKER: &str = "VirtualMachineBackupTracker";
const NAME: &str = "keeper";
/// Of its disk, all of which has data.
const DISK_MIB: u64 = 1024;
const SNAPSHOTS: u32 = 3;
/// How much changes before each increment, in MiB.
const CHANGES: [u64; 2] = [16, 256];

pub(super) async fn measure(
    printer: &Printer,
    options: &StorageOptions,
    (host, objects): (&Host, &Objects),
) -> Result<Vec<Figure>> {
    printer.line("starting a guest with a claim");
    objects.switch_on(&["IncrementalBackup"]).await?;
    objects
        .create(&claim("data", "Filesystem", DISK_MIB))
        .await?;
    objects
        .create(&claim("backups", "Filesystem", 4 * DISK_MIB))
        .await?;
    objects.create(&claim("extra", "Filesystem", 64)).await?;
    let guest = Guest {
        name: NAME,
        mib: 256,
        volumes: vec![("data", on_claim("data"))],
        binding: "masquerade",
    };
    let mut running = objects.start(&guest).await?;
    let fill = format!("write /dev/vdc {DISK_MIB}");
    running.shell.load(&fill).await?;
    let mut figures = backups(printer, (host, objects), &mut running.shell).await?;
    figures.extend(snapshots(printer, objects, &mut running).await?);
    figures.extend(hotplug(printer, options, objects).await?);
    Ok(figures)
}

/// A full backup, and increments with different changes.
async fn backups(
    printer: &Printer,
    (host, objects): (&Host, &Objects),
    shell: &mut Shell,
) -> Result<Vec<Figure>> {
    printer.line("backups");
    objects
        .create(&json!({
            "apiVersion": BACKUP.0, "kind": TRACKER, "metadata": {"name": NAME},
            "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": NAME}},
        }))
        .await?;
    let (bytes, took) = backup(host, objects, "full").await?;
    let mut figures = vec![
        Figure::new("storage.backup.full.size", bytes / 1e6, "MB"),
        Figure::new("storage.backup.full.time", took, "ms"),
    ];
    let mut worst = 0.0_f64;
    for mib in CHANGES {
        shell.load(&format!("write /dev/vdc {mib}")).await?;
        let name = format!("change-{mib}");
        let (bytes, took) = backup(host, objects, &name).await?;
        worst = worst.max(bytes / as_f64(mib << 20));
        let name = |what: &str| format!("storage.backup.incremental.{mib}.{what}");
        figures.push(Figure::new(name("size"), bytes / 1e6, "MB"));
        figures.push(Figure::new(name("time"), took, "ms"));
    }
    figures.push(Figure::new("storage.backup.incremental.ratio", worst, "x"));
    Ok(figures)
}

/// Bytes of its files, and milliseconds from the request until it is complete.
async fn backup(host: &Host, objects: &Objects, name: &str) -> Result<(f64, f64)> {
    let sent = objects
        .create(&json!({
            "apiVersion": BACKUP.0, "kind": BACKUP.1, "metadata": {"name": name},
            "spec": {
                "source": {"apiGroup": "backup.kubevirt.io", "kind": TRACKER, "name": NAME},
                "pvcName": "backups",
            },
        }))
        .await?;
    let (object, seen) = objects
        .wait(BACKUP, name, |object| has_condition(object, "Complete"))
        .await?;
    let expected = if name == "full" {
        "Full"
    } else {
        "Incremental"
    };
    ensure!(
        object["status"]["type"] == expected,
        "backup {name} is not {expected}: {}",
        object["status"]
    );
    let files = host.files_of(&volume_of(objects, "backups").await?);
    let bytes = bytes_of(&files, name)?;
    Ok((as_f64(bytes), milliseconds(seen.duration_since(sent))))
}

/// Of all files that the backup's description names.
fn bytes_of(files: &Path, name: &str) -> Result<u64> {
    for entry in fs::read_dir(files).context("list the backups")? {
        let directory = entry.context("list the backups")?;
        let is_of = directory
            .file_name()
            .to_string_lossy()
            .starts_with(&format!("{name}-2"));
        if is_of {
            let text = fs::read_to_string(directory.path().join("backup.json"))?;
            let described: Value = serde_json::from_str(&text).context("understand a backup")?;
            let volumes = described["volumes"].as_array().into_iter().flatten();
            let sizes: Option<Vec<u64>> = volumes.map(|one| one["bytes"].as_u64()).collect();
            let sizes = sizes.context("a file of the backup has no size")?;
            return Ok(sizes.iter().sum());
        }
    }
    anyhow::bail!("{} has no backup {name}", files.display())
}

/// The longest silence of the guest while it is snapshotted.
async fn snapshots(
    printer: &Printer,
    objects: &Objects,
    running: &mut Running,
) -> Result<Vec<Figure>> {
    running.shell.send("load tick 10 &\n").await?;
    let log = format!("var/run/kubevirt-private/{}/virt-serial0-log", running.uid);
    let (mut pauses, mut times) = (Vec::new(), Vec::new());
    for round in 1..=SNAPSHOTS {
        printer.line(format_args!("snapshot {round} of {SNAPSHOTS}"));
        let name = format!("snapshot-{round}");
        let find = || {
            let all = Qemu::all_of(NAME)?;
            Ok(all
                .iter()
                .map(|qemu| (qemu.pid, qemu.inside(&log)))
                .collect())
        };
        let taken = async {
            let sent = objects
                .create(&json!({
                    "apiVersion": SNAPSHOT.0, "kind": SNAPSHOT.1, "metadata": {"name": name},
                    "spec": {"source": {
                        "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": NAME,
                    }},
                }))
                .await?;
            let is_ready = |object: &Value| has_condition(object, "Ready");
            let (_, seen) = objects.wait(SNAPSHOT, &name, is_ready).await?;
            Ok(milliseconds(seen.duration_since(sent)))
        };
        let (seen, took) = observe(find, taken).await?;
        pauses.push(milliseconds(seen.silence));
        times.push(took);
        objects.delete(SNAPSHOT, &name).await?;
    }
    let middle = |values: &[f64]| median(values).unwrap_or_default();
    Ok(vec![
        Figure::new("storage.snapshot.pause", middle(&pauses), "ms"),
        Figure::new("storage.snapshot.time", middle(&times), "ms"),
    ])
}

/// How long it takes until a volume that was asked for is ready in the guest.
async fn hotplug(
    printer: &Printer,
    options: &StorageOptions,
    objects: &Objects,
) -> Result<Vec<Figure>> {
    let volume = |vmi: &Value| {
        let all = vmi["status"]["volumeStatus"].as_array();
        let mut all = all.into_iter().flatten();
        all.find(|one| one["name"] == "extra").cloned()
    };
    let mut times = Vec::new();
    for round in 1..=options.rounds {
        printer.line(format_args!("hotplug {round} of {}", options.rounds));
        let added = json!({
            "name": "extra", "disk": {"name": "extra", "disk": {"bus": "virtio"}},
            "volumeSource": {"persistentVolumeClaim": {"claimName": "extra", "hotpluggable": true}},
        });
        let sent = std::time::Instant::now();
        verb(objects, "addvolume", &added).await?;
        let is_ready = |vmi: &Value| volume(vmi).is_some_and(|one| one["phase"] == "Ready");
        let (_, seen) = objects.wait(VMI, NAME, is_ready).await?;
        times.push(milliseconds(seen.duration_since(sent)));
        verb(objects, "removevolume", &json!({"name": "extra"})).await?;
        objects.wait(VMI, NAME, |vmi| volume(vmi).is_none()).await?;
    }
    let middle = median(&times).unwrap_or_default();
    Ok(vec![Figure::new("storage.hotplug", middle, "ms")])
}

async fn verb(objects: &Objects, verb: &str, body: &Value) -> Result<()> {
    let path = format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{NAME}/{verb}"
    );
    let request = Request::put(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(body)?)?;
    objects
        .0
        .request_text(request)
        .await
        .with_context(|| format!("ask for {verb}"))?;
    Ok(())
}
