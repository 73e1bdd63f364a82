//! Where on a node the disks of `hostDisk` volumes may be.
//!
//! `KubeVirt` has no such setting; it is not part of the `KubeVirt` object. A disk has to be directly in a
//! directory that the administrator named: below it, a directory could have been replaced by a link.

/// Where host disks may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostDisks {
    /// As on a cluster: any file that the rules about owners permit.
    Anywhere,
    /// Directly in one of these directories.
    In(Vec<String>),
}

impl HostDisks {
    /// What to do instead, if a disk may not have this path.
    pub fn refusal(&self, path: &str) -> Option<String> {
        let Self::In(directories) = self else {
            return None;
        };
        let (directory, file) = path.rsplit_once('/')?;
        let is_file = !matches!(file, "" | "." | "..");
        let mut all = directories.iter();
        if is_file && all.any(|one| one.trim_end_matches('/') == directory) {
            return None;
        }
        let remedy = if directories.is_empty() {
            "the administrator has to name one: `ferrovirt up --host-disks DIR`".to_owned()
        } else {
            format!("use a file directly in {}", directories.join(" or "))
        };
        Some(format!(
            "{path:?} is not in a directory for host disks; {remedy}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_is_directly_in_a_named_directory() {
        let check = |directories: &[&str], path: &str, expected: Option<&str>| {
            let directories = directories.iter().map(|one| (*one).to_owned()).collect();
            let found = HostDisks::In(directories).refusal(path);
            let is_expected = match (&found, expected) {
                (Some(found), Some(expected)) => found.contains(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{path}: {found:?}");
        };
        let two = ["/srv/disks", "/data/"];
        let use_one = "use a file directly in /srv/disks or /data/";
        check(&two, "/srv/disks/a.img", None);
        check(&two, "/data/a.img", None);
        for path in [
            "/srv/disks/below/a.img",
            "/srv/disks/../a.img",
            "/srv/disks/..",
            "/srv/disks/",
            "/srv/disks",
            "/srv/disks2/a.img",
            "/etc/shadow",
            "/a.img",
        ] {
            check(&two, path, Some(use_one));
        }
        check(&[], "/data/a.img", Some("ferrovirt up --host-disks DIR"));
        assert_eq!(HostDisks::Anywhere.refusal("/etc/shadow"), None);
    }
}
