//! Disks that the guest gets and loses while it runs.
//!
//! **Invariant**: libvirt's live XML is the record of the attached disks. A disk that exists since the
//! guest's start is never removed: hot-plugged ones have their source in one directory.

use std::collections::BTreeMap;

use error_chain::error_chain;
use launcher_channel::{HOTPLUG_DISKS, HotDisk, HotDiskKind, Prepare};
use libvirt::{Connection, Domain};

use super::domain_xml::{LiveDisk, LiveDomain};
use super::refusal::Refusal;
use super::task::Guest;
use crate::prepare;

/// The prefix of the alias of a device that the user named.
const ALIAS: &str = "ua-";

/// The hot-plugged disks of the domain.
#[derive(Debug, Default)]
pub(super) struct Disks {
    /// Device names in the guest, by volume.
    attached: BTreeMap<String, String>,
    /// Why changes have failed, by volume.
    failures: BTreeMap<String, String>,
}

/// One change of the running domain.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Attach(&'a HotDisk),
    /// Inserts a medium, or ejects it.
    Exchange(&'a HotDisk),
    /// The volume of the disk.
    Remove(&'a str),
}

impl<'a> Step<'a> {
    /// The volume whose use ends.
    fn ends(&self) -> Option<&'a str> {
        match self {
            Self::Remove(volume) => Some(volume),
            Self::Exchange(disk) => Some(&disk.volume),
            Self::Attach(_) => None,
        }
    }
}

impl Disks {
    pub(super) fn attached(&self) -> BTreeMap<String, String> {
        self.attached.clone()
    }

    pub(super) fn failures(&self) -> BTreeMap<String, String> {
        self.failures.clone()
    }

    pub(super) fn observe(&mut self, live: &[LiveDisk]) {
        let plugged = live.iter().filter_map(|disk| {
            let volume = plugged_volume(disk)?;
            Some((volume.to_owned(), disk.target.clone()))
        });
        self.attached = plugged.collect();
    }
}

