//! Address leases of the pods, on disk: one small file per pod.
//!
//! **Invariants**: one process at a time holds the folder (by a lock that ends with the process); a
//! lease is synced to disk before it is used, and removed from disk before its address is free;
//! files are written atomically.
//!
//! The address of an owner's last pod is kept for its next one, also across reboots, as long as no other pod
//! needs it.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File},
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use net_plan::MacAddress;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::{
    PodNetworkError,
    senders::{Chosen, Senders},
    settings::{Range, mac_of},
};

const LOCK: &str = "lock";
const SUFFIX: &str = ".json";
/// The addresses kept for owners. Not a lease's name.
const KEPT: &str = "kept-addresses";
/// Suffix of a file that is being written; one found on start was left by a crash.
const PART: &str = durable_file::DRAFT;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) address: Ipv4Addr,
    /// MAC address of the pod's end; constant for the life of the pod.
    pub(crate) mac: String,
    /// Name of the host's end of the veth pair.
    pub(crate) veth: String,
    #[serde(default)]
    pub(crate) senders: Senders,
}

#[derive(Debug)]
pub(crate) struct Leases {
    folder: PathBuf,
    range: Range,
    by_pod: BTreeMap<String, Lease>,
    used: HashSet<Ipv4Addr>,
    /// The address of each owner's last pod; an address has one owner at most.
    kept: BTreeMap<String, Ipv4Addr>,
    /// Where the search for a free address starts: after the last lease, so that a released address
    /// is not reused at once.
    next: u32,
    /// Held for its advisory lock.
    _lock: File,
}

/// Rejects a pod UID that is not safe as a file name.
pub(crate) fn check_uid(uid: &str) -> Result<(), PodNetworkError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=128).contains(&uid.len()) && uid.bytes().all(plain) {
        return Ok(());
    }
    Err(PodNetworkError::BadPodUid {
        uid: uid.chars().take(64).collect(),
    })
}

impl Leases {
    pub(crate) fn open(folder: &Path, range: Range) -> Result<Self, PodNetworkError> {
        let failed = |source| PodNetworkError::State {
            path: folder.to_owned(),
            source,
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::create(folder.join(LOCK)).map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(PodNetworkError::StateLocked {
                    path: folder.to_owned(),
                });
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        let mut leases = Self {
            folder: folder.to_owned(),
            range,
            by_pod: BTreeMap::new(),
            used: HashSet::new(),
            kept: BTreeMap::new(),
            next: 0,
            _lock: lock,
        };
        leases.load()?;
        leases.load_kept()?;
        Ok(leases)
    }

    fn load(&mut self) -> Result<(), PodNetworkError> {
        let entries = fs::read_dir(&self.folder).map_err(|source| self.failed(source))?;
        for entry in entries {
            let entry = entry.map_err(|source| self.failed(source))?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.ends_with(PART)) {
                fs::remove_file(entry.path()).map_err(|source| self.failed(source))?;
                continue;
            }
            let uid = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            let Some(uid) = uid.filter(|uid| check_uid(uid).is_ok()) else {
                continue;
            };
            let bytes = fs::read(entry.path()).map_err(|source| self.failed(source))?;
            match serde_json::from_slice::<Lease>(&bytes) {
                Ok(lease) => self.restore(uid, lease)?,
                Err(error) => {
                    tracing::warn!(uid, %error, "removed an unreadable address lease");
                    fs::remove_file(entry.path()).map_err(|source| self.failed(source))?;
                }
            }
        }
        Ok(())
    }

    /// Losing the file only costs owners their addresses.
    fn load_kept(&mut self) -> Result<(), PodNetworkError> {
        let bytes = match fs::read(self.folder.join(KEPT)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            bytes => bytes.map_err(|source| self.failed(source))?,
        };
        match serde_json::from_slice::<BTreeMap<String, Ipv4Addr>>(&bytes) {
            Ok(mut kept) => {
                kept.retain(|_, address| self.range.holds_pod(*address));
                self.kept = kept;
            }
            Err(error) => tracing::warn!(%error, "ignored an unreadable list of kept addresses"),
        }
        Ok(())
    }

    fn restore(&mut self, uid: &str, lease: Lease) -> Result<(), PodNetworkError> {
        if !self.range.holds_pod(lease.address) {
            return Err(PodNetworkError::StateOfAnotherRange {
                path: self.folder.clone(),
                address: lease.address,
                range: self.range.network,
            });
        }
        self.used.insert(lease.address);
        let offset = lease
            .address
            .to_bits()
            .saturating_sub(self.range.gateway.to_bits());
        self.next = self.next.max(offset);
        self.by_pod.insert(uid.to_owned(), lease);
        Ok(())
    }

