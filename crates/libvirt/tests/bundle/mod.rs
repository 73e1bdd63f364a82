//! Runs a program in the launcher image's root file system, as in a pod: uid 107, no new privileges,
//! its own process, mount, network and IPC namespaces, no host directory but a run directory.
//!
//! The root comes from the image layout `virt-launcher.oci` in `$FERROVIRT_IMAGES` (built by
//! `cargo xtask image launcher`), or is the unpacked tree `$FERROVIRT_LAUNCHER_TREE`. Mounts belong
//! to the bundle's own namespace, so nothing is left on the host.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test crate uses a part of it"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// uid and gid of everything in a launcher's pod.
pub(crate) const UID: u32 = 107;

const SETUP: &str = r#"
set -e
mount --make-rprivate /
mount --bind "$TREE" "$ROOT"
mount -o remount,bind,ro "$ROOT"
mount --bind "$RUN" "$ROOT/run"
mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"
mount -t proc proc "$ROOT/proc"
mount -t sysfs -o ro sysfs "$ROOT/sys" 2>/dev/null || mount --rbind /sys "$ROOT/sys"
mount -t tmpfs -o mode=755 tmpfs "$ROOT/dev"
mkdir "$ROOT/dev/pts" "$ROOT/dev/shm" "$ROOT/dev/net"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$ROOT/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$ROOT/dev/shm"
ln -s pts/ptmx "$ROOT/dev/ptmx"
mknod -m 666 "$ROOT/dev/null" c 1 3
mknod -m 666 "$ROOT/dev/zero" c 1 5
mknod -m 666 "$ROOT/dev/random" c 1 8
mknod -m 666 "$ROOT/dev/urandom" c 1 9
# Certificates of emulated TPMs: a container writes to the directory of its image.
if [ -d "$ROOT/var/lib/swtpm-localca" ]; then
    mount -t tmpfs -o mode=750,uid=107,gid=107 tmpfs "$ROOT/var/lib/swtpm-localca"
fi
if [ -n "$SHARED" ]; then mount --bind "$SHARED" "$ROOT/run/$SHARED_AT"; fi
if [ -n "$KVM" ] && [ -e /dev/kvm ]; then mknod -m 666 "$ROOT/dev/kvm" c 10 232; fi
mount --bind "$ETC/passwd" "$ROOT/etc/passwd"
mount --bind "$ETC/group" "$ROOT/etc/group"
ip link set lo up 2>/dev/null || true
cd "$ROOT"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/private XDG_RUNTIME_DIR=/run \
    XDG_CONFIG_HOME=/run/private XDG_CACHE_HOME=/run/private LANG=C $EXTRA_ENV \
    setpriv --no-new-privs chroot --userspec=107:107 --groups=107 "$ROOT" "$@"
"#;

/// The content of a bundle besides the root.
#[derive(Debug, Default)]
pub(crate) struct Setup<'a> {
    /// Programs copied to `/run/bin`.
    pub(crate) programs: &'a [(&'a str, &'a Path)],
    /// `NAME=value`, without blanks.
    pub(crate) environment: &'a str,
    /// Whether it gets `/dev/kvm`, if the host has it.
    pub(crate) kvm: bool,
    /// A directory of the host that several bundles have, and where it is below `/run`.
    pub(crate) shared: Option<(&'a Path, &'a str)>,
}

/// A running bundle. All its processes are killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Bundle {
    dir: tempfile::TempDir,
    unshare: Child,
}

