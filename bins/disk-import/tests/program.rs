//! The whole program: a download over a socket, a conversion within limits, and its report.

#![cfg(test)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;

use import_report::{Report, last_progress};

/// Answers one request with the file, and returns the head of the request.
fn serve(file: Vec<u8>) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/disk", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).unwrap();
        }
        let length = file.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
        )
        .unwrap();
        // The importer stops early if it refuses the file.
        drop(stream.write_all(&file));
        head
    });
    (url, served)
}

fn import(dir: &Path, source: &[&str]) -> (bool, Report, String) {
    let termination_log = dir.join("termination-log");
    let output = Command::new(env!("CARGO_BIN_EXE_disk-import"))
        .args(["--size", "4194304", "--directory"])
        .arg(dir.join("claim"))
        .arg("--scratch")
        .arg(dir.join("scratch"))
        .arg("--termination-log")
        .arg(&termination_log)
        .args(source)
        .output()
        .unwrap();
    let message = fs::read_to_string(termination_log).unwrap();
    let report = Report::read(&message).unwrap_or_else(|| panic!("{message}"));
    let log = String::from_utf8(output.stdout).unwrap();
    (output.status.success(), report, log)
}

fn directories() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("claim")).unwrap();
    fs::create_dir(dir.path().join("scratch")).unwrap();
    dir
}

/// A raw disk and the same as qcow2.
fn disk(dir: &Path) -> (Vec<u8>, Vec<u8>) {
    let (raw, qcow2) = (dir.join("raw"), dir.join("qcow2"));
    let mut disk = vec![0; 2 << 20];
    disk[..1000].fill(7);
    disk[1_500_000..1_600_000].fill(8);
    fs::write(&raw, &disk).unwrap();
    let mut command = Command::new("qemu-img");
    let command = command.args(["convert", "-f", "raw", "-O", "qcow2"]);
    assert!(command.args([&raw, &qcow2]).status().unwrap().success());
    disk.resize(4 << 20, 0);
    (disk, fs::read(qcow2).unwrap())
}

#[test]
fn qcow2_from_a_web_server_becomes_the_disk() {
    let dir = directories();
    let (expected, qcow2) = disk(dir.path());
    let secret = dir.path().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("accessKeyId"), "me").unwrap();
    fs::write(secret.join("secretKey"), "word").unwrap();
    let (url, served) = serve(qcow2);
    let source = ["http", &url, "--credentials", secret.to_str().unwrap()];
    let (success, report, log) = import(dir.path(), &source);
    assert!(success, "{report:?}\n{log}");
    assert_eq!(report.disk_bytes, Some(4 << 20));
    assert_eq!(last_progress(&log), Some("100.0%"));
    assert!(fs::read(dir.path().join("claim/disk.img")).unwrap() == expected);
    let head = served.join().unwrap().to_lowercase();
    assert!(head.contains("authorization: basic bwu6d29yza=="), "{head}");
}

#[test]
fn wrong_checksum_is_reported_and_leaves_nothing() {
    let dir = directories();
    let (_, qcow2) = disk(dir.path());
    let (url, served) = serve(qcow2);
    let checksum = format!("sha256:{}", "0".repeat(64));
    let (success, report, _) = import(dir.path(), &["http", &url, "--checksum", &checksum]);
    served.join().unwrap();
    assert!(!success);
    assert_eq!(report.reason.as_deref(), Some("ImportChecksumMismatch"));
    assert!(!report.transient);
    assert_eq!(fs::read_dir(dir.path().join("claim")).unwrap().count(), 0);
}

#[test]
fn converter_runs_within_limits() {
    // The limits that the program sets for qemu-img, as a shell prints them.
    let output = Command::new(env!("CARGO_BIN_EXE_disk-import"))
        .args(["confined", "1048576", "sh", "-c"])
        .arg("ulimit -f; ulimit -v; ulimit -t; ulimit -n; ulimit -c; grep NoNewPrivs /proc/self/status")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    // A shell counts the length of files in blocks of 512 bytes (dash) or 1024 (bash).
    assert!(["2048", "1024"].contains(&words[0]), "{text}");
    assert_eq!(
        &words[1..],
        ["2097152", "3600", "64", "0", "NoNewPrivs:", "1"]
    );
}
