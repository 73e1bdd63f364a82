//! Which devices containers can use, with both versions of control groups.

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::*;

/// Runs the program where version 2 is the only one. This does not need a host without version 1: the
/// devices of a container are restricted without a controller.
pub(crate) fn with_unified_cgroups(program: &Path) -> Command {
    let script =
        "umount -R -l /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(program);
    command
}

/// Takes back what a container enables at the top of the hierarchy.
pub(crate) fn forget_controllers() {
    for dir in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
        let file = Path::new(dir).join("cgroup.subtree_control");
        for controller in fs::read_to_string(&file)
            .unwrap_or_default()
            .split_whitespace()
        {
            // It may be in use elsewhere.
            drop(fs::write(&file, format!("-{controller}")));
        }
    }
}

const BOTH: [(Host, &str); 2] = [(Host::Real, "real"), (Host::Unified, "unified")];

/// A container whose root user may make device nodes.
fn of_root(pod: &Pod, script: &str) -> ContainerSpec {
    let mut container = pod.container(script);
    container.user = User {
        uid: 0,
        gid: 0,
        groups: vec![],
    };
    container.security.capabilities = vec!["CAP_MKNOD".into(), "CAP_DAC_OVERRIDE".into()];
    container.security.seccomp = Seccomp::Unconfined;
    container
}

fn mount_of(source: &Path, destination: &str) -> Mount {
    Mount {
        source: source.to_owned(),
        destination: destination.into(),
        access: Access::ReadWrite,
    }
}

/// The numbers of a block device of this host, which root of the host can read.
const DISK: &str = "7 0";

#[test]
fn disk_of_the_host_cannot_be_read_by_root_in_a_container() {
    for (host, name) in BOTH {
        let pod = Pod::on(host, &format!("disk-{name}"));
        let script = format!(
            "busybox mknod /dev/disk b {DISK} 2>/dev/null; \
             (: < /dev/disk) 2>/dev/null && echo read the disk; \
             busybox mknod /dev/own c 1 7 && cat < /dev/own | busybox head -c 1 > /tmp/byte && \
             cat < /dev/null && echo devices work",
        );
        let (status, log) = pod.run_to_end(of_root(&pod, &script));
        assert_eq!(log, ["stdout F devices work"], "{name}: {status:?}");
    }
}

#[test]
fn devices_of_the_spec_work_and_read_only_ones_are_only_read() {
    for (host, name) in BOTH {
        let pod = Pod::on(host, &format!("own-{name}"));
        let mut container = of_root(
            &pod,
            "for device in fuse loop; do \
             : < /dev/$device && echo $device is read; (: > /dev/$device) 2>/dev/null && \
             echo $device is written; done",
        );
        let device = |host: &str, path: &str, mode| Device {
            host_path: host.into(),
            path: path.into(),
            mode,
            uid: 0,
            gid: 0,
        };
        container.devices = vec![
            device("/dev/fuse", "/dev/fuse", 0o666),
            device("/dev/loop-control", "/dev/loop", 0o444),
        ];
        let (_, log) = pod.run_to_end(container);
        assert_eq!(
            log,
            [
                "stdout F fuse is read",
                "stdout F fuse is written",
                "stdout F loop is read"
            ],
            "{name}"
        );
    }
}

#[test]
fn privileged_container_uses_every_device() {
    for (host, name) in BOTH {
        let pod = Pod::on(host, &format!("privileged-{name}"));
        let script =
            format!("busybox mknod /tmp/disk b {DISK} && : < /tmp/disk && echo read the disk");
        let mut container = of_root(&pod, &script);
        container.security.isolation = Isolation::Privileged;
        container.security.capabilities = pod_supervisor::capabilities::all();
        let (_, log) = pod.run_to_end(container);
        assert_eq!(log, ["stdout F read the disk"], "{name}");
    }
}

#[test]
fn device_nodes_in_images_and_volumes_do_not_work() {
    let pod = Pod::new("nodes");
    let volume = pod.path().join("volume");
    fs::create_dir(&volume).unwrap();
    for dir in [&volume, &pod.path().join("image")] {
        // A device that every container may use.
        let mode = Mode::from_raw_mode(0o666);
        let full = dir.join("full");
        mknodat(CWD, &full, FileType::CharacterDevice, mode, makedev(1, 7)).unwrap();
    }
    let mut container = of_root(
        &pod,
        "for file in /full /volume/full /host/full /one /dev/full; do \
         (: < $file) 2>/dev/null && echo $file; done",
    );
    container.mounts = vec![
        mount_of(&volume, "/volume"),
        // What comes from the host's own /dev works, as far as the container may use it.
        mount_of("/dev".as_ref(), "/host"),
        mount_of("/dev/full".as_ref(), "/one"),
    ];
    let (_, log) = pod.run_to_end(container);
    assert_eq!(
        log,
        ["stdout F /host/full", "stdout F /one", "stdout F /dev/full"]
    );
}
