//! Devices of resource claims: what their drivers say about them in files of the pod.

use std::{
    io::{self, Read as _},
    os::fd::OwnedFd,
};

use model::{
    AllocatedDevices, METADATA_DIRECTORY, METADATA_SUFFIX, Supported, claimed_device,
    metadata_directory,
};
use rustix::{
    fs::{Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// The pod's own links are followed, since `/var/run` usually is one, within the pod.
const IN_POD: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
/// The most entries of a directory, and bytes of a file.
const MAX_ENTRIES: usize = 64;
const MAX_BYTES: u64 = 64 << 10;

/// A device that its driver does not describe in a way that a guest can use.
#[derive(Debug, thiserror::Error)]
#[error(
    "request {request} of resource claim {claim}: {problem}; ask for one PCI or mediated device of a driver that \
     describes its devices to pods"
)]
pub(crate) struct NotDescribed {
    claim: String,
    request: String,
    problem: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error(transparent)]
    NotDescribed(#[from] NotDescribed),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for ClaimError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// A device of a claim of the guest.
#[derive(Debug)]
pub(super) struct ClaimedDevice {
    claim: String,
    request: String,
    /// Where its driver describes it; `None` if the VMI does not have the claim.
    directory: Option<String>,
}

impl ClaimedDevice {
    /// All of the guest.
    pub(super) fn of(guest: &Supported<'_>) -> Vec<Self> {
        let claims = &guest.vmi.spec.resource_claims;
        let all = guest.device_claims().into_iter();
        all.map(|(claim, request)| Self {
            claim: claim.to_owned(),
            request: request.to_owned(),
            directory: metadata_directory(claims, claim, request),
        })
        .collect()
    }
}

/// Adds the devices of claims. `root` is that of the launcher's container. Blocks, on files that a driver made.
pub(super) fn add(
    allocated: AllocatedDevices,
    devices: &[ClaimedDevice],
    root: &OwnedFd,
) -> Result<AllocatedDevices, ClaimError> {
    let mut all = allocated;
    for ClaimedDevice {
        claim,
        request,
        directory,
    } in devices
    {
        let not_described = |problem: String| NotDescribed {
            claim: claim.clone(),
            request: request.clone(),
            problem,
        };
        let directory = directory.as_ref().ok_or_else(|| {
            not_described(
                "spec.resourceClaims has no claim of this name, or a name is not valid".into(),
            )
        })?;
        let metadata = match read(root, directory)? {
            Found::One(bytes) => bytes,
            Found::Files(count) => {
                let problem = format!("{count} files describe it in the pod");
                return Err(not_described(problem).into());
            }
        };
        let device = claimed_device(&metadata, request)
            .map_err(|invalid| not_described(invalid.to_string()))?;
        all = all.with_claimed(claim, request, device);
    }
    Ok(all)
}

enum Found {
    One(Vec<u8>),
    /// Another number of files than one.
    Files(usize),
}

fn read(root: &OwnedFd, directory: &str) -> Result<Found, ClaimError> {
    let path = format!("{METADATA_DIRECTORY}/{directory}");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = match rustix::fs::openat2(root, path.as_str(), flags, Mode::empty(), IN_POD) {
        Err(Errno::NOENT) => return Ok(Found::Files(0)),
        opened => opened?,
    };
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory)?.take(MAX_ENTRIES) {
        let name = entry?.file_name().to_owned();
        if name.to_bytes().ends_with(METADATA_SUFFIX.as_bytes()) {
            names.push(name);
        }
    }
    let [name] = names.as_slice() else {
        return Ok(Found::Files(names.len()));
    };
    // A file that a driver replaces as a whole may be a link to one beside it.
    let path = format!("{path}/{}", name.to_string_lossy());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat2(root, path.as_str(), flags, Mode::empty(), IN_POD)?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(Found::Files(0));
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file)
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(Found::One(bytes))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use kubevirt_api::VirtualMachineInstance;
    use serde_json::json;

    use super::*;

    const METADATA: &str = r#"{"apiVersion": "metadata.resource.k8s.io/v1alpha1", "requests": [{"name": "r",
        "devices": [{"attributes": {"resource.kubernetes.io/pciBusID": {"string": "0000:81:01.0"}}}]}]}"#;

    fn vmi() -> VirtualMachineInstance {
        let vmi = json!({"spec": {
            "resourceClaims": [{"name": "c", "resourceClaimName": "own"}],
            "domain": {"devices": {"gpus": [{"name": "g", "claimName": "c", "requestName": "r"}]}},
        }});
        serde_json::from_value(vmi).unwrap()
    }

    fn found(root: &Path) -> Result<String, String> {
        let vmi = vmi();
        let guest = Supported::of(&vmi).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = rustix::fs::open(root, flags, Mode::empty()).unwrap();
        let devices = ClaimedDevice::of(&guest);
        let all = add(AllocatedDevices::default(), &devices, &root);
        let all = all.map_err(|error| error.to_string())?;
        Ok(all.of_claim("c", "r").unwrap().to_string())
    }

    #[test]
    fn device_is_read_within_the_pod() {
        let pod = tempfile::tempdir().unwrap();
        let root = pod.path().join("root");
        fs::create_dir_all(root.join("var")).unwrap();
        symlink("/run", root.join("var/run")).unwrap();
        let message = |problem: &str| {
            Err(format!(
                "request r of resource claim c: {problem}; ask for one PCI or mediated device of a driver that \
                 describes its devices to pods"
            ))
        };
        assert_eq!(found(&root), message("0 files describe it in the pod"));
        let directory = root.join("run/kubernetes.io/dra-device-attributes/resourceclaims/own/r");
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("gpu.example.com-metadata.json");
        // A file of the host is none of the pod.
        fs::write(pod.path().join("outside"), METADATA).unwrap();
        symlink("../../../../../../outside", &file).unwrap();
        found(&root).unwrap_err();
        fs::remove_file(&file).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, Mode::RUSR).unwrap();
        assert_eq!(found(&root), message("0 files describe it in the pod"));
        fs::remove_file(&file).unwrap();
        fs::write(&file, METADATA).unwrap();
        assert_eq!(found(&root), Ok("0000:81:01.0".to_owned()));
        fs::write(directory.join("other-metadata.json"), METADATA).unwrap();
        assert_eq!(found(&root), message("2 files describe it in the pod"));
    }
}
