//! What runs in the machine: writers that note every acknowledged write on the disk, and the check of what a
//! power cut left.

use std::{
    fmt, fs,
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use embedded_api::{Clock, Database, EmbeddedApi, Identity, ServiceSettings, Settings};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use super::{
    BEGIN, RECORDS_AT,
    records::{self, Record, SECTOR},
};
use crate::printer::Printer;

const WRITERS: u64 = 8;
/// Objects of one writer, written in turn.
const OBJECTS: u64 = 4;
/// Records between two lines of progress.
const PROGRESS: u64 = 1000;
/// What every sector of a record must be aligned to in memory.
const ALIGNMENT: usize = 4096;

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Write until the power is cut.
    Write {
        /// Of the database.
        #[arg(long)]
        directory: PathBuf,
        /// The disk, for the records of acknowledged writes.
        #[arg(long)]
        device: PathBuf,
    },
    /// Look for acknowledged writes in the database.
    Check {
        #[arg(long)]
        directory: PathBuf,
        #[arg(long)]
        acknowledged: PathBuf,
    },
}

/// What a check found, as a line of its output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) acknowledged: usize,
    pub(super) lost: usize,
    pub(super) used_twice: usize,
}

pub(crate) fn run(printer: &Printer, task: &Task) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(Box::pin(async {
        match task {
            Task::Write { directory, device } => write(printer, directory, device).await,
            Task::Check {
                directory,
                acknowledged,
            } => {
                let text = fs::read_to_string(acknowledged).context("read the records")?;
                let records = records::read(&text)?;
                let finding = check(&open(directory).await?, &records).await?;
                Ok(printer.result(finding)?)
            }
        }
    }))
}

async fn open(directory: &Path) -> Result<Api<ConfigMap>> {
    let api = EmbeddedApi::open(Settings {
        database: Database::File(directory.join("api.db")),
        clock: Clock::Wall,
        front_proxy: None,
        kubelet: None,
        services: ServiceSettings::usual(),
    })
    .await
    .context("open the database")?;
    let client: Client = api.client(Identity::component("power-cut"), "default");
    Ok(Api::default_namespaced(client))
}

async fn write(printer: &Printer, directory: &Path, device: &Path) -> Result<()> {
    let api = open(directory).await?;
    let journal = Journal::open(device)?;
    printer.result(BEGIN)?;
    let writers = (0..WRITERS).map(|writer| write_as(printer, &api, &journal, writer));
    try_join_all(writers).await.map(drop)
}

/// Creates its objects, then replaces one after the other.
async fn write_as(
    printer: &Printer,
    api: &Api<ConfigMap>,
    journal: &Journal,
    writer: u64,
) -> Result<()> {
    let mut versions: Vec<Option<String>> = vec![None; usize::try_from(OBJECTS)?];
    for number in 1_u64.. {
        for (object, version) in (0..OBJECTS).zip(&mut versions) {
            let name = format!("{writer}-{object}");
            let map = object_of(&name, number, version.take());
            let written = match number {
                1 => api.create(&PostParams::default(), &map).await,
                _ => api.replace(&name, &PostParams::default(), &map).await,
            };
            let written = written.with_context(|| format!("write {name}"))?;
            let revision = revision(&written)?;
            *version = written.metadata.resource_version;
            let record = Record {
                name,
                revision,
                number,
            };
            let count = tokio::task::block_in_place(|| journal.note(&record))?;
            if count % PROGRESS == 0 {
                printer.result(format_args!("{count} writes acknowledged"))?;
            }
        }
    }
    Ok(())
}

/// Its content follows from its number.
fn object_of(name: &str, number: u64, version: Option<String>) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: version,
            ..ObjectMeta::default()
        },
        data: Some([("number".to_owned(), number.to_string()), filler(number)].into()),
        ..ConfigMap::default()
    }
}

fn filler(number: u64) -> (String, String) {
    let length = usize::try_from(number * 997 % 3000).unwrap_or_default();
    ("filler".to_owned(), "x".repeat(length))
}

fn revision(map: &ConfigMap) -> Result<u64> {
    let version = map.metadata.resource_version.as_deref();
    let version = version.context("an object without a revision")?;
    version.parse().context("understand a revision")
}

/// The records on the disk, written past the page cache in the order of their sectors.
struct Journal {
    device: File,
    next: AtomicU64,
}

