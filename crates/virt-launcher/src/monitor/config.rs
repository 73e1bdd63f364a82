//! The configuration of libvirtd and its QEMU driver: few threads, little memory, and nothing that
//! needs privileges.

use std::io;
use std::path::Path;

use rustix::fs::FsWord;

use crate::file;
use crate::settings::shared_paths;

const LIBVIRTD: &str = r#"log_outputs="3:stderr"
auth_unix_rw="none"
unix_sock_rw_perms="0700"
min_workers=1
max_workers=4
prio_workers=1
admin_min_workers=1
admin_max_workers=1
max_clients=8
max_anonymous_clients=8
max_client_requests=5
audit_level=0
"#;

const QEMU: &str = r#"security_driver="none"
stdio_handler="file"
cgroup_controllers=[]
namespaces=[]
remember_owner=0
dynamic_ownership=0
max_core=0
dump_guest_core=0
max_queued=0
keepalive_interval=-1
"#;

/// Where a pod with huge pages mounts them.
const HUGE_PAGES: &str = "/dev/hugepages";
/// The file system of huge pages.
const HUGETLBFS_MAGIC: FsWord = 0x9584_58f6;

/// Writes both files into libvirt's configuration directory.
pub(crate) fn write_config(dir: &Path) -> io::Result<()> {
    file::replace(&dir.join("libvirtd.conf"), LIBVIRTD.as_bytes())?;
    file::replace(
        &dir.join("qemu.conf"),
        qemu_config(has_huge_pages(), &existing(&shared_paths())).as_bytes(),
    )
}

/// libvirt does not start with a directory that is missing.
fn existing(paths: &str) -> String {
    let all = paths.split(':').filter(|path| Path::new(path).is_dir());
    all.collect::<Vec<_>>().join(":")
}

/// libvirt without privileges searches for no mounts by itself, and refuses to start with one that is
/// missing. What it finds on a file system of one computer it takes for its own, unless it is told that others have it,
/// too: it would refuse to copy the guest, or remove the state of its TPM.
fn qemu_config(has_huge_pages: bool, shared_paths: &str) -> String {
    let mount = has_huge_pages.then(|| format!("hugetlbfs_mount=[\"{HUGE_PAGES}\"]\n"));
    let shared = shared_paths.split(':');
    let quoted: Vec<String> = shared
        .filter(|path| path.starts_with('/') && !path.contains(['"', '\\', '\n']))
        .map(|path| format!("\"{path}\""))
        .collect();
    let shared =
        (!quoted.is_empty()).then(|| format!("shared_filesystems=[{}]\n", quoted.join(",")));
    format!(
        "{QEMU}{}{}",
        mount.unwrap_or_default(),
        shared.unwrap_or_default()
    )
}

fn has_huge_pages() -> bool {
    rustix::fs::statfs(HUGE_PAGES).is_ok_and(|found| found.f_type == HUGETLBFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounted_huge_pages_are_named() {
        assert_eq!(qemu_config(false, ""), QEMU);
        let config = qemu_config(true, "");
        assert!(
            config.ends_with("\nhugetlbfs_mount=[\"/dev/hugepages\"]\n"),
            "{config}"
        );
    }

    #[test]
    fn missing_directories_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().to_str().unwrap();
        assert_eq!(existing(&format!("{there}/none:{there}")), there);
        assert_eq!(existing(""), "");
    }

    #[test]
    fn shared_directories_are_named() {
        let config = qemu_config(false, "/a/nvram:/b/swtpm");
        assert!(
            config.ends_with("\nshared_filesystems=[\"/a/nvram\",\"/b/swtpm\"]\n"),
            "{config}"
        );
        // Nothing but paths gets into the file.
        for bad in ["", "relative", "/a\"]\nuser=\"root", ":"] {
            assert_eq!(qemu_config(false, bad), QEMU, "{bad:?}");
        }
    }
}
