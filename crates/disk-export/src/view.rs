//! Disks of a running guest as they were at one moment: QEMU offers them by NBD at a socket in the claim of their
//! backup.
//!
//! **Invariant**: the socket is that of the backup's directory, which is opened below the claim and without links.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use serde_json::{Value, json};

use crate::body::{CHUNK, Sender};
use crate::nbd::{Client, HOLE, Status, ZERO};

/// The name of the socket in the directory of a backup, as the launcher has it (`launcher_channel::BACKUP_SOCKET`).
const SOCKET: &str = "nbd.sock";
/// How long QEMU may take for one answer. It waits for its storage.
const PATIENCE: Duration = Duration::from_mins(1);
/// How much of the map is requested at a time.
const STRETCH: u64 = 1 << 30;
/// Entries of one answer about the map that does not say how many it wants, as in `KubeVirt`.
pub(crate) const PAGE: usize = 512;
/// The most entries of one answer.
const MOST_ENTRIES: usize = 16 << 10;
/// The most answers of the server for one of ours. A server could describe a disk byte by byte.
const MOST_REQUESTS: usize = 4096;
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// All disks of a backup.
#[derive(Debug)]
pub(crate) struct Views {
    claim: OwnedFd,
    directory: String,
    volumes: BTreeSet<String>,
}

/// One disk, connected.
pub(crate) type View = Client<UnixStream>;

impl Views {
    pub(crate) fn open(
        claim: &Path,
        directory: String,
        volumes: impl IntoIterator<Item = String>,
    ) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            claim: rustix::fs::open(claim, flags, Mode::empty())?,
            directory,
            volumes: volumes.into_iter().collect(),
        })
    }

    pub(crate) fn has(&self, volume: &str) -> bool {
        self.volumes.contains(volume)
    }

    /// Connects to QEMU.
    pub(crate) fn connect(&self, volume: &str) -> io::Result<View> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat2(
            &self.claim,
            self.directory.as_str(),
            flags,
            Mode::empty(),
            BENEATH,
        )?;
        // Addresses of sockets are short, names of backups are not.
        let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Client::open(stream, volume)
    }
}

/// Sends a part of the disk.
pub(crate) fn send(view: &mut View, part: Range<u64>, to: &Sender) -> io::Result<()> {
    let mut at = part.start;
    while at < part.end {
        let length = usize::try_from(part.end - at).unwrap_or(CHUNK).min(CHUNK);
        let mut bytes = BytesMut::zeroed(length);
        view.read(at, &mut bytes)?;
        to.send(bytes.freeze())?;
        at += u64::try_from(length).unwrap_or_default();
    }
    Ok(())
}

/// What a client wants of a disk, by the parameters of the address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) offset: Option<u64>,
    pub(crate) length: Option<u64>,
    pub(crate) page_size: Option<usize>,
}

impl Wanted {
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, String> {
        let mut wanted = Self::default();
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        for (name, value) in pairs.filter(|(_, value)| !value.is_empty()) {
            let invalid = || format!("{name} is no number that is allowed");
            match &*name {
                "offset" => wanted.offset = Some(value.parse().map_err(|_| invalid())?),
                "length" => wanted.length = Some(value.parse().map_err(|_| invalid())?),
                "page_size" => {
                    let size: usize = value.parse().map_err(|_| invalid())?;
                    wanted.page_size = Some(size).filter(|size| *size > 0);
                    wanted.page_size.ok_or_else(invalid)?;
                }
                _ => {}
            }
        }
        Ok(wanted)
    }

    /// Whether it names a part of the disk.
    pub(crate) fn is_part(&self) -> bool {
        self.offset.is_some() || self.length.is_some()
    }

    /// The part of a disk of this size. A length of 0 is all that follows.
    pub(crate) fn part(&self, size: u64) -> Result<Range<u64>, String> {
        let begin = self.offset.unwrap_or_default();
        if begin >= size {
            return Err(format!(
                "offset {begin} is beyond the disk, which has {size} bytes"
            ));
        }
        let end = match self.length {
            None | Some(0) => size,
            Some(length) => begin.saturating_add(length).min(size),
        };
        Ok(begin..end)
    }
}

/// One page of the map, as `KubeVirt`'s export server has it.
pub(crate) fn map<S: Read + Write>(
    view: &mut Client<S>,
    part: Range<u64>,
    page_size: usize,
) -> io::Result<Value> {
    let mut page = Page::new(page_size);
    let mut at = part.start;
    let mut requests = 0_usize;
    while at < part.end {
        if requests == MOST_REQUESTS {
            return Ok(page.render(Some(at)));
        }
        requests += 1;
        let stretch = u32::try_from((part.end - at).min(STRETCH)).map_err(io::Error::other)?;
        for status in view.map(at, stretch)? {
            if !page.add(at, status) {
                return Ok(page.render(Some(at)));
            }
            at = at.saturating_add(u64::from(status.length));
        }
    }
    Ok(page.render(None))
}

/// Entries with their place; neighbours differ.
struct Page {
    most: usize,
    entries: Vec<(u64, u64, u32)>,
}

impl Page {
    fn new(most: usize) -> Self {
        Self {
            most: most.min(MOST_ENTRIES),
            entries: Vec::new(),
        }
    }

