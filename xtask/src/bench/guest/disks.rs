//! Disks: a volume of each kind beside a plain file on the same file system.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    super::{
        by_hand::{ByHand, Machine, disk},
        figures::Figure,
        host::Host,
        load::Load,
        objects::{Guest, Objects, VM, claim, on_claim},
        shell::Shell,
    },
    GuestOptions, MIB, Pair, same_qemu,
    staged::{DATA_IMAGE, random_file},
};
use crate::printer::Printer;

const PATTERNS: [&str; 4] = [
    "sequential-read",
    "sequential-write",
    "random-read",
    "random-write",
];
const SMALL: f64 = 4096.0;

pub(super) async fn measure(
    printer: &Printer,
    options: &GuestOptions,
    (load, host, objects): (&Load, &Host, &Objects),
) -> Result<Vec<Figure>> {
    printer.line("starting two guests with disks");
    objects.switch_on(&["HostDisk"]).await?;
    objects
        .create(&claim("files", "Filesystem", options.size))
        .await?;
    let size = format!("{}Mi", options.size);
    let mut volumes: Vec<(&str, Value)> = vec![
        (
            "container-disk",
            json!({"containerDisk": {"image": DATA_IMAGE, "imagePullPolicy": "IfNotPresent"}}),
        ),
        ("empty-disk", json!({"emptyDisk": {"capacity": size}})),
        ("claim", on_claim("files")),
        (
            "host-disk",
            json!({"hostDisk": {
                "type": "DiskOrCreate", "capacity": size, "path": host.host_disks.join("bench.img"),
            }}),
        ),
    ];
    if !options.no_block {
        objects
            .create(&claim("device", "Block", options.size))
            .await?;
        volumes.push(("block-claim", on_claim("device")));
    }
    let kinds: Vec<&str> = volumes.iter().map(|(name, _)| *name).collect();
    let guest = Guest {
        name: "disks",
        mib: MIB,
        volumes,
        binding: "masquerade",
    };
    let mut ours = objects.start(&guest).await?;
    same_qemu(&ours)?;

    // One file for each kind, so that no cache of the device favours a side.
    let machine = Machine::like(&ours.qemu, MIB, load)?;
    let mut more = Vec::new();
    for kind in &kinds {
        let file = plain_file(host, kind, options.size)?;
        let aio = format!(
            "format=raw,cache=none,aio={},discard=unmap",
            ours.qemu.aio()
        );
        more.extend(disk(kind, &file, &aio));
    }
    let by_hand = ByHand::start(&machine, &more)?;
    let mut hand = Shell::of(&by_hand.console()).await?;
    hand.install("/dev/vdb").await?;

    let mut figures = Vec::new();
    for (kind, letter) in kinds.iter().zip('c'..='z') {
        // A hole is read without the device.
        if *kind != "container-disk" {
            let filled = format!("write /dev/vd{letter} {}", options.size);
            ours.shell.load(&filled).await?;
        }
        let mut worst = [f64::INFINITY; 2];
        for (index, pattern) in PATTERNS.iter().enumerate() {
            printer.line(format_args!("{kind}: {pattern}"));
            let command = format!(
                "disk /dev/vd{letter} {pattern} {} {}",
                options.size, options.seconds
            );
            let mut pair = Pair::default();
            for _ in 0..options.rounds {
                pair.ours.push(ours.shell.load(&command).await?);
                pair.hand.push(hand.load(&command).await?);
            }
            let is_random = index >= 2;
            figures.extend(compared(
                &format!("guest.disk.{kind}.{pattern}"),
                &pair,
                is_random,
            ));
            let (ours, hand) = pair.middle();
            let place = &mut worst[usize::from(is_random)];
            *place = place.min(ours / hand);
        }
        let [sequential, random] = worst;
        let name = |what: &str| format!("guest.disk.{kind}.{what}.ratio");
        figures.push(Figure::new(name("sequential"), sequential, "x"));
        figures.push(Figure::new(name("random"), random, "x"));
    }
    drop(by_hand);
    objects.delete(VM, guest.name).await?;
    Ok(figures)
}

/// As large as the volumes, and filled: a hole is read without the device.
fn plain_file(host: &Host, kind: &str, mib: u64) -> Result<PathBuf> {
    let path = host.host_disks.join(format!("hand-{kind}.img"));
    random_file(&path, mib)?;
    fs::File::open(&path)
        .and_then(|file| file.sync_all())
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

fn compared(name: &str, pair: &Pair, is_random: bool) -> [Figure; 3] {
    let (ours, hand) = pair.middle();
    let (unit, of_unit) = if is_random {
        ("/s", SMALL)
    } else {
        ("MB/s", 1e6)
    };
    [
        Figure::new(format!("{name}.ours"), ours / of_unit, unit),
        Figure::new(format!("{name}.hand"), hand / of_unit, unit),
        Figure::new(format!("{name}.ratio"), ours / hand, "x"),
    ]
}
