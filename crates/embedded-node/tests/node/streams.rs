//! `kubectl exec`, `attach`, `logs` and `port-forward` on running containers.

use std::process::Stdio;

use futures::{SinkExt as _, StreamExt as _};
use http::{Request, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use super::{Environment, TIMEOUT};

/// The real program, connected to the API server over TLS.
struct Kubectl<'a> {
    env: &'a Environment,
    folder: tempfile::TempDir,
}

impl<'a> Kubectl<'a> {
    fn new(env: &'a Environment) -> Self {
        let validity = serving::Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let mut leaf = serving::Leaf::server("localhost", validity);
        leaf.addresses.push([127, 0, 0, 1].into());
        let tls = serving::TlsSource::fixed(
            &env.authority.issue(&leaf).unwrap(),
            &serving::ClientCertificates::Optional(env.authority.trust()),
        )
        .unwrap();
        let listener = env.wait(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let server = serving::Server::new(listener, tls, env.api.router());
        env.runtime.spawn(server.run(env.stop.clone()));
        let user = serving::Leaf::user("ann", &["system:masters"], validity);
        let user = env.authority.issue(&user).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("ca", env.authority.trust().pem().to_owned()),
            ("certificate", user.certificate_pem().to_owned()),
            ("key", user.key_pem().to_owned()),
        ] {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://{address}"), "certificate-authority": "ca"}}],
            "users": [{"name": "u", "user": {
                "client-certificate": "certificate", "client-key": "key"}}],
        });
        std::fs::write(folder.path().join("config"), config.to_string()).unwrap();
        Self { env, folder }
    }

    /// Returns exit code, standard output and standard error.
    fn run(&self, arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
        let mut child = tokio::process::Command::new("kubectl");
        child
            .args(arguments)
            .env("KUBECONFIG", self.folder.path().join("config"))
            .env("HOME", self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let output = self.env.wait(async {
            let mut child = child.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(input.as_bytes()).await.unwrap();
            drop(stdin);
            child.wait_with_output().await.unwrap()
        });
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }
}

#[test]
fn kubectl_runs_commands_and_follows_logs() {
    let env = Environment::new("kubectl");
    let script = "echo begin; while ! ls /tmp/go; do sleep 0.01; done 2> /dev/null";
    env.script("k", script, "Never");
    env.wait_phase("k", "Running");
    let kubectl = Kubectl::new(&env);
    let script = "cat; echo no >&2; exit 3";
    let (code, output, errors) = kubectl.run(
        &["exec", "-i", "k", "--", "sh", "-c", script],
        "there and back\n",
    );
    assert_eq!((code, &*output), (Some(3), "there and back\n"), "{errors}");
    assert!(errors.starts_with("no\n"), "{errors}");
    let (code, output, _) = kubectl.run(&["exec", "k", "--", "id", "-u"], "");
    assert_eq!((code, &*output), (Some(0), "0\n"));
    let (code, _, errors) = kubectl.run(&["exec", "k", "--", "no-such-program"], "");
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("no-such-program"), "{errors}");
    let (code, _, errors) = kubectl.run(&["exec", "k", "-c", "other", "--", "true"], "");
    assert_eq!(code, Some(1));
    assert!(errors.contains("other"), "{errors}");
    kubectl.run(&["exec", "k", "--", "touch", "/tmp/go"], "");
    let (code, output, _) = kubectl.run(&["logs", "-f", "k"], "");
    assert_eq!((code, &*output), (Some(0), "begin\n/tmp/go\n"));
}

