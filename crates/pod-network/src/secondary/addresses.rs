//! Leases of the addresses of secondary networks, on disk: one file per network.
//!
//! An address belongs to an owner: all of its pods have it, and it stays with the owner after the last one has
//! ended, as long as no other owner needs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::definition::AddressRange;
use crate::PodNetworkError;

/// The folder of the leases in that of the pod network.
const FOLDER: &str = "secondary";

/// From this number of addresses on, one without pods passes to another owner although others were never
/// leased: the file of a large network must not grow with every pod that ever was.
const MAX_KEPT: usize = 4096;

/// The leases of all networks.
#[derive(Debug)]
pub(crate) struct Addresses {
    folder: PathBuf,
    /// Held while a file is changed. The folder belongs to this process, as that of the pod network.
    writing: Mutex<()>,
}

/// Who has an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Lease {
    /// The pod's owner and the name of the interface.
    owner: String,
    /// More than one while a guest moves between them.
    pods: BTreeSet<String>,
}

type Leases = BTreeMap<Ipv4Addr, Lease>;

impl Addresses {
    pub(crate) fn in_folder(state_dir: &Path) -> Self {
        Self {
            folder: state_dir.join(FOLDER),
            writing: Mutex::new(()),
        }
    }

    /// The address of the pod's interface, whose owner is `owner`, in the network of this name.
    pub(crate) fn ensure(
        &self,
        (network, range): (&str, &AddressRange),
        pod: &str,
        owner: &str,
    ) -> Result<Ipv4Addr, PodNetworkError> {
        let _writing = self.writing.lock();
        let file = self.file(network, range);
        let mut leases = read(&file)?;
        let address = choose(&leases, range, owner);
        let address = address.ok_or_else(|| PodNetworkError::NetworkFull {
            network: network.to_owned(),
            first: range.first,
            last: range.last,
        })?;
        let own = leases.remove(&address).filter(|lease| lease.owner == owner);
        let mut pods = own.map(|lease| lease.pods).unwrap_or_default();
        pods.insert(pod.to_owned());
        // One that is outside of the range by now.
        leases.retain(|_, lease| lease.owner != owner);
        let owner = owner.to_owned();
        leases.insert(address, Lease { owner, pods });
        self.write(&file, &leases)?;
        Ok(address)
    }

    /// Frees the addresses of all pods that are not to be kept.
    pub(crate) fn release(&self, is_kept: impl Fn(&str) -> bool) -> Result<(), PodNetworkError> {
        self.retain(|_, pod| is_kept(pod))
    }

    /// Frees the address of one interface of a pod.
    pub(crate) fn release_of(&self, pod: &str, interface: &str) -> Result<(), PodNetworkError> {
        let end = format!("/{interface}");
        self.retain(|owner, other| other != pod || !owner.ends_with(&end))
    }

    /// Keeps the pods of owners for which `is_kept` holds.
    fn retain(&self, is_kept: impl Fn(&str, &str) -> bool) -> Result<(), PodNetworkError> {
        let _writing = self.writing.lock();
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|source| failed(&self.folder, source))?,
        };
        for entry in entries {
            let file = entry.map_err(|source| failed(&self.folder, source))?.path();
            if file.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let mut leases = read(&file)?;
            let mut is_changed = false;
            for lease in leases.values_mut() {
                let before = lease.pods.len();
                let owner = &lease.owner;
                lease.pods.retain(|pod| is_kept(owner, pod));
                is_changed |= lease.pods.len() != before;
            }
            if is_changed {
                self.write(&file, &leases)?;
            }
        }
        Ok(())
    }

    pub(crate) fn erase(&self) -> Result<(), PodNetworkError> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(&self.folder, error))
            }
            _ => Ok(()),
        }
    }

    fn file(&self, network: &str, range: &AddressRange) -> PathBuf {
        let sum = Sha256::digest(format!("{network} {}", range.subnet));
        let name: String = hex::encode(sum).chars().take(16).collect();
        self.folder.join(format!("{name}.json"))
    }

    fn write(&self, file: &Path, leases: &Leases) -> Result<(), PodNetworkError> {
        fs::create_dir_all(&self.folder).map_err(|source| failed(&self.folder, source))?;
        let written = serde_json::to_vec(leases)
            .map_err(io::Error::from)
            .and_then(|bytes| durable_file::replace(file, &bytes, 0o644));
        written.map_err(|source| failed(file, source))
    }
}

fn read(file: &Path) -> Result<Leases, PodNetworkError> {
    let bytes = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Leases::new()),
        bytes => bytes.map_err(|source| failed(file, source))?,
    };
    serde_json::from_slice(&bytes).map_err(|error| failed(file, error.into()))
}

fn failed(path: &Path, source: io::Error) -> PodNetworkError {
    PodNetworkError::State {
        path: path.to_owned(),
        source,
    }
}