    /// The pod's lease, created if it has none.
    pub(crate) fn ensure(&mut self, uid: &str) -> Result<Lease, PodNetworkError> {
        check_uid(uid)?;
        if let Some(lease) = self.by_pod.get(uid) {
            return Ok(lease.clone());
        }
        let (offset, address) = self.free()?;
        let lease = self.create(uid, address)?;
        self.next = offset + 1;
        Ok(lease)
    }

    /// The same for a pod of this owner: it gets the address of the owner's last pod, if it is free.
    pub(crate) fn ensure_of(&mut self, uid: &str, owner: &str) -> Result<Lease, PodNetworkError> {
        check_uid(uid)?;
        if let Some(lease) = self.by_pod.get(uid) {
            return Ok(lease.clone());
        }
        let kept = self.kept.get(owner).copied();
        if let Some(address) = kept.filter(|address| !self.used.contains(address)) {
            return self.create(uid, address);
        }
        let lease = self.ensure(uid)?;
        self.keep(owner, lease.address)?;
        Ok(lease)
    }

    /// Leases the pod an address, and lets its guest send from this hardware address. Pods of one owner may share it.
    pub(crate) fn choose_mac(
        &mut self,
        uid: &str,
        mac: MacAddress,
        owner: Option<&str>,
    ) -> Result<(), PodNetworkError> {
        let lease = self.ensure(uid)?;
        if mac.to_string() == lease.mac {
            return Ok(());
        }
        if !mac.is_unicast() || mac.0.starts_with(&self.range.mac_prefix()) {
            return Err(PodNetworkError::MacReserved { mac });
        }
        let chosen = Chosen::new(mac, owner);
        let mut others = self.by_pod.iter().filter(|(other, _)| *other != uid);
        let is_taken = others.any(|(_, other)| {
            let other = other.senders.chosen();
            other.is_some_and(|other| chosen.conflicts_with(other))
        });
        if is_taken {
            return Err(PodNetworkError::GuestMacInUse { mac });
        }
        let lease = Lease {
            senders: Senders::Guest(chosen),
            ..lease
        };
        if self.by_pod.get(uid) == Some(&lease) {
            return Ok(());
        }
        self.write(uid, &lease)
            .map_err(|source| self.failed(source))?;
        self.by_pod.insert(uid.to_owned(), lease);
        Ok(())
    }

    fn keep(&mut self, owner: &str, address: Ipv4Addr) -> Result<(), PodNetworkError> {
        self.kept.retain(|_, other| *other != address);
        self.kept.insert(owner.to_owned(), address);
        serde_json::to_vec(&self.kept)
            .map_err(io::Error::from)
            .and_then(|bytes| durable_file::replace(&self.folder.join(KEPT), &bytes, 0o644))
            .map_err(|source| self.failed(source))
    }

    fn create(&mut self, uid: &str, address: Ipv4Addr) -> Result<Lease, PodNetworkError> {
        let mut tail = [0; 4];
        rustix::rand::getrandom(&mut tail, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| self.failed(errno.into()))?;
        let lease = Lease {
            address,
            mac: mac_of(address).to_string(),
            veth: format!("veth{:08x}", u32::from_be_bytes(tail)),
            senders: Senders::Own,
        };
        self.write(uid, &lease)
            .map_err(|source| self.failed(source))?;
        self.used.insert(address);
        self.by_pod.insert(uid.to_owned(), lease.clone());
        Ok(lease)
    }

    /// An unused address with its offset; one that is kept for an owner only if there is no other.
    fn free(&self) -> Result<(u32, Ipv4Addr), PodNetworkError> {
        let size = self.range.size();
        let kept: HashSet<Ipv4Addr> = self.kept.values().copied().collect();
        let unused = (0..size)
            .map(|step| (u64::from(self.next) + u64::from(step)) % u64::from(size))
            .filter_map(|offset| u32::try_from(offset).ok())
            .filter_map(|offset| Some((offset, self.range.pod(offset)?)))
            .filter(|(_, address)| !self.used.contains(address));
        let mut last_resort = None;
        for (offset, address) in unused {
            if !kept.contains(&address) {
                return Ok((offset, address));
            }
            last_resort.get_or_insert((offset, address));
        }
        last_resort.ok_or(PodNetworkError::RangeFull {
            range: self.range.network,
            size,
        })
    }

