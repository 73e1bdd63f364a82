//! The users of pods with `hostUsers: false`: each pod has 65536 of the host's, which no other pod has.

use std::{collections::BTreeSet, fs, io, path::Path};

use parking_lot::Mutex;
use pod_supervisor::{layout, model::Sandbox, users::IDS};

/// Above what `useradd` gives to the host's own users.
const FIRST: u32 = 1 << 30;

/// Held while a pod gets its users, so that two never get the same.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<()>);

impl Users {
    /// Calls `write`, which must write the sandbox of a pod, with the first of users that no pod in the directory
    /// has.
    pub(crate) fn assign(
        &self,
        pods: &Path,
        write: impl FnOnce(u32) -> io::Result<()>,
    ) -> io::Result<()> {
        let _held = self.0.lock();
        let first = free(&taken(pods)?);
        write(first.ok_or_else(|| io::Error::other("no users are left for a pod"))?)
    }
}

/// The first users of all pods. Of a pod without a sandbox nothing runs.
fn taken(pods: &Path) -> io::Result<BTreeSet<u32>> {
    let mut all = BTreeSet::new();
    for pod in fs::read_dir(pods)? {
        let file = pod?.path().join(layout::SANDBOX_FILE);
        let bytes = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            bytes => bytes?,
        };
        let sandbox: Sandbox = serde_json::from_slice(&bytes)
            .map_err(|error| io::Error::other(format!("read {}: {error}", file.display())))?;
        all.extend(sandbox.first_user);
    }
    Ok(all)
}

fn free(taken: &BTreeSet<u32>) -> Option<u32> {
    let all = (FIRST..=u32::MAX - IDS).step_by(usize::try_from(IDS).ok()?);
    all.into_iter().find(|first| !taken.contains(first))
}

#[cfg(test)]
mod tests {
    use pod_supervisor::model::NetworkMode;

    use super::*;

    fn sandbox(first_user: Option<u32>) -> Vec<u8> {
        let sandbox = Sandbox {
            uid: "u".into(),
            hostname: "h".into(),
            cgroup: "/pod".into(),
            network: NetworkMode::Pod,
            sysctls: [].into(),
            first_user,
            grace_seconds: 1,
        };
        serde_json::to_vec(&sandbox).unwrap()
    }

    #[test]
    fn each_pod_has_users_of_its_own() {
        let pods = tempfile::tempdir().unwrap();
        let users = Users::default();
        let start = |name: &str| {
            let dir = pods.path().join(name);
            fs::create_dir(&dir).unwrap();
            let mut given = 0;
            let write = |first| {
                given = first;
                fs::write(dir.join(layout::SANDBOX_FILE), sandbox(Some(first)))
            };
            users.assign(pods.path(), write).unwrap();
            given
        };
        let of_host = pods.path().join("of-host");
        fs::create_dir(&of_host).unwrap();
        fs::write(of_host.join(layout::SANDBOX_FILE), sandbox(None)).unwrap();
        assert_eq!(start("a"), FIRST);
        assert_eq!(start("b"), FIRST + IDS);
        assert_eq!(start("c"), FIRST + 2 * IDS);
        fs::remove_dir_all(pods.path().join("b")).unwrap();
        assert_eq!(start("d"), FIRST + IDS);
    }

    #[test]
    fn unreadable_sandbox_gives_nobody_its_users() {
        let pods = tempfile::tempdir().unwrap();
        let dir = pods.path().join("a");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(layout::SANDBOX_FILE), "{").unwrap();
        let written = Users::default().assign(pods.path(), |_| Ok(()));
        written.unwrap_err();
    }
}