    /// Returns whether there was room.
    fn add(&mut self, at: u64, status: Status) -> bool {
        let length = u64::from(status.length);
        if let Some((_, known, flags)) = self.entries.last_mut()
            && *flags == status.flags
        {
            *known = known.saturating_add(length);
            return true;
        }
        if self.entries.len() >= self.most {
            return false;
        }
        self.entries.push((at, length, status.flags));
        true
    }

    fn render(&self, next: Option<u64>) -> Value {
        let entry = |(offset, length, flags): &(u64, u64, u32)| {
            json!({
                "offset": offset, "length": length, "type": flags, "description": description(*flags),
            })
        };
        let entries: Vec<Value> = self.entries.iter().map(entry).collect();
        json!({"extents": entries, "next_offset": next})
    }
}

fn description(flags: u32) -> &'static str {
    const BOTH: u32 = HOLE | ZERO;
    match flags {
        0 => "data",
        HOLE => "hole",
        ZERO => "zero",
        BOTH => "hole,zero",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd_server::{Answers, Scripted};

    #[test]
    fn parameters_name_a_part_of_the_disk() {
        let check = |query: &str, expected: Option<Range<u64>>| {
            let wanted = Wanted::parse(Some(query));
            let found = wanted.and_then(|wanted| wanted.part(100));
            assert_eq!(found.ok(), expected, "{query}");
        };
        check("", Some(0..100));
        check("offset=10", Some(10..100));
        check("offset=10&length=0", Some(10..100));
        check("offset=10&length=20&x=y", Some(10..30));
        check("length=18446744073709551615&offset=1", Some(1..100));
        check("offset=100", None);
        check("offset=-1", None);
        check("offset=1.5", None);
        check("page_size=0", None);
        let page = Wanted::parse(Some("page_size=3")).unwrap();
        assert_eq!((page.page_size, page.is_part()), (Some(3), false));
    }

    /// The server is that of QEMU itself.
    #[tokio::test]
    async fn disk_of_qemu_is_read_with_its_map() {
        let claim = tempfile::tempdir().unwrap();
        let directory = claim.path().join("b-20261127-020000");
        std::fs::create_dir(&directory).unwrap();
        let mut disk = vec![0; 4 << 20];
        disk[..65536].fill(b'a');
        disk[1 << 20..(1 << 20) + 4096].fill(b'b');
        let image = claim.path().join("disk.img");
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(4 << 20).unwrap();
        for (at, length) in [(0, 65536), (1 << 20, 4096)] {
            let bytes = &disk[at..at + length];
            let at = u64::try_from(at).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).unwrap();
        }
        let socket = directory.join(SOCKET);
        let mut server = std::process::Command::new("qemu-nbd")
            .args([
                "--read-only",
                "--format",
                "raw",
                "--persistent",
                "--shared",
                "2",
            ])
            .args(["--export-name", "root", "--socket"])
            .args([&socket, &image])
            .spawn()
            .unwrap();
        let views = Views::open(
            claim.path(),
            "b-20261127-020000".to_owned(),
            ["root".to_owned(), "other".to_owned()],
        )
        .unwrap();
        let deadline = std::time::Instant::now() + PATIENCE;
        let mut view = loop {
            match views.connect("root") {
                Ok(view) => break view,
                Err(error) => {
                    assert!(std::time::Instant::now() < deadline, "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        assert_eq!(view.size(), 4 << 20);
        for (at, length) in [(0, 100_000), ((1 << 20) - 7, 5000), ((4 << 20) - 1, 1)] {
            let mut buffer = vec![7; length];
            view.read(u64::try_from(at).unwrap(), &mut buffer).unwrap();
            assert!(buffer == disk[at..at + length], "{at} {length}");
        }
        let page = map(&mut view, 0..4 << 20, 2).unwrap();
        let extents = page["extents"].as_array().unwrap();
        assert_eq!(extents.len(), 2);
        assert_eq!(
            (&extents[0]["description"], &extents[1]["description"]),
            (&json!("data"), &json!("hole,zero"))
        );
        assert_eq!(page["next_offset"], 1 << 20);
        let missing = views.connect("other").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        drop(view);
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(views.connect("root").is_err());
    }

    /// The client goes on from there, and no request lasts for ever.
    #[test]
    fn page_ends_after_many_answers_of_a_server() {
        let answers = Answers {
            is_grained: true,
            ..Answers::default()
        };
        let mut view = Client::open(Scripted::new(answers), "root").unwrap();
        let page = map(&mut view, 0..1 << 60, PAGE).unwrap();
        let expected = json!([{"offset": 0, "length": 4096, "type": 0, "description": "data"}]);
        assert_eq!(page["extents"], expected);
        assert_eq!(page["next_offset"], 4096);
    }

    #[test]
    fn page_joins_neighbours_and_ends_before_the_next_entry() {
        let mut page = Page::new(2);
        let status = |flags| Status { length: 10, flags };
        assert!(page.add(0, status(0)));
        assert!(page.add(10, status(0)));
        assert!(page.add(20, status(HOLE | ZERO)));
        assert!(page.add(30, status(HOLE | ZERO)));
        assert!(!page.add(40, status(0)));
        let expected = json!({
            "extents": [
                {"offset": 0, "length": 20, "type": 0, "description": "data"},
                {"offset": 20, "length": 20, "type": 3, "description": "hole,zero"},
            ],
            "next_offset": 40,
        });
        assert_eq!(page.render(Some(40)), expected);
        assert_eq!(Page::new(1).render(None)["next_offset"], Value::Null);
    }
}
