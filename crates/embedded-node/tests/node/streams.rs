//! Commands in running containers, as `kubectl exec` and `kubectl attach` ask for them.

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

use super::{Home, PATIENCE};

/// The real program, talking to the API server over TLS as a user would.
struct Kubectl<'a> {
    home: &'a Home,
    folder: tempfile::TempDir,
}

impl<'a> Kubectl<'a> {
    fn new(home: &'a Home) -> Self {
        let validity = serving::Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let mut leaf = serving::Leaf::server("localhost", validity);
        leaf.addresses.push([127, 0, 0, 1].into());
        let tls = serving::TlsSource::fixed(
            &home.authority.issue(&leaf).unwrap(),
            &serving::ClientCertificates::Optional(home.authority.trust()),
        )
        .unwrap();
        let listener = home.wait(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let server = serving::Server::new(listener, tls, home.api.router());
        home.runtime.spawn(server.run(home.stop.clone()));
        let user = serving::Leaf::user("ann", &["system:masters"], validity);
        let user = home.authority.issue(&user).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("ca", home.authority.trust().pem().to_owned()),
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
        Self { home, folder }
    }

    /// Exit code and output of both kinds.
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
        let output = self.home.wait(async {
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
fn unmodified_kubectl_runs_commands_and_follows_logs() {
    let home = Home::new("kubectl");
    let script = "echo begin; while ! ls /tmp/go; do sleep 0.01; done 2> /dev/null";
    home.script("k", script, "Never");
    home.wait_phase("k", "Running");
    let kubectl = Kubectl::new(&home);
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
fn unmodified_kubectl_forwards_ports_into_the_pod() {
    let home = Home::new("forward");
    let script = "nc -ll -p 8080 -e echo one more";
    home.script("f", script, "Never");
    home.wait_phase("f", "Running");
    let kubectl = Kubectl::new(&home);
    let mut child = tokio::process::Command::new("kubectl");
    child
        .args(["port-forward", "f", ":8080", ":81"])
        .env("KUBECONFIG", kubectl.folder.path().join("config"))
        .env("HOME", kubectl.folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    home.wait(async {
        let mut child = child.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        // Forwarding from 127.0.0.1:40001 -> 8080, and one for each address and port.
        let mut ports = std::collections::BTreeMap::new();
        while ports.len() < 2 {
            let line = output.next_line().await.unwrap().expect("a line");
            let words: Vec<&str> = line.split_whitespace().collect();
            let here = words[2].rsplit(':').next().unwrap().parse::<u16>().unwrap();
            ports.insert(words[4].to_owned(), here);
        }
        // One after the other, as the program in the pod takes them; it may have to begin anew.
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
fn ports_are_forwarded_by_channels_too() {
    let home = Home::new("channels");
    let script = "nc -ll -p 8080 -e cat";
    home.script("c", script, "Never");
    home.wait_phase("c", "Running");
    let (code, why) = home
        .dial("/portForward/default/c", "v4.channel.k8s.io")
        .unwrap_err();
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(why.contains("at least 1 port"), "{why}");
    let (code, _) = home
        .dial("/portForward/default/other?port=1", "v4.channel.k8s.io")
        .unwrap_err();
    assert_eq!(code, StatusCode::NOT_FOUND);
    let answer = |path: &str, said: &str| {
        let mut socket = home.dial(path, "v4.channel.k8s.io").unwrap();
        home.say(&mut socket, 0, said);
        let mut heard = vec![Vec::new(); 4];
        home.wait(async {
            while let Some(Ok(Message::Binary(bytes))) = socket.next().await {
                heard[usize::from(bytes[0])].extend_from_slice(&bytes[1..]);
                if heard[0].ends_with(b"back") || !heard[3].ends_with(b"\0") && heard[3].len() > 2 {
                    return;
                }
            }
        });
        heard
    };
    let path = "/portForward/default/c?port=8080&port=81";
    let heard = answer(path, "");
    assert_eq!(heard[0][..2], 8080_u16.to_le_bytes());
    // An error may follow: the program need not listen yet.
    assert_eq!(heard[1][..2], 8080_u16.to_le_bytes());
    assert_eq!(heard[2], 81_u16.to_le_bytes());
    let error = String::from_utf8_lossy(&heard[3][2..]).into_owned();
    assert!(error.contains("port 81"), "{error}");
    home.until("the program listens and answers", || {
        let heard = answer("/portForward/default/c?port=8080", "there and back");
        heard[0].ends_with(b"there and back")
    });
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// What a session said, by channel.
#[derive(Debug, Default)]
struct Said {
    output: String,
    error: String,
    verdict: Value,
}

impl Home {
    /// A websocket to the node, or why there is none.
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

    fn say(&self, socket: &mut Socket, channel: u8, text: &str) {
        let mut bytes = vec![channel];
        bytes.extend_from_slice(text.as_bytes());
        self.wait(socket.send(Message::Binary(bytes.into())))
            .unwrap();
    }

    /// Reads until the other side has closed, or until what was said is enough.
    fn hear(&self, socket: &mut Socket, enough: impl Fn(&Said) -> bool) -> Said {
        let mut said = Said::default();
        self.runtime.block_on(async {
            let read = async {
                while let Some(Ok(message)) = socket.next().await {
                    let bytes = message.into_data();
                    let Some((channel, text)) = bytes.split_first() else {
                        continue;
                    };
                    let text = String::from_utf8_lossy(text);
                    match channel {
                        1 => said.output.push_str(&text),
                        2 => said.error.push_str(&text),
                        3 => said.verdict = serde_json::from_str(&text).unwrap(),
                        other => panic!("channel {other}"),
                    }
                    if enough(&said) {
                        return;
                    }
                }
            };
            let heard = timeout(PATIENCE, read).await;
            assert!(heard.is_ok(), "only {said:?}");
        });
        said
    }
}

#[test]
fn command_runs_in_the_container_with_streams_and_exit_code() {
    let home = Home::new("exec");
    home.create("e", json!({"terminationGracePeriodSeconds": 0}));
    let pod = home.wait_phase("e", "Running");
    let path = |script: &str, more: &str| {
        let encoded: Vec<String> = script.bytes().map(|b| format!("%{b:02X}")).collect();
        let script = encoded.concat();
        format!("/exec/default/e/main?command=sh&command=-c&command={script}&{more}")
    };
    let all = "input=1&output=1&error=1";
    let script = path("cat; echo no >&2; exit 3", all);
    let mut socket = home.dial(&script, "v5.channel.k8s.io").unwrap();
    home.say(&mut socket, 0, "to it and back\n");
    home.say(&mut socket, 255, "\0");
    let said = home.hear(&mut socket, |_| false);
    assert_eq!((&*said.output, &*said.error), ("to it and back\n", "no\n"));
    assert_eq!(
        said.verdict["details"]["causes"][0],
        json!({"reason": "ExitCode", "message": "3"})
    );
    // A terminal of the container's own, of the size that the client has.
    let script = path("read go; tty; stty size", "input=1&output=1&tty=1");
    let mut socket = home.dial(&script, "v4.channel.k8s.io").unwrap();
    home.say(&mut socket, 4, r#"{"Width":91,"Height":17}"#);
    home.say(&mut socket, 0, "go\n");
    let said = home.hear(&mut socket, |_| false);
    assert_eq!(said.output, "go\r\n/dev/pts/0\r\n17 91\r\n");
    assert_eq!(said.verdict["status"], "Success");
    // What is wrong is said before or on the channel for it.
    let (code, why) = home.dial(&path("true", all), "channel.k8s.io").unwrap_err();
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(why.contains("kubectl 1.31"), "{why}");
    let gone = "/exec/default/e/other?command=true&output=1";
    let (code, why) = home.dial(gone, "v5.channel.k8s.io").unwrap_err();
    assert_eq!(code, StatusCode::NOT_FOUND, "{why}");
    let missing = "/exec/default/e/main?command=no-such-program&output=1";
    let mut socket = home.dial(missing, "v5.channel.k8s.io").unwrap();
    let said = home.hear(&mut socket, |_| false);
    let why = said.verdict["message"].as_str().unwrap();
    assert!(why.contains("no-such-program"), "{why}");
    // A client that leaves takes its command with it.
    let script = path("echo here; exec sleep 1000", all);
    let mut socket = home.dial(&script, "v5.channel.k8s.io").unwrap();
    home.hear(&mut socket, |said| said.output == "here\n");
    drop(socket);
    let group = format!(
        "{}/pod{}",
        home.cgroup,
        pod.metadata.uid.as_deref().unwrap()
    );
    let main = home.process(&pod).pid;
    home.until("ended", || {
        let pids = pod_supervisor::cgroup::pids(&format!("{group}/main-0")).unwrap();
        pids == [main]
    });
    let left = home.pod_dir(&pod).join("exec");
    home.until("tidied up", || left.read_dir().unwrap().count() <= 1);
    home.delete_and_wait("e");
    home.assert_nothing_left(&pod);
}

#[test]
fn attached_client_sees_what_is_printed_from_then_on() {
    let home = Home::new("attach");
    let script = "echo before; while ! ls /tmp/go; do sleep 0.01; done 2> /dev/null; echo after";
    home.script("a", script, "Never");
    let pod = home.wait_phase("a", "Running");
    home.until("printed", || {
        home.log("/containerLogs/default/a/main").1 == "before\n"
    });
    let path = "/attach/default/a/main?output=1&error=1";
    let mut socket = home.dial(path, "v5.channel.k8s.io").unwrap();
    home.hear(&mut socket, |_| true);
    let go = format!("/proc/{}/root/tmp/go", home.process(&pod).pid);
    std::fs::write(go, "").unwrap();
    let said = home.hear(&mut socket, |_| false);
    assert_eq!(said.output, "/tmp/go\nafter\n");
    assert_eq!(said.verdict["status"], "Success");
    let input = "/attach/default/a/main?input=1&output=1";
    assert!(home.dial(input, "v5.channel.k8s.io").is_err());
}