impl Bundle {
    /// Runs `command` as process 1 of a new bundle.
    pub(crate) fn start(setup: &Setup<'_>, command: &[&str]) -> Self {
        let tree = launcher_tree();
        let dir = tempfile::Builder::new()
            .prefix("fvb")
            .tempdir()
            .expect("create a directory");
        let at = |name: &str| dir.path().join(name);
        for name in [
            "root",
            "run",
            "run/private",
            "run/libvirt",
            "run/kubevirt",
            "run/bin",
            "run/lock",
            "etc",
        ] {
            fs::create_dir(at(name)).expect("create a directory");
            std::os::unix::fs::chown(at(name), Some(UID), Some(UID))
                .expect("change a directory's owner");
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))
            .expect("open a directory");
        let passwd = "root:x:0:0:root:/root:/bin/sh\nqemu:x:107:107:qemu:/run/private:/bin/sh\n";
        fs::write(at("etc/passwd"), passwd).expect("write a file");
        fs::write(at("etc/group"), "root:x:0:\ntty:x:5:\nqemu:x:107:\n").expect("write a file");
        if let Some((_, place)) = setup.shared {
            make_place(&at("run"), Path::new(place));
        }
        for (name, program) in setup.programs {
            fs::copy(program, at("run/bin").join(name)).expect("copy a program");
        }
        let log = fs::File::create(at("log")).expect("create a log");
        let unshare = Command::new("unshare")
            .args([
                "--pid", "--fork", "--mount", "--net", "--ipc", "--uts", "--",
            ])
            .args(["sh", "-c", SETUP, "bundle"])
            .args(command)
            .env("TREE", &tree)
            .env("ROOT", at("root"))
            .env("RUN", at("run"))
            .env("ETC", at("etc"))
            .env("KVM", if setup.kvm { "yes" } else { "" })
            .env("EXTRA_ENV", setup.environment)
            .env("SHARED", setup.shared.map_or(Path::new(""), |(dir, _)| dir))
            .env("SHARED_AT", setup.shared.map_or("", |(_, place)| place))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share a log"))
            .stderr(log)
            .spawn()
            .expect("run unshare");
        Self { dir, unshare }
    }

    /// The bundle's `/run`, as a path on the host.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// The output of all processes in the bundle.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Host process IDs of the bundle's processes with this name, without zombies.
    pub(crate) fn pids(&self, program: &str) -> Vec<i32> {
        let Some(namespace) = self.init().and_then(pid_namespace) else {
            return Vec::new();
        };
        let named = |pid: &i32| {
            let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = status.rsplit(')').next().unwrap_or_default();
            let name = status.split(['(', ')']).nth(1).unwrap_or_default();
            name == program && !after_name.starts_with(" Z")
        };
        let inside = |pid: &i32| pid_namespace(*pid).as_ref() == Some(&namespace);
        all_pids().filter(inside).filter(named).collect()
    }

    /// The host process ID of the bundle's process 1.
    pub(crate) fn init(&self) -> Option<i32> {
        let id = self.unshare.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// The exit code of process 1, once it has ended.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.unshare
            .try_wait()
            .expect("wait for unshare")
            .and_then(|status| status.code())
    }

    /// Waits until `found` returns a value, at most a minute.
    pub(crate) fn wait<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            if let Some(value) = found() {
                return value;
            }
            assert!(
                Instant::now() < deadline,
                "no {what} in time; the log:\n{}",
                self.log()
            );
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if let Some(init) = self.init() {
            kill(init, "KILL");
        } else {
            drop(self.unshare.kill());
        }
        drop(self.unshare.wait());
    }
}

/// Creates the directories of a path, each owned by the bundle's user.
fn make_place(run: &Path, place: &Path) {
    let mut dir = run.to_owned();
    for part in place {
        dir.push(part);
        if !dir.exists() {
            fs::create_dir(&dir).expect("create a directory");
            std::os::unix::fs::chown(&dir, Some(UID), Some(UID))
                .expect("change a directory's owner");
        }
    }
}

/// Sends a signal to a process by its host process ID.
pub(crate) fn kill(pid: i32, signal: &str) {
    let done = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .status();
    assert!(done.is_ok(), "failed to run kill: {done:?}");
}

fn all_pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("read /proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn pid_namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// The unpacked launcher image, unpacked once per image and cached.
fn launcher_tree() -> PathBuf {
    if let Some(tree) = std::env::var_os("FERROVIRT_LAUNCHER_TREE") {
        return tree.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache"),
        PathBuf::from,
    );
    let images = std::env::var_os("FERROVIRT_IMAGES")
        .map_or_else(|| cache.join("ferrovirt/images"), PathBuf::from);
    let layout = images.join("virt-launcher.oci");
    let read = |path: &Path| -> serde_json::Value {
        let text = fs::read(path).unwrap_or_else(|error| {
            panic!(
                "no launcher image ({}: {error}); build it with `cargo xtask image launcher`",
                path.display()
            )
        });
        serde_json::from_slice(&text).expect("the layout holds JSON")
    };
    let blob = |digest: &str| layout.join("blobs").join(digest.replace(':', "/"));
    let digest = |value: &serde_json::Value| value["digest"].as_str().expect("a digest").to_owned();
    let manifest = digest(&read(&layout.join("index.json"))["manifests"][0]);
    let trees = cache.join("ferrovirt/test-trees");
    let tree = trees.join(manifest.replace(':', "-"));
    if tree.exists() {
        return tree;
    }
    fs::create_dir_all(&trees).expect("create the cache");
    let fresh = tempfile::tempdir_in(&trees)
        .expect("create a directory")
        .keep();
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).expect("open a directory");
    for layer in read(&blob(&manifest))["layers"].as_array().expect("layers") {
        let kind = layer["mediaType"].as_str().unwrap_or_default();
        let unpack = if kind.ends_with("zstd") {
            "--zstd"
        } else if kind.ends_with("gzip") {
            "--gzip"
        } else {
            "--no-auto-compress"
        };
        let unpacked = Command::new("tar")
            .args(["--numeric-owner", "-p", unpack, "-xf"])
            .arg(blob(&digest(layer)))
            .arg("-C")
            .arg(&fresh)
            .status();
        assert!(
            unpacked.is_ok_and(|status| status.success()),
            "unpack {layer}"
        );
    }
    // Another test may have unpacked the same tree in the meantime.
    if fs::rename(&fresh, &tree).is_err() {
        fs::remove_dir_all(&fresh).expect("remove the spare tree");
    }
    tree
}