#[test]
fn kubectl_forwards_ports_to_the_pod() {
    let env = Environment::new("forward");
    let script = "nc -ll -p 8080 -e echo one more";
    env.script("f", script, "Never");
    env.wait_phase("f", "Running");
    let kubectl = Kubectl::new(&env);
    let mut child = tokio::process::Command::new("kubectl");
    child
        .args(["port-forward", "f", ":8080", ":81"])
        .env("KUBECONFIG", kubectl.folder.path().join("config"))
        .env("HOME", kubectl.folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    env.wait(async {
        let mut child = child.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        // Forwarding from 127.0.0.1:40001 -> 8080, and one for each address and port.
        let mut ports = std::collections::BTreeMap::new();
        while ports.len() < 2 {
            let line = output.next_line().await.unwrap().expect("a line");
            let fields: Vec<&str> = line.split_whitespace().collect();
            let local = fields[2].rsplit(':').next().unwrap();
            ports.insert(fields[4].to_owned(), local.parse::<u16>().unwrap());
        }
        // Sequentially, as the server in the pod takes one connection at a time and may restart.
        for _ in 0..2 {
            let mut text = String::new();
            while text.is_empty() {
                let mut stream = TcpStream::connect(("127.0.0.1", ports["8080"]))
                    .await
                    .unwrap();
                stream.read_to_string(&mut text).await.unwrap();
            }
            assert_eq!(text, "one more\n");
        }
        let mut stream = TcpStream::connect(("127.0.0.1", ports["81"]))
            .await
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "");
        loop {
            let line = errors.next_line().await.unwrap().expect("a line");
            if line.contains("error forwarding port 81 to pod") {
                assert!(line.contains("127.0.0.1:81"), "{line}");
                break;
            }
        }
        child.kill().await.unwrap();
    });
}

