//! The scenario `power-cut`: the machine writes to the API's database until it is killed. QEMU records what it
//! writes to the disk and when it flushes; cuts at random points of the recording leave disks without a random
//! part of the unflushed sectors. A second machine mounts these and opens the database.
//!
//! - `inside` are the writers and the check, which run in the machine;
//! - `records` are the acknowledged writes as a writer notes them on the disk;
//! - `recording` reads what QEMU recorded, `replay` makes the disks.

mod inside;
mod recording;
mod records;
mod replay;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use self::{inside::Finding, recording::Recording, records::Record, replay::Random};
use super::{
    accelerator::Accelerator,
    boot::{Boot, Console, Disk},
    image::Image,
    parts,
    scenario::Scenario,
};
use crate::printer::Printer;

pub(crate) use inside::{Task, run as run_inside};

/// The file system takes the first 400 MiB; the records of acknowledged writes begin here.
const RECORDS_AT: u64 = 448 << 20;
const DISK: u64 = 512 << 20;
/// Disks that the second machine checks.
const CUTS: usize = 6;
/// The line with which the writers begin.
const BEGIN: &str = "writing";
/// How long they write, at least and at most.
const SECONDS: std::ops::Range<usize> = 30..90;

/// The parts of a run that both machines share.
pub(super) struct Setting<'a> {
    pub(super) printer: &'a Printer,
    pub(super) scenario: &'a Scenario,
    pub(super) image: &'a Image,
    pub(super) accelerator: Accelerator,
    pub(super) directory: &'a Path,
}

/// Returns what to add to the result.
pub(super) fn run(setting: &Setting<'_>) -> Result<String> {
    let seed = u64::try_from(jiff::Timestamp::now().as_microsecond())?;
    let mut random = Random(seed);
    let recording = write(setting, &mut random)?;
    let points = cuts(&recording, &mut random)?;
    let checked = check(setting, &recording, &points, &mut random)?;
    ensure!(
        (checked.lost, checked.used_twice) == (0, 0),
        "of {} acknowledged writes {} were lost, {} revisions were used twice",
        checked.acknowledged,
        checked.lost,
        checked.used_twice
    );
    ensure!(
        checked.acknowledged > 0,
        "no write was acknowledged before a cut"
    );
    Ok(format!(
        ", {} cuts, {} acknowledged writes checked, 0 lost, 0 revisions used twice",
        points.len(),
        checked.acknowledged
    ))
}

/// Runs the writers until the machine is killed.
fn write(setting: &Setting<'_>, random: &mut Random) -> Result<Recording> {
    let at = |name: &str| setting.directory.join(name);
    let (parts, data, log) = (at("parts.tar"), at("data.raw"), at("data.log"));
    parts::pack(setting.scenario, &[], &parts).context("pack the programs")?;
    File::create(&data)?.set_len(DISK).context("make a disk")?;
    File::create(&log).context("make the recording")?;
    let disks = vec![Disk::Recorded {
        data,
        log: log.clone(),
    }];
    let seconds = SECONDS.start + random.below(SECONDS.len());
    let seconds = Duration::from_secs(u64::try_from(seconds)?);
    let boot = setting.boot(&parts, disks, "write.log");
    boot.cut(setting.limit(), (BEGIN, seconds), |line| setting.show(line))?;
    setting.show("the power is cut");
    let log = File::open(&log).context("open the recording")?;
    Recording::read(log).context("read the recording")
}

/// Random points after the first acknowledged write, in order.
fn cuts(recording: &Recording, random: &mut Random) -> Result<Vec<usize>> {
    let first = recording.first_at(RECORDS_AT);
    let first = first.context("no write was acknowledged before the machine was killed")?;
    let length = recording.len() - first;
    let mut points: Vec<usize> = (0..CUTS)
        .map(|_| first + 1 + random.below(length))
        .collect();
    points.sort_unstable();
    Ok(points)
}

/// Makes the disks and lets a second machine open them.
fn check(
    setting: &Setting<'_>,
    recording: &Recording,
    points: &[usize],
    random: &mut Random,
) -> Result<Finding> {
    let (mut disks, mut files) = (Vec::new(), Vec::new());
    for (point, letter) in points.iter().zip('c'..='z') {
        let disk = setting.directory.join(format!("cut-{letter}.raw"));
        replay::cut(recording, *point, random, &disk)
            .with_context(|| format!("replay {point} of {} entries", recording.len()))?;
        disks.push(Disk::Plain(disk));
        let records = recording.sectors_from(RECORDS_AT, *point)?;
        let records = records.iter().filter_map(|sector| Record::parse(sector));
        let file = setting.directory.join(format!("acknowledged-{letter}"));
        fs::write(&file, records::lines(records)).context("write the acknowledged writes")?;
        files.push((format!("acknowledged/vd{letter}"), file));
    }
    let parts = setting.directory.join("parts-check.tar");
    parts::pack(setting.scenario, &files, &parts).context("pack the programs")?;
    let boot = setting.boot(&parts, disks, "check.log");
    let outcome = boot.run(setting.limit(), |line| setting.show(line))?;
    ensure!(
        outcome.status == 0,
        "the check ended with {}",
        outcome.status
    );
    let findings = outcome.output.iter();
    let findings: Vec<Finding> = findings.filter_map(|line| line.parse().ok()).collect();
    ensure!(
        findings.len() == points.len(),
        "{} of {} disks were checked",
        findings.len(),
        points.len()
    );
    Ok(findings
        .iter()
        .fold(Finding::default(), |sum, one| Finding {
            acknowledged: sum.acknowledged + one.acknowledged,
            lost: sum.lost + one.lost,
            used_twice: sum.used_twice + one.used_twice,
        }))
}

impl Setting<'_> {
    fn boot<'b>(&'b self, parts: &'b Path, disks: Vec<Disk>, console: &str) -> Boot<'b> {
        Boot {
            image: self.image,
            accelerator: self.accelerator,
            parts,
            disks,
            memory_mib: self.scenario.memory_mib,
            scenario: Some(self.scenario.name),
            console: Console::File(self.directory.join(console)),
        }
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.scenario.limit_seconds)
    }

    fn show(&self, line: &str) {
        self.printer
            .line(format_args!("{}: {line}", self.scenario.name));
    }
}

/// This program, which is also the one in the machine.
pub(super) fn program() -> Result<PathBuf> {
    std::env::current_exe().context("find this program")
}
