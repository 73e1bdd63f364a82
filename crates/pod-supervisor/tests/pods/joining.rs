//! Further programs in a running container.

use pod_supervisor::exec::{ExecRequest, OUTCOME_FILE, Outcome, REQUEST_FILE, Terminal};

use super::*;

/// Runs a command in the pod's container; returns the outcome and the output.
pub(crate) fn exec(pod: &Pod, id: &str, args: &[&str], input: &str) -> (Outcome, String) {
    let dir = request_exec(pod, id, args);
    let mut child = exec_helper(pod, id);
    let mut stdin = child.stdin.take().unwrap();
    // A program that does not read its input may have exited by now.
    drop(std::io::Write::write_all(&mut stdin, input.as_bytes()));
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let outcome = fs::read(dir.join(OUTCOME_FILE)).unwrap();
    (
        serde_json::from_slice(&outcome).unwrap(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

/// Writes the request for a helper; returns the program's directory.
pub(crate) fn request_exec(pod: &Pod, id: &str, args: &[&str]) -> PathBuf {
    let dir = pod.path().join(layout::exec_dir(id));
    fs::create_dir_all(&dir).unwrap();
    let request = ExecRequest {
        container: "main".into(),
        args: args.iter().map(ToString::to_string).collect(),
        terminal: Terminal::None,
    };
    let bytes = serde_json::to_vec(&request).unwrap();
    fs::write(dir.join(REQUEST_FILE), bytes).unwrap();
    dir
}

pub(crate) fn exec_helper(pod: &Pod, id: &str) -> Child {
    Command::new(&pod.program)
        .arg("exec")
        .arg(pod.path())
        .arg(id)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn exec_runs_with_the_containers_settings() {
    let pod = Pod::new("exec");
    let mut container = pod.container("echo mine > /tmp/file; sleep 1000");
    container.env.push("FROM=spec".into());
    pod.start(container);
    pod.wait_for_running();
    let script = "while ! cat /tmp/file; do :; done 2> /dev/null; id -u; id -G; hostname; \
                  echo $FROM; cat; cat /proc/self/status; ls /proc; exit 7";
    let (outcome, text) = exec(&pod, "1", &["sh", "-c", script], "from outside\n");
    assert_eq!(outcome, Outcome::Exited { code: 7 });
    let expected = "mine\n107\n107 4000\nexec\nspec\nfrom outside\n";
    assert!(text.starts_with(expected), "{text}");
    for confined in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(text.contains(confined), "{text}");
    }
    // Only the container's own processes are visible.
    assert!(text.lines().any(|line| line == "1"), "{text}");
    let (outcome, _) = exec(&pod, "2", &["no-such-program"], "");
    let Outcome::Failed { message } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(message.contains("no-such-program"), "{message}");
}

#[test]
fn exec_ends_with_its_helper() {
    let pod = Pod::new("exec-ends");
    pod.start(pod.container("sleep 1000"));
    let main = pod.wait_for_running();
    request_exec(&pod, "1", &["sh", "-c", "echo here; exec sleep 1000"]);
    let mut child = exec_helper(&pod, "1");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "here\n");
    let group = format!("{}/main-0", pod.sandbox.cgroup);
    assert!(cgroup::pids(&group).unwrap().len() > 1);
    let helper = Pid::from_child(&child);
    kill_process(helper, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let deadline = Instant::now() + TIMEOUT;
    while cgroup::pids(&group).unwrap() != [main] {
        assert!(Instant::now() < deadline, "the program still runs");
        std::thread::yield_now();
    }
}
