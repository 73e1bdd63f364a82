//! Pods whose users are not those of the host.

use std::os::unix::fs::MetadataExt as _;

use pod_supervisor::users::IDS;

use super::*;
use crate::joining::exec;

/// Far from the users of any host; each test has another one.
const FIRST: u32 = (1 << 31) - (1 << 20);

fn pod(name: &str, number: u32) -> Pod {
    Pod::build(Host::Real, name, program(), Some(FIRST + number * IDS))
}

fn of_root(pod: &Pod, script: &str) -> ContainerSpec {
    let mut container = pod.container(script);
    container.user = User {
        uid: 0,
        gid: 0,
        groups: vec![4000],
    };
    container.security.capabilities = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_NET_ADMIN"]
        .map(str::to_owned)
        .into();
    container
}

fn volume(pod: &Pod, secret: &str) -> (PathBuf, Mount) {
    let path = pod.path().join("volume");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("secret"), secret).unwrap();
    fs::set_permissions(path.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let mount = Mount {
        source: path.clone(),
        destination: "/vol".into(),
        access: Access::ReadWrite,
    };
    (path, mount)
}

#[test]
fn root_of_such_a_pod_is_another_user_of_the_host() {
    let pod = pod("users", 1);
    let mut container = of_root(
        &pod,
        "cat /proc/self/uid_map; id -u; id -G; busybox stat -c %u:%g /bin/busybox; cat /vol/secret; \
         echo written > /vol/mine; echo over > /bin/new; echo message > /dev/termination-log; \
         ip link set lo down && echo the network is its own; \
         (: < /dev/own) && echo devices work; echo 1 > /proc/sys/kernel/sysrq; ls /dev/null; echo ready; sleep 1000",
    );
    let (path, mount) = volume(&pod, "of the pod\n");
    container.mounts = vec![mount];
    container.devices = vec![Device {
        host_path: "/dev/zero".into(),
        path: "/dev/own".into(),
        mode: 0o666,
        uid: 0,
        gid: 0,
    }];
    pod.start(container);
    let pid = pod.wait_for_running();
    let log = pod.log(0, 10);
    let first = FIRST + IDS;
    assert_eq!(fs::metadata(format!("/proc/{pid}")).unwrap().uid(), first);
    let map: Vec<&str> = log[0].split_whitespace().skip(2).collect();
    assert_eq!(map, ["0", &first.to_string(), "65536"]);
    let text = log.join("\n");
    for expected in [
        "F 0\n",
        "F 0 4000\n",
        "F 0:0\n",
        "F of the pod\n",
        "F the network is its own\n",
        "F devices work\n",
        "can't create /proc/sys/kernel/sysrq",
        "F /dev/null\n",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
    // On the disk, files of a volume belong to the users as the pod sees them.
    assert_eq!(fs::metadata(path.join("mine")).unwrap().uid(), 0);
    let written = pod.path().join("containers/main/0/upper/bin/new");
    assert_eq!(fs::metadata(written).unwrap().uid(), first);
    let message = pod.path().join("containers/main/termination-log");
    assert_eq!(fs::read_to_string(message).unwrap(), "message\n");
}

#[test]
fn other_users_of_such_a_pod_are_mapped_as_well() {
    let pod = pod("mapped", 2);
    let mut container = pod
        .container("id -u; id -G; cat /vol/secret 2>&1; touch /tmp/file; echo ready; sleep 1000");
    let (_, mount) = volume(&pod, "of root\n");
    container.mounts = vec![mount];
    pod.start(container);
    let log = pod.log(0, 4);
    assert_eq!(log[..2], ["stdout F 107", "stdout F 107 4000"]);
    assert!(log[2].contains("Permission denied"), "{log:?}");
    let file = pod.path().join("containers/main/0/upper/tmp/file");
    assert_eq!(fs::metadata(file).unwrap().uid(), FIRST + 2 * IDS + 107);
}

#[test]
fn restarted_supervisor_finds_the_users_again() {
    let mut pod = pod("again", 3);
    let mut container = of_root(
        &pod,
        "while ! ls /tmp/go 2> /dev/null; do sleep 0.01; done; exit 3",
    );
    container.restart = RestartPolicy::OnFailure;
    pod.start(container);
    let before = pod.wait_for_running();
    let first = FIRST + 3 * IDS;

    pod.kill_supervisor();
    pod.supervise();
    fs::write(format!("/proc/{before}/root/tmp/go"), "").unwrap();
    let next = pod.wait_for("second attempt", |one| {
        one.attempt == 1 && matches!(one.state, State::Running { .. })
    });
    let State::Running { process, .. } = next.state else {
        unreachable!()
    };
    let process = format!("/proc/{}", process.pid);
    assert_eq!(fs::metadata(process).unwrap().uid(), first);
}

#[test]
fn user_that_the_pod_does_not_have_is_named() {
    let pod = pod("none", 4);
    let mut container = pod.container("id");
    container.user.uid = 70_000;
    let (status, _) = pod.run_to_end(container);
    let message = &termination(&status).message;
    assert!(
        message.contains("user or group 70000 does not exist in this pod"),
        "{message}"
    );
}

/// Prints who the program is, and the lines of its status about privileges.
const SELF: &str = "id -u; id -G; cat /proc/self/uid_map; \
                    while read -r line; do case $line in Cap*|NoNew*|Seccomp:*) echo \"$line\";; esac; done < \
                    /proc/self/status";

#[test]
fn further_program_is_the_same_user_with_the_same_privileges() {
    for (number, name, uid, escalation, seccomp) in [
        (
            5,
            "exec-root",
            0,
            Escalation::Allowed,
            Seccomp::RuntimeDefault,
        ),
        (
            6,
            "exec-user",
            107,
            Escalation::Denied,
            Seccomp::RuntimeDefault,
        ),
        (7, "exec-free", 0, Escalation::Denied, Seccomp::Unconfined),
    ] {
        let pod = pod(name, number);
        let mut container = of_root(&pod, &format!("{SELF}; echo end; sleep 1000"));
        container.user.uid = uid;
        container.security.escalation = escalation;
        container.security.seccomp = seccomp;
        pod.start(container);
        pod.wait_for_running();
        let first = pod.log(0, 11);
        let (end, first) = first.split_last().unwrap();
        assert_eq!(end, "stdout F end");
        let first: Vec<&str> = first
            .iter()
            .map(|line| line.strip_prefix("stdout F ").unwrap())
            .collect();
        let (outcome, text) = exec(&pod, "1", &["sh", "-c", SELF], "");
        assert_eq!(outcome, pod_supervisor::exec::Outcome::Exited { code: 0 });
        assert_eq!(text.lines().collect::<Vec<_>>(), first, "{name}");
        assert!(text.contains(&(FIRST + number * IDS).to_string()), "{text}");
    }
}

#[test]
fn terminal_of_such_a_pod_belongs_to_its_user() {
    let pod = pod("tty-users", 9);
    let mut container = pod.container("id -u; echo out > /dev/stdout; exit 3");
    container.terminal = pod_supervisor::model::Terminal::Own;
    let (status, log) = pod.run_to_end(container);
    assert_eq!(termination(&status).exit_code, 3, "{log:?}");
    assert_eq!(log, ["stdout F 107", "stdout F out"]);
}
