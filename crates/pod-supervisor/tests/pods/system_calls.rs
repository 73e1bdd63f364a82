//! The system call filter of containers and of programs that join them.

use pod_supervisor::exec::Outcome;

use super::{joining::exec, *};

const STATUS: &str =
    "/bin/busybox grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status";

fn filtered(pod: &Pod, script: &str, uid: u32, capabilities: &[&str]) -> ContainerSpec {
    let mut container = pod.container(script);
    container.user = User {
        uid,
        gid: uid,
        groups: vec![],
    };
    container.security = Security {
        capabilities: capabilities.iter().map(ToString::to_string).collect(),
        escalation: Escalation::Allowed,
        seccomp: Seccomp::RuntimeDefault,
        isolation: Isolation::Confined,
    };
    container
}

/// What a process with these capabilities has, where it may gain others.
fn status(permitted: u64, bounding: u64) -> [String; 6] {
    [
        format!("CapPrm:\t{permitted:016x}"),
        format!("CapEff:\t{permitted:016x}"),
        format!("CapBnd:\t{bounding:016x}"),
        "CapAmb:\t0000000000000000".to_owned(),
        "NoNewPrivs:\t0".to_owned(),
        "Seccomp:\t2".to_owned(),
    ]
}

#[test]
fn filter_neither_gives_nor_takes_privileges() {
    const CHOWN: u64 = 1;
    for (name, uid, permitted) in [("as-root", 0, CHOWN), ("as-user", 107, 0)] {
        let pod = Pod::new(name);
        let script = format!("{STATUS}; sleep 1000");
        pod.start(filtered(&pod, &script, uid, &["CAP_CHOWN"]));
        let expected = status(permitted, CHOWN);
        assert_eq!(
            pod.log(0, 6),
            expected.clone().map(|line| format!("stdout F {line}"))
        );
        let (outcome, text) = exec(&pod, "1", &["sh", "-c", STATUS], "");
        assert_eq!(outcome, Outcome::Exited { code: 0 });
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn capability_decides_about_calls_that_need_it() {
    let script = "mount -t tmpfs none /tmp 2>/dev/null && echo mounts; \
                  busybox unshare -i /bin/busybox true 2>/dev/null && echo unshares; \
                  busybox chroot / /bin/busybox true 2>/dev/null && echo changes its root; \
                  echo works";
    for (name, capabilities, expected) in [
        (
            "no-admin",
            &["CAP_SYS_CHROOT"][..],
            &["changes its root", "works"][..],
        ),
        (
            "admin",
            &["CAP_SYS_ADMIN"],
            &["mounts", "unshares", "works"],
        ),
    ] {
        let pod = Pod::new(name);
        let (_, log) = pod.run_to_end(filtered(&pod, script, 0, capabilities));
        let expected: Vec<String> = expected
            .iter()
            .map(|line| format!("stdout F {line}"))
            .collect();
        assert_eq!(log, expected);
    }
}
