//! The program under its other name: it serves a disk over TLS until its time is over.

#![cfg(test)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use axum::body::{Body, to_bytes};
use http::{Request, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use serving::{Authority, HttpsClient, Leaf, Target, Trust, Validity};
use tempfile::TempDir;
use tokio_util::task::TaskTracker;

const NAME: &str = "virt-export-a.b.svc";
const MIB: usize = 1 << 20;

/// A running server; it ends with the test.
struct Server {
    dir: TempDir,
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    port: u16,
    trust: Trust,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.child.kill().is_ok();
        let _waited = self.child.wait().is_ok();
    }
}

fn disk() -> Vec<u8> {
    let mut disk = vec![0; 8 * MIB];
    for (index, byte) in disk.iter_mut().take(3 * MIB).enumerate() {
        *byte = u8::try_from(index % 253).unwrap();
    }
    disk
}

/// With an authority that the client trusts, and for that long.
fn start(seconds: i64) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("volume")).unwrap();
    fs::write(path("volume/disk.img"), disk()).unwrap();
    fs::write(path("token"), "secret").unwrap();
    let now = Timestamp::now();
    let validity = Validity::starting(now, SignedDuration::from_hours(1));
    let authority = Authority::create("test", validity).unwrap();
    let identity = authority.issue(&Leaf::server(NAME, validity)).unwrap();
    identity.save(&path("tls.crt"), &path("tls.key")).unwrap();
    let program = path("disk-export");
    symlink(env!("CARGO_BIN_EXE_disk-import"), &program).unwrap();
    let until = now + SignedDuration::from_secs(seconds);
    let mut child = Command::new(program)
        .args(["--port", "0", "--until", &until.to_string()])
        .arg("--certificate")
        .arg(dir.path())
        .arg("--token")
        .arg(path("token"))
        .arg(format!("--disk=root={}", path("volume").display()))
        .arg("--termination-log")
        .arg(path("end"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let port = line.trim().strip_prefix("ready on port ");
    Server {
        port: port.expect(&line).parse().unwrap(),
        trust: authority.trust(),
        dir,
        child,
        output,
    }
}

impl Server {
    async fn get(&self, token: &str, range: &str) -> (StatusCode, Vec<u8>) {
        let client = HttpsClient::new(&self.trust, None, TaskTracker::new()).unwrap();
        let target = Target {
            address: format!("127.0.0.1:{}", self.port),
            server_name: NAME.to_owned(),
        };
        let request = Request::get("/volumes/root/disk.img")
            .header("x-kubevirt-export-token", token)
            .header(header::RANGE, range)
            .body(Body::empty())
            .unwrap();
        let response = client.send(&target, request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(Body::new(body), 16 * MIB).await.unwrap();
        (parts.status, body.to_vec())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_is_served_by_tls_to_those_with_the_token() {
    let server = start(3600);
    let (code, whole) = server.get("secret", "bytes=0-").await;
    assert_eq!(code, StatusCode::PARTIAL_CONTENT);
    assert!(whole == disk(), "the disk differs");
    let (_, rest) = server.get("secret", "bytes=3000000-").await;
    assert!(rest == disk()[3_000_000..], "the rest differs");
    let (code, _) = server.get("secre", "bytes=0-").await;
    assert_eq!(code, StatusCode::UNAUTHORIZED);
}

#[test]
fn server_ends_when_its_time_is_over() {
    let mut server = start(2);
    let mut line = String::new();
    server.output.read_line(&mut line).unwrap();
    assert_eq!(line, "the export has ended\n");
    assert!(server.child.wait().unwrap().success());
    let end = fs::read_to_string(server.dir.path().join("end")).unwrap();
    assert_eq!(end, "the export has ended");
}

#[test]
fn volume_without_a_disk_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("disk-export");
    symlink(env!("CARGO_BIN_EXE_disk-import"), &program).unwrap();
    let end = dir.path().join("end");
    let status = Command::new(program)
        .args(["--until", "2100-01-01T00:00:00Z", "--token", "/t"])
        .args(["--certificate", "/c"])
        .arg(format!("--disk=root={}", dir.path().display()))
        .arg("--termination-log")
        .arg(&end)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success());
    let end = fs::read_to_string(end).unwrap();
    assert_eq!(end, "volume root has no disk (disk.img)");
}