/// The address that the owner has, one that was never leased, or one whose owner has no pods; the last two the
/// other way round if many are kept.
fn choose(leases: &Leases, range: &AddressRange, owner: &str) -> Option<Ipv4Addr> {
    let is_usable = |address: Ipv4Addr| {
        (range.first..=range.last).contains(&address) && address != range.gateway
    };
    let is_free = |lease: &Lease| lease.pods.is_empty();
    let mut known = leases.iter();
    let own = known.find(|(address, lease)| lease.owner == owner && is_usable(**address));
    if let Some((address, _)) = own {
        return Some(*address);
    }
    let all = (range.first.to_bits()..=range.last.to_bits()).map(Ipv4Addr::from_bits);
    let mut unused = all.filter(|address| is_usable(*address) && !leases.contains_key(address));
    let mut kept = leases.iter();
    let mut left = || {
        let left = kept.find(|(address, lease)| is_free(lease) && is_usable(**address));
        left.map(|(address, _)| *address)
    };
    if leases.len() < MAX_KEPT {
        unused.next().or_else(left)
    } else {
        left().or_else(|| unused.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> AddressRange {
        AddressRange {
            subnet: "10.77.0.0/24".parse().unwrap(),
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
            gateway: "10.77.0.1".parse().unwrap(),
        }
    }

    #[test]
    fn owner_keeps_its_address_as_long_as_no_other_pod_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let addresses = Addresses::in_folder(dir.path());
        let range = range("10.77.0.1", "10.77.0.4");
        let ensure = |pod: &str, owner: &str| {
            let address = addresses.ensure(("lan", &range), pod, owner);
            address.map(|address| address.octets()[3])
        };
        let release = |pod: &str| addresses.release(|other| other != pod).unwrap();
        assert_eq!(ensure("p1", "a").unwrap(), 2, "without the gateway");
        assert_eq!(ensure("p1", "a").unwrap(), 2, "the same again");
        assert_eq!(ensure("p1b", "a").unwrap(), 2, "another pod of the guest");
        release("p1b");
        assert_eq!(ensure("p2", "b").unwrap(), 3);
        release("p1");
        assert_eq!(ensure("p3", "c").unwrap(), 4, "one that was never leased");
        assert_eq!(ensure("p4", "a").unwrap(), 2, "that of the last pod");
        assert_eq!(
            ensure("p5", "d").unwrap_err().to_string(),
            "all addresses of network lan from 10.77.0.1 to 10.77.0.4 are in use"
        );
        release("p2");
        assert_eq!(ensure("p5", "d").unwrap(), 3, "the owner of it has ended");
        assert!(ensure("p6", "b").is_err());
        // Another process continues from the disk.
        let again = Addresses::in_folder(dir.path());
        let kept = again.ensure(("lan", &range), "p4", "a").unwrap();
        assert_eq!(kept.octets()[3], 2);
        again.erase().unwrap();
        again.erase().unwrap();
        again.release(|_| false).unwrap();
        assert_eq!(ensure("p7", "e").unwrap(), 2);
    }

    #[test]
    fn address_of_one_interface_is_freed_alone() {
        let dir = tempfile::tempdir().unwrap();
        let addresses = Addresses::in_folder(dir.path());
        let range = range("10.77.0.2", "10.77.0.3");
        for owner in ["ns/a/net1", "ns/a/net2"] {
            addresses.ensure(("lan", &range), "p", owner).unwrap();
        }
        assert!(addresses.ensure(("lan", &range), "q", "ns/b/net1").is_err());
        addresses.release_of("q", "net1").unwrap();
        addresses.release_of("p", "et1").unwrap();
        assert!(addresses.ensure(("lan", &range), "q", "ns/b/net1").is_err());
        addresses.release_of("p", "net1").unwrap();
        let freed = addresses.ensure(("lan", &range), "q", "ns/b/net1").unwrap();
        assert_eq!(freed.octets()[3], 2);
        let kept = addresses.ensure(("lan", &range), "p", "ns/a/net2").unwrap();
        assert_eq!(kept.octets()[3], 3);
    }

    #[test]
    fn number_of_kept_addresses_is_bounded() {
        let lease = |index: usize| Lease {
            owner: format!("o{index}"),
            pods: BTreeSet::new(),
        };
        let range = AddressRange {
            subnet: "10.0.0.0/8".parse().unwrap(),
            first: "10.0.0.2".parse().unwrap(),
            last: "10.255.255.254".parse().unwrap(),
            gateway: "10.0.0.1".parse().unwrap(),
        };
        let addresses = (range.first.to_bits()..).map(Ipv4Addr::from_bits);
        let mut leases: Leases = addresses.zip((0..MAX_KEPT).map(lease)).collect();
        assert_eq!(choose(&leases, &range, "new"), Some(range.first));
        assert_eq!(choose(&leases, &range, "o7"), Some([10, 0, 0, 9].into()));
        for lease in leases.values_mut() {
            lease.pods.insert("p".to_owned());
        }
        let unused = Some([10, 0, 16, 2].into());
        assert_eq!(choose(&leases, &range, "new"), unused, "all are in use");
    }

    #[test]
    fn networks_do_not_share_leases() {
        let dir = tempfile::tempdir().unwrap();
        let addresses = Addresses::in_folder(dir.path());
        let range = range("10.77.0.2", "10.77.0.9");
        for network in ["lan", "other"] {
            let address = addresses.ensure((network, &range), "p", "a").unwrap();
            assert_eq!(address.octets()[3], 2, "{network}");
        }
    }
}