impl Journal {
    fn open(device: &Path) -> Result<Self> {
        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits())?;
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(device);
        Ok(Self {
            device: opened.with_context(|| format!("open {}", device.display()))?,
            next: AtomicU64::new(0),
        })
    }

    /// Returns how many there are.
    fn note(&self, record: &Record) -> Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut buffer = vec![0; ALIGNMENT + SECTOR];
        let begin = buffer.as_ptr().align_offset(ALIGNMENT);
        let aligned = buffer.get_mut(begin..begin + SECTOR);
        let aligned = aligned.context("room for a sector")?;
        aligned.copy_from_slice(&record.sector());
        let at = RECORDS_AT + number * SECTOR as u64;
        self.device
            .write_all_at(aligned, at)
            .context("note a write")?;
        Ok(number + 1)
    }
}

/// Every acknowledged write is there, or a later one of the same object; the next write gets a new revision.
async fn check(api: &Api<ConfigMap>, records: &[Record]) -> Result<Finding> {
    let mut finding = Finding {
        acknowledged: records.len(),
        ..Finding::default()
    };
    for (name, last) in records::last_of_each(records) {
        let found = api.get_opt(name).await.context("read an object")?;
        let kept = match &found {
            Some(map) => is_kept(map, last)?,
            None => false,
        };
        finding.lost += usize::from(!kept);
    }
    let probe = object_of("probe", 1, None);
    let probe = api.create(&PostParams::default(), &probe).await;
    let next = revision(&probe.context("write after the cut")?)?;
    finding.used_twice = records
        .iter()
        .filter(|record| record.revision >= next)
        .count();
    Ok(finding)
}

fn is_kept(map: &ConfigMap, last: &Record) -> Result<bool> {
    let data = map.data.clone().unwrap_or_default();
    let number: u64 = match data.get("number") {
        Some(number) => number.parse().context("understand a number")?,
        None => return Ok(false),
    };
    let (key, text) = filler(number);
    let is_whole = data.get(&key) == Some(&text);
    let is_newer = match revision(map)?.cmp(&last.revision) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => number == last.number,
        std::cmp::Ordering::Greater => number > last.number,
    };
    Ok(is_whole && is_newer)
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            acknowledged,
            lost,
            used_twice,
        } = self;
        write!(
            f,
            "acknowledged {acknowledged} lost {lost} used-twice {used_twice}"
        )
    }
}

impl FromStr for Finding {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let [
            "acknowledged",
            acknowledged,
            "lost",
            lost,
            "used-twice",
            used_twice,
        ] = line.split(' ').collect::<Vec<_>>()[..]
        else {
            bail!("{line:?} is no finding");
        };
        Ok(Self {
            acknowledged: acknowledged.parse()?,
            lost: lost.parse()?,
            used_twice: used_twice.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_is_a_line() {
        let finding = Finding {
            acknowledged: 3,
            lost: 2,
            used_twice: 1,
        };
        assert_eq!(finding.to_string().parse::<Finding>().unwrap(), finding);
        "3 writes acknowledged".parse::<Finding>().unwrap_err();
    }

    async fn memory() -> Api<ConfigMap> {
        let api = EmbeddedApi::open(Settings {
            database: Database::Memory,
            clock: Clock::Wall,
            front_proxy: None,
            kubelet: None,
            services: ServiceSettings::usual(),
        });
        let client = api
            .await
            .unwrap()
            .client(Identity::component("test"), "default");
        Api::default_namespaced(client)
    }

    #[tokio::test]
    async fn missing_old_and_altered_objects_are_lost() {
        let api = memory().await;
        let object = object_of("a", 5, None);
        let written = api.create(&PostParams::default(), &object).await.unwrap();
        let now = revision(&written).unwrap();
        for (revision, number, lost) in [
            (now, 5, 0),
            (now, 4, 1),
            (now - 1, 4, 0),
            (now - 1, 5, 1),
            (now + 1, 6, 1),
        ] {
            let record = Record {
                name: "a".to_owned(),
                revision,
                number,
            };
            assert_eq!(is_kept(&written, &record).unwrap(), lost == 0, "{record:?}");
        }
        let missing = Record {
            name: "b".to_owned(),
            revision: u64::MAX,
            number: 1,
        };
        let finding = check(&api, &[missing]).await.unwrap();
        let expected = Finding {
            acknowledged: 1,
            lost: 1,
            used_twice: 1,
        };
        assert_eq!(finding, expected);
    }
}