#[test]
fn ports_are_forwarded_by_channels() {
    let env = Environment::new("channels");
    let script = "nc -ll -p 8080 -e cat";
    env.script("c", script, "Never");
    env.wait_phase("c", "Running");
    let (code, message) = env
        .dial("/portForward/default/c", "v4.channel.k8s.io")
        .unwrap_err();
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(message.contains("at least 1 port"), "{message}");
    let (code, _) = env
        .dial("/portForward/default/other?port=1", "v4.channel.k8s.io")
        .unwrap_err();
    assert_eq!(code, StatusCode::NOT_FOUND);
    let exchange = |path: &str, text: &str| {
        let mut socket = env.dial(path, "v4.channel.k8s.io").unwrap();
        env.send(&mut socket, 0, text);
        let mut received = vec![Vec::new(); 4];
        env.wait(async {
            while let Some(Ok(Message::Binary(bytes))) = socket.next().await {
                received[usize::from(bytes[0])].extend_from_slice(&bytes[1..]);
                if received[0].ends_with(b"back")
                    || !received[3].ends_with(b"\0") && received[3].len() > 2
                {
                    return;
                }
            }
        });
        received
    };
    let path = "/portForward/default/c?port=8080&port=81";
    let received = exchange(path, "");
    assert_eq!(received[0][..2], 8080_u16.to_le_bytes());
    // An error may follow, as the server may not listen yet.
    assert_eq!(received[1][..2], 8080_u16.to_le_bytes());
    assert_eq!(received[2], 81_u16.to_le_bytes());
    let error = String::from_utf8_lossy(&received[3][2..]).into_owned();
    assert!(error.contains("port 81"), "{error}");
    env.until("answered", || {
        let received = exchange("/portForward/default/c?port=8080", "there and back");
        received[0].ends_with(b"there and back")
    });
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The output of a session, by channel.
#[derive(Debug, Default)]
struct SessionOutput {
    stdout: String,
    stderr: String,
    status: Value,
}

impl Environment {
    /// Opens a websocket to the node, or returns the refusal.
    fn dial(&self, path: &str, protocol: &str) -> Result<Socket, (StatusCode, String)> {
        let (client, target) = self.kubelet_client();
        let request = Request::get(path)
            .header(header::UPGRADE, "websocket")
            .header(header::CONNECTION, "Upgrade")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==")
            .header(header::SEC_WEBSOCKET_PROTOCOL, protocol)
            .body(axum::body::Body::empty())
            .unwrap();
        self.wait(async {
            let mut response = client.send(&target, request).await.unwrap();
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                let code = response.status();
                let body = axum::body::Body::new(response.into_body());
                let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
                return Err((code, String::from_utf8(bytes.to_vec()).unwrap()));
            }
            assert_eq!(response.headers()[header::SEC_WEBSOCKET_PROTOCOL], protocol);
            let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
            Ok(Socket::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
        })
    }

    fn send(&self, socket: &mut Socket, channel: u8, text: &str) {
        let mut bytes = vec![channel];
        bytes.extend_from_slice(text.as_bytes());
        self.wait(socket.send(Message::Binary(bytes.into())))
            .unwrap();
    }

    /// Receives until the node closes the connection or `enough` holds.
    fn receive(
        &self,
        socket: &mut Socket,
        enough: impl Fn(&SessionOutput) -> bool,
    ) -> SessionOutput {
        let mut output = SessionOutput::default();
        self.runtime.block_on(async {
            let read = async {
                while let Some(Ok(message)) = socket.next().await {
                    let bytes = message.into_data();
                    let Some((channel, text)) = bytes.split_first() else {
                        continue;
                    };
                    let text = String::from_utf8_lossy(text);
                    match channel {
                        1 => output.stdout.push_str(&text),
                        2 => output.stderr.push_str(&text),
                        3 => output.status = serde_json::from_str(&text).unwrap(),
                        other => panic!("channel {other}"),
                    }
                    if enough(&output) {
                        return;
                    }
                }
            };
            let ended = timeout(TIMEOUT, read).await;
            assert!(ended.is_ok(), "only {output:?}");
        });
        output
    }
}

#[test]
fn exec_has_streams_terminal_and_exit_code() {
    let env = Environment::new("exec");
    env.create("e", json!({"terminationGracePeriodSeconds": 0}));
    let pod = env.wait_phase("e", "Running");
    let path = |script: &str, more: &str| {
        let encoded: Vec<String> = script.bytes().map(|b| format!("%{b:02X}")).collect();
        let script = encoded.concat();
        format!("/exec/default/e/main?command=sh&command=-c&command={script}&{more}")
    };
    let all = "input=1&output=1&error=1";
    let script = path("cat; echo no >&2; exit 3", all);
    let mut socket = env.dial(&script, "v5.channel.k8s.io").unwrap();
    env.send(&mut socket, 0, "to it and back\n");
    env.send(&mut socket, 255, "\0");
    let output = env.receive(&mut socket, |_| false);
    assert_eq!(
        (&*output.stdout, &*output.stderr),
        ("to it and back\n", "no\n")
    );
    assert_eq!(
        output.status["details"]["causes"][0],
        json!({"reason": "ExitCode", "message": "3"})
    );
    // A terminal with the size of the client's.
    let script = path("read go; tty; stty size", "input=1&output=1&tty=1");
    let mut socket = env.dial(&script, "v4.channel.k8s.io").unwrap();
    env.send(&mut socket, 4, r#"{"Width":91,"Height":17}"#);
    env.send(&mut socket, 0, "go\n");
    let output = env.receive(&mut socket, |_| false);
    assert_eq!(output.stdout, "go\r\n/dev/pts/0\r\n17 91\r\n");
    assert_eq!(output.status["status"], "Success");
    // Errors are returned as a response or on the error channel.
    let (code, message) = env
        .dial(&path("true", all), "v9.channel.k8s.io")
        .unwrap_err();
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(
        message.contains("use one of v5.channel.k8s.io") && !message.contains("SPDY"),
        "{message}"
    );
    // The oldest protocol reports nothing after a success.
    let mut socket = env
        .dial(&path("echo old", "output=1&error=1"), "channel.k8s.io")
        .unwrap();
    let output = env.receive(&mut socket, |_| false);
    assert_eq!((&*output.stdout, output.status), ("old\n", Value::Null));
    let gone = "/exec/default/e/other?command=true&output=1";
    let (code, message) = env.dial(gone, "v5.channel.k8s.io").unwrap_err();
    assert_eq!(code, StatusCode::NOT_FOUND, "{message}");
    let missing = "/exec/default/e/main?command=no-such-program&output=1";
    let mut socket = env.dial(missing, "v5.channel.k8s.io").unwrap();
    let output = env.receive(&mut socket, |_| false);
    let message = output.status["message"].as_str().unwrap();
    assert!(message.contains("no-such-program"), "{message}");
    // The command ends when its client disconnects.
    let script = path("echo here; exec sleep 1000", all);
    let mut socket = env.dial(&script, "v5.channel.k8s.io").unwrap();
    env.receive(&mut socket, |output| output.stdout == "here\n");
    drop(socket);
    let group = format!("{}/pod{}", env.cgroup, pod.metadata.uid.as_deref().unwrap());
    let main = env.process(&pod).pid;
    env.until("ended", || {
        let pids = pod_supervisor::cgroup::pids(&format!("{group}/main-0")).unwrap();
        pids == [main]
    });
    let dirs = env.pod_dir(&pod).join("exec");
    env.until("tidied up", || dirs.read_dir().unwrap().count() <= 1);
    env.delete_and_wait("e");
    env.assert_no_leftovers(&pod);
}

#[test]
fn attached_client_gets_future_output() {
    let env = Environment::new("attach");
    let script = "echo before; while ! ls /tmp/go; do sleep 0.01; done 2> /dev/null; echo after";
    env.script("a", script, "Never");
    let pod = env.wait_phase("a", "Running");
    env.until("printed", || {
        env.log("/containerLogs/default/a/main").1 == "before\n"
    });
    let path = "/attach/default/a/main?output=1&error=1";
    let mut socket = env.dial(path, "v5.channel.k8s.io").unwrap();
    env.receive(&mut socket, |_| true);
    let go = format!("/proc/{}/root/tmp/go", env.process(&pod).pid);
    std::fs::write(go, "").unwrap();
    let output = env.receive(&mut socket, |_| false);
    assert_eq!(output.stdout, "/tmp/go\nafter\n");
    assert_eq!(output.status["status"], "Success");
    let input = "/attach/default/a/main?input=1&output=1";
    assert!(env.dial(input, "v5.channel.k8s.io").is_err());
}

#[test]
fn attached_client_writes_to_standard_input() {
    let env = Environment::new("stdin");
    for (name, once) in [("once", true), ("open", false)] {
        let script = "while read line; do echo got $line; done; echo end";
        env.create(
            name,
            json!({
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
                    "stdin": true, "stdinOnce": once,
                }],
            }),
        );
        let pod = env.wait_phase(name, "Running");
        let path = format!("/attach/default/{name}/main?input=1&output=1&error=1");
        let mut socket = env.dial(&path, "v5.channel.k8s.io").unwrap();
        env.send(&mut socket, 0, "a\n");
        env.receive(&mut socket, |output| output.stdout == "got a\n");
        env.send(&mut socket, 255, "\0");
        if once {
            let output = env.receive(&mut socket, |_| false);
            assert_eq!(output.stdout, "end\n");
            env.wait_phase(name, "Succeeded");
        } else {
            drop(socket);
            let mut again = env.dial(&path, "v5.channel.k8s.io").unwrap();
            env.send(&mut again, 0, "b\n");
            env.receive(&mut again, |output| output.stdout == "got b\n");
            assert!(env.process(&pod).is_alive());
        }
    }
}