impl Guest {
    /// Attaches the wanted disks that are missing, and requests the removal of others. A disk that
    /// cannot be changed is a failure in the state, and does not hold up the rest.
    pub(super) async fn set_disks(&mut self, wanted: Vec<HotDisk>) -> Result<(), Refusal> {
        self.ensure_known().await?;
        let (Some(connection), Some(domain)) = (self.connection(), self.domain()) else {
            return Err(libvirt::Error::Closed.into());
        };
        if !self.is_alive() {
            return Err(Refusal::NotRunning);
        }
        // libvirt would keep this task waiting.
        if self.dumps.is_running() {
            return Err(Refusal::Dumping);
        }
        let live = read(&connection, &domain).await?;
        let steps = plan(&live, &wanted);
        if steps.iter().any(|step| step.ends().is_some()) {
            self.end_leftovers().await;
        }
        let (steps, mut failures) = hold_back(steps, |volume| self.backups.copies(volume));
        for step in steps {
            let (volume, done) = match step {
                Step::Attach(disk) => {
                    let done = match self.prepare_disk(disk).await {
                        Ok(()) => connection.attach_device(&domain, &disk.xml).await,
                        Err(refusal) => {
                            failures.insert(disk.volume.clone(), chain(&refusal));
                            continue;
                        }
                    };
                    failpoints::after("virt-launcher/disks/attach");
                    (disk.volume.as_str(), done)
                }
                Step::Exchange(disk) => {
                    let done = match self.prepare_disk(disk).await {
                        Ok(()) => connection.update_device(&domain, &disk.xml).await,
                        Err(refusal) => {
                            failures.insert(disk.volume.clone(), chain(&refusal));
                            continue;
                        }
                    };
                    failpoints::after("virt-launcher/disks/exchange");
                    (disk.volume.as_str(), done)
                }
                Step::Remove(volume) => {
                    let alias = format!("{ALIAS}{volume}");
                    let done = connection.request_removal(&domain, &alias).await;
                    failpoints::after("virt-launcher/disks/remove");
                    // The guest has time to release it.
                    if done
                        .as_ref()
                        .is_err_and(libvirt::Error::is_repeated_removal)
                    {
                        continue;
                    }
                    (volume, done)
                }
            };
            match done {
                Ok(()) => tracing::info!(volume, "disks of the running guest changed"),
                Err(error @ libvirt::Error::Remote(_)) => {
                    tracing::info!(
                        volume,
                        error = error_chain(&error),
                        "libvirt refused to change a disk"
                    );
                    failures.insert(volume.to_owned(), chain(&error));
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.disks.failures = failures;
        self.refresh_disks().await
    }

    /// Reads the disks again: one has come or gone.
    pub(super) async fn refresh_disks(&mut self) -> Result<(), Refusal> {
        if let (Some(connection), Some(domain)) = (self.connection(), self.domain()) {
            let live = read(&connection, &domain).await?;
            self.disks.observe(&live);
            self.publish();
        }
        Ok(())
    }

    async fn prepare_disk(&self, disk: &HotDisk) -> Result<(), Refusal> {
        let steps: Vec<Prepare> = disk.prepare.clone().into_iter().collect();
        let done = self.tasks.spawn_blocking(move || prepare::all(&steps));
        done.await
            .map_err(std::io::Error::other)?
            .map_err(Refusal::Prepare)
    }
}

async fn read(connection: &Connection, domain: &Domain) -> Result<Vec<LiveDisk>, Refusal> {
    let xml = connection.xml(domain).await?;
    let live = LiveDomain::parse(&xml).map_err(std::io::Error::other)?;
    Ok(live.disks)
}

/// The volume of a hot-plugged disk.
fn plugged_volume(disk: &LiveDisk) -> Option<&str> {
    let source = disk.source.as_deref()?;
    let is_below = source
        .strip_prefix(HOTPLUG_DISKS)
        .is_some_and(|rest| rest.starts_with('/'));
    disk.alias.strip_prefix(ALIAS).filter(|_| is_below)
}

/// Holds back what would take a disk from the guest that a backup copies: libvirt does not know all jobs of backups,
/// and would leave the disk open. Returns the other steps, and failures by volume.
fn hold_back(
    steps: Vec<Step<'_>>,
    copies: impl Fn(&str) -> bool,
) -> (Vec<Step<'_>>, BTreeMap<String, String>) {
    let is_held = |step: &Step<'_>| step.ends().is_some_and(&copies);
    let (held, rest): (Vec<_>, Vec<_>) = steps.into_iter().partition(is_held);
    let failure = |volume: &str| (volume.to_owned(), chain(&Refusal::BackingUp));
    let failures = held.iter().filter_map(Step::ends).map(failure).collect();
    (rest, failures)
}

/// The changes from the live disks to the wanted ones: removals first, as they free places.
fn plan<'a>(live: &'a [LiveDisk], wanted: &'a [HotDisk]) -> Vec<Step<'a>> {
    let is_wanted = |volume: &str| wanted.iter().any(|disk| disk.volume == volume);
    let removals = live
        .iter()
        .filter_map(plugged_volume)
        .filter(|volume| !is_wanted(volume))
        .map(Step::Remove);
    let additions = wanted.iter().filter_map(|disk| {
        let has_alias =
            |one: &&LiveDisk| one.alias.strip_prefix(ALIAS) == Some(disk.volume.as_str());
        match (disk.kind, live.iter().find(has_alias)) {
            (HotDiskKind::Disk, None) => Some(Step::Attach(disk)),
            (HotDiskKind::Medium, Some(drive)) if drive.source != disk.source => {
                Some(Step::Exchange(disk))
            }
            (HotDiskKind::Disk, Some(_)) | (HotDiskKind::Medium, _) => None,
        }
    });
    removals.chain(additions).collect()
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    error_chain(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(volume: &str, source: Option<&str>) -> LiveDisk {
        LiveDisk {
            alias: format!("ua-{volume}"),
            target: "sda".to_owned(),
            source: source.map(str::to_owned),
            ..LiveDisk::default()
        }
    }

    fn plugged(volume: &str) -> String {
        format!("{HOTPLUG_DISKS}/{volume}/disk.img")
    }

    fn hot(volume: &str, kind: HotDiskKind, source: Option<String>) -> HotDisk {
        HotDisk {
            volume: volume.to_owned(),
            xml: String::new(),
            source,
            kind,
            prepare: None,
        }
    }

    #[test]
    fn plan_leads_from_the_live_disks_to_the_wanted_ones() {
        let new = plugged("new");
        let boot = || {
            live(
                "root",
                Some("/var/run/kubevirt-private/vmi-disks/root/disk.img"),
            )
        };
        let disk = |volume: &str| hot(volume, HotDiskKind::Disk, Some(plugged(volume)));
        let medium = |source| hot("cd", HotDiskKind::Medium, source);
        let table: [(Vec<LiveDisk>, Vec<HotDisk>, &[&str]); 8] = [
            (vec![boot()], vec![], &[]),
            (vec![boot()], vec![disk("new")], &["attach new"]),
            (
                vec![boot(), live("new", Some(&new))],
                vec![disk("new")],
                &[],
            ),
            (
                vec![boot(), live("new", Some(&new))],
                vec![],
                &["remove new"],
            ),
            (
                vec![live("new", Some(&new))],
                vec![disk("other")],
                &["remove new", "attach other"],
            ),
            (
                vec![live("cd", None)],
                vec![medium(Some(plugged("cd")))],
                &["exchange cd"],
            ),
            (
                vec![live("cd", Some(&plugged("cd")))],
                vec![medium(None)],
                &["exchange cd"],
            ),
            // A drive without a medium stays as it is.
            (vec![live("cd", None)], vec![medium(None)], &[]),
        ];
        for (live, wanted, expected) in table {
            let steps: Vec<String> = plan(&live, &wanted)
                .iter()
                .map(|step| match step {
                    Step::Attach(disk) => format!("attach {}", disk.volume),
                    Step::Exchange(disk) => format!("exchange {}", disk.volume),
                    Step::Remove(volume) => format!("remove {volume}"),
                })
                .collect();
            assert_eq!(steps, expected, "{live:?} {wanted:?}");
        }
    }

    #[test]
    fn only_disks_that_are_copied_are_held_back() {
        let [new, cd] = [
            hot("copied", HotDiskKind::Disk, None),
            hot("cd", HotDiskKind::Medium, None),
        ];
        let steps = || {
            vec![
                Step::Remove("copied"),
                Step::Remove("other"),
                Step::Exchange(&cd),
                Step::Attach(&new),
            ]
        };
        let (rest, failures) = hold_back(steps(), |volume| volume == "copied");
        let expected = [
            Step::Remove("other"),
            Step::Exchange(&cd),
            Step::Attach(&new),
        ];
        assert_eq!(rest, expected);
        assert_eq!(failures.keys().collect::<Vec<_>>(), ["copied"]);
        let why = &failures["copied"];
        assert!(why.contains("backup"), "{why}");
        // What a crashed launcher has begun is not known.
        let (rest, failures) = hold_back(steps(), |_| true);
        assert_eq!(rest, [Step::Attach(&new)]);
        assert_eq!(failures.len(), 3);
        assert!(hold_back(steps(), |_| false).1.is_empty());
    }

    #[test]
    fn only_hot_plugged_disks_are_reported() {
        let mut disks = Disks::default();
        let beside = format!("{HOTPLUG_DISKS}-other/x");
        disks.observe(&[
            live("root", Some("/root.img")),
            live("cd", None),
            live("x", Some(&beside)),
            live("new", Some(&plugged("new"))),
        ]);
        let expected = BTreeMap::from([("new".to_owned(), "sda".to_owned())]);
        assert_eq!(disks.attached(), expected);
    }
}