    fn write(&self, uid: &str, lease: &Lease) -> io::Result<()> {
        durable_file::replace(&self.file(uid), &serde_json::to_vec(lease)?, 0o644)
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&Lease> {
        self.by_pod.get(uid)
    }

    /// Removes the lease; a missing one is not an error.
    pub(crate) fn release(&mut self, uid: &str) -> Result<(), PodNetworkError> {
        match fs::remove_file(self.file(uid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed(error)),
            _ => {}
        }
        if let Some(lease) = self.by_pod.remove(uid) {
            self.used.remove(&lease.address);
        }
        Ok(())
    }

    pub(crate) fn pods(&self) -> Vec<String> {
        self.by_pod.keys().cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<Lease> {
        self.by_pod.values().cloned().collect()
    }

    pub(crate) fn veths(&self) -> HashSet<String> {
        self.by_pod
            .values()
            .map(|lease| lease.veth.clone())
            .collect()
    }

    /// Removes the files of this network, and the folder if it is then empty.
    pub(crate) fn erase(&mut self) -> Result<(), PodNetworkError> {
        for uid in self.pods() {
            self.release(&uid)?;
        }
        match fs::remove_file(self.folder.join(LOCK)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed(error)),
            _ => {}
        }
        match fs::remove_dir(&self.folder) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Err(self.failed(error))
            }
            _ => Ok(()),
        }
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("{uid}{SUFFIX}"))
    }

    fn failed(&self, source: io::Error) -> PodNetworkError {
        PodNetworkError::State {
            path: self.folder.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path) -> Leases {
        Leases::open(
            folder,
            Range::parse("10.9.0.0/29".parse().unwrap()).unwrap(),
        )
        .unwrap()
    }

    #[test]
    fn lease_survives_restart_and_is_unique() {
        let folder = tempfile::tempdir().unwrap();
        let mut leases = open(folder.path());
        let first = leases.ensure("a").unwrap();
        let second = leases.ensure("b").unwrap();
        assert_ne!(first.address, second.address);
        assert_eq!(leases.ensure("a").unwrap(), first);
        drop(leases);
        let mut leases = open(folder.path());
        assert_eq!(leases.ensure("b").unwrap(), second);
        let all: Vec<_> = ["c", "d", "e"]
            .map(|uid| leases.ensure(uid).unwrap().address)
            .into();
        assert_eq!(HashSet::<Ipv4Addr>::from_iter(all).len(), 3);
        assert_eq!(leases.ensure("f").unwrap_err().reason(), "PodRangeFull");
        leases.release("a").unwrap();
        leases.release("a").unwrap();
        assert_eq!(leases.ensure("f").unwrap().address, first.address);
    }

    #[test]
    fn owner_keeps_its_address_until_another_pod_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut leases = open(folder.path());
        let first = leases.ensure_of("a", "ns/vm").unwrap();
        assert_eq!(leases.ensure_of("a", "ns/vm").unwrap(), first);
        let second = leases.ensure_of("b", "ns/vm").unwrap();
        assert_ne!(first.address, second.address, "its first pod still runs");
        for uid in ["a", "b"] {
            leases.release(uid).unwrap();
        }
        leases.erase().unwrap();
        drop(leases);
        let mut leases = open(folder.path());
        let others: Vec<Ipv4Addr> = ["c", "d", "e", "f"]
            .map(|uid| leases.ensure(uid).unwrap().address)
            .into();
        assert!(!others.contains(&second.address), "{others:?}");
        let again = leases.ensure_of("g", "ns/vm").unwrap();
        assert_eq!(again.address, second.address);
        leases.release("g").unwrap();
        assert_eq!(leases.ensure("h").unwrap().address, second.address);
        assert!(leases.ensure_of("i", "ns/vm").is_err(), "the range is full");
    }

    #[test]
    fn guest_has_its_hardware_address_for_itself() {
        let folder = tempfile::tempdir().unwrap();
        let mut leases = open(folder.path());
        let mac = MacAddress([2, 0, 0, 0, 0, 9]);
        for (uid, owner, expected) in [
            ("a", Some("ns/vm"), None),
            ("a", Some("ns/vm"), None),
            ("b", Some("ns/vm"), None),
            ("c", Some("ns/other"), Some("NetworkNotJoined")),
            ("c", None, Some("NetworkNotJoined")),
        ] {
            let chosen = leases.choose_mac(uid, mac, owner);
            let found = chosen.err().map(|error| error.reason().to_string());
            assert_eq!(found.as_deref(), expected, "{uid} {owner:?}");
        }
        drop(leases);
        let mut leases = open(folder.path());
        assert_eq!(
            leases.get("a").and_then(|one| one.senders.guest_mac()),
            Some(mac)
        );
        assert!(
            leases.choose_mac("c", mac, None).is_err(),
            "after a restart"
        );
        leases.release("a").unwrap();
        leases.release("b").unwrap();
        leases.choose_mac("c", mac, None).unwrap();

        // Its own is no choice; those of other pods, of the host and of groups are taken.
        let own = leases.ensure("d").unwrap();
        leases
            .choose_mac("d", own.mac.parse().unwrap(), None)
            .unwrap();
        assert_eq!(leases.get("d"), Some(&own));
        let foreign = mac_of(leases.get("c").unwrap().address);
        let host = leases.range.bridge_mac();
        for bad in [
            foreign,
            host,
            MacAddress([3, 0, 0, 0, 0, 1]),
            MacAddress([0; 6]),
        ] {
            let error = leases.choose_mac("d", bad, None).unwrap_err();
            assert_eq!(error.reason(), "NetworkNotJoined", "{bad}");
        }
    }

    #[test]
    fn lease_of_an_earlier_version_is_read() {
        let text = r#"{"address": "10.9.0.2", "mac": "0a:58:0a:09:00:02", "veth": "veth0"}"#;
        let lease: Lease = serde_json::from_str(text).unwrap();
        assert_eq!(lease.senders, Senders::Any);
    }

    #[test]
    fn unreadable_list_of_kept_addresses_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["{", "{\"ns/vm\": \"192.0.2.1\"}"] {
            fs::write(folder.path().join(KEPT), text).unwrap();
            let mut leases = open(folder.path());
            let lease = leases.ensure_of("a", "ns/vm").unwrap();
            assert!(leases.range.holds_pod(lease.address), "{text}");
            leases.release("a").unwrap();
        }
    }

    #[test]
    fn released_address_is_not_reused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut leases = open(folder.path());
        let first = leases.ensure("a").unwrap();
        leases.release("a").unwrap();
        assert_ne!(leases.ensure("b").unwrap().address, first.address);
    }

    #[test]
    fn reused_address_keeps_its_mac() {
        let folder = tempfile::tempdir().unwrap();
        let mut leases = open(folder.path());
        let mut macs = BTreeMap::new();
        for round in 0..3 {
            for pod in 0..5 {
                let lease = leases.ensure(&format!("{round}-{pod}")).unwrap();
                let known = macs.entry(lease.address).or_insert(lease.mac.clone());
                assert_eq!(*known, lease.mac, "{}", lease.address);
            }
            for uid in leases.pods() {
                leases.release(&uid).unwrap();
            }
        }
        let different: HashSet<&String> = macs.values().collect();
        assert_eq!(different.len(), macs.len());
    }

    #[test]
    fn second_process_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let _held = open(folder.path());
        let range = Range::parse("10.9.0.0/29".parse().unwrap()).unwrap();
        let error = Leases::open(folder.path(), range).unwrap_err();
        assert_eq!(error.reason(), "PodNetworkLocked");
    }

    #[test]
    fn malformed_and_foreign_files_are_ignored_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("a.json", "{"),
            ("b.new", "x"),
            ("..json", "{}"),
            ("n.txt", ""),
        ] {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let mut leases = open(folder.path());
        assert!(leases.pods().is_empty());
        assert!(!folder.path().join("b.new").exists());
        leases.ensure("a").unwrap();
        let other = Range::parse("10.8.0.0/29".parse().unwrap()).unwrap();
        drop(leases);
        let error = Leases::open(folder.path(), other).unwrap_err();
        assert_eq!(error.reason(), "PodRangeChanged");
    }

    #[test]
    fn pod_uid_must_be_a_safe_file_name() {
        for bad in ["", ".", "../x", "a/b", "a.b", "a\0"] {
            assert!(check_uid(bad).is_err(), "{bad:?}");
        }
        assert!(check_uid("f741ae22-8952-4f7d-8511-7c2739f234d7").is_ok());
    }
}