#[test]
fn attached_client_uses_the_terminal_of_the_container() {
    let env = Environment::new("terminal");
    let script =
        "tty; while printf '$ ' && read line; do [ $line = bye ] && exit 0; stty size; done";
    env.create(
        "shell",
        json!({
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
                "stdin": true, "stdinOnce": true, "tty": true,
            }],
        }),
    );
    env.wait_phase("shell", "Running");
    let path = "/attach/default/shell/main?input=1&output=1&tty=1";
    let mut socket = env.dial(path, "v5.channel.k8s.io").unwrap();
    // The prompt has no end of a line.
    env.send(&mut socket, 4, r#"{"Width":91,"Height":17}"#);
    env.send(&mut socket, 0, "a\n");
    env.receive(&mut socket, |output| output.stdout.ends_with("17 91\r\n$ "));
    // The terminal stays when a client leaves.
    drop(socket);
    let mut again = env.dial(path, "v5.channel.k8s.io").unwrap();
    env.send(&mut again, 0, "b\n");
    env.receive(&mut again, |output| output.stdout.ends_with("17 91\r\n$ "));
    env.send(&mut again, 0, "bye\n");
    let output = env.receive(&mut again, |_| false);
    assert_eq!(output.status["status"], "Success");
    env.wait_phase("shell", "Succeeded");
    let log = env.log("/containerLogs/default/shell/main").1;
    assert!(log.starts_with("/dev/pts/0\n"), "{log:?}");
    assert_eq!(log.matches("17 91\n").count(), 2, "{log:?}");
    assert!(log.ends_with("$ bye\n"), "{log:?}");
}
