use flate2::{Compression, write::GzEncoder};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::{https::Trust, proxy::Proxies};

const DISK: &[u8] = b"the whole disk";

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A response; `cut` leaves bytes of the body out.
fn response(head: &str, body: &[u8], cut: usize) -> Vec<u8> {
    let length = body.len();
    let sent = &body[..length - cut];
    let head = format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), sent].concat()
}

/// The answer to `HEAD` of the disk.
fn about(tag: &str) -> Vec<u8> {
    let length = DISK.len();
    let head = format!("etag: {tag}\r\naccept-ranges: bytes\r\ncontent-length: {length}");
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{head}\r\n\r\n").into_bytes()
}

/// The rest of the disk from there.
fn rest(from: usize) -> Vec<u8> {
    let (last, length) = (DISK.len() - 1, DISK.len());
    let head = format!("206 Partial Content\r\ncontent-range: bytes {from}-{last}/{length}");
    response(&head, &DISK[from..], 0)
}

struct Ended {
    result: Result<(), Failed>,
    requests: Vec<String>,
}

/// Downloads from a server that gives these answers, one for each connection.
async fn download(file: &Path, format: Format, answers: &[Vec<u8>]) -> Ended {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let serve = async {
        let mut requests = vec![];
        for answer in answers {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = vec![];
            while !request.ends_with(b"\r\n\r\n") {
                connection.read_buf(&mut request).await.unwrap();
            }
            connection.write_all(answer).await.unwrap();
            requests.push(String::from_utf8(request).unwrap());
        }
        requests
    };
    let server = Server {
        trust: Trust::default(),
        token: "secret".to_owned(),
        tunnel: None,
        proxies: Proxies::default(),
    };
    let volume = Volume {
        server: &server,
        addresses: Addresses {
            compressed: format!("{base}/disk.img.gz"),
            raw: Some(format!("{base}/disk.img")),
        },
        identity: Identity {
            volume: "tests/VirtualMachine/a/root".to_owned(),
            export: "uid".to_owned(),
        },
        printer: Printer,
    };
    let (result, requests) = tokio::join!(volume.download(file, format), serve);
    Ended { result, requests }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn volume_is_saved_compressed_or_not() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk");
    let compressed = response("200 OK", &packed(DISK), 0);
    let ended = download(&file, Format::Gzip, std::slice::from_ref(&compressed)).await;
    ended.result.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), packed(DISK));
    let request = &ended.requests[0];
    assert!(
        request.contains("x-kubevirt-export-token: secret"),
        "{request}"
    );
    let answers = [about("\"1\""), compressed.clone(), about("\"1\"")];
    let ended = download(&file, Format::Raw, &answers).await;
    ended.result.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), DISK);
    // A server that sends no parts.
    let none = response("404 Not Found", b"", 0);
    let ended = download(&file, Format::Raw, &[none, compressed]).await;
    ended.result.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), DISK);
    assert_eq!(names(directory.path()), ["disk"]);
}

#[tokio::test]
async fn download_that_cannot_go_on_leaves_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk");
    std::fs::write(&file, "old").unwrap();
    let short = response("200 OK", packed(DISK).get(..12).unwrap(), 0);
    let none = response("404 Not Found", b"", 0);
    for (answers, format, transient) in [
        (
            vec![response("200 OK", &packed(DISK), 9)],
            Format::Gzip,
            true,
        ),
        (vec![none, short.clone()], Format::Raw, false),
        (
            vec![about("\"1\""), short, about("\"1\"")],
            Format::Raw,
            false,
        ),
        (vec![response("503 Busy", b"", 0)], Format::Gzip, true),
        (
            vec![response("401 No", b"wrong token", 0)],
            Format::Gzip,
            false,
        ),
        (
            vec![
                about("\"1\""),
                response("200 OK", &packed(b"less"), 0),
                about("\"1\""),
            ],
            Format::Raw,
            false,
        ),
    ] {
        let ended = download(&file, format, &answers).await;
        assert_eq!(
            matches!(ended.result.unwrap_err(), Failed::Transient(_)),
            transient
        );
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["disk"]);
    }
}

/// A download that breaks after the first bytes of the disk.
async fn broken(file: &Path) -> usize {
    // Each byte is a compressed file of its own, so that some of them arrive.
    let packed: Vec<u8> = DISK.iter().flat_map(|byte| packed(&[*byte])).collect();
    let cut = response("200 OK", &packed, packed.len() / 2);
    let answers = [about("\"1\""), cut, about("\"1\"")];
    let ended = download(file, Format::Raw, &answers).await;
    assert!(matches!(ended.result.unwrap_err(), Failed::Transient(_)));
    assert!(!file.exists());
    let name = file.file_name().unwrap().to_str().unwrap();
    let part = std::fs::read(file.with_file_name(format!("{name}.part"))).unwrap();
    assert!(!part.is_empty() && DISK.starts_with(&part), "{part:?}");
    part.len()
}

#[tokio::test]
async fn raw_download_goes_on_with_a_range_of_the_same_version() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk");
    let written = broken(&file).await;
    let answers = [about("\"1\""), rest(written)];
    let ended = download(&file, Format::Raw, &answers).await;
    ended.result.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), DISK);
    let request = &ended.requests[1];
    for part in [
        "GET /disk.img HTTP/1.1".to_owned(),
        format!("range: bytes={written}-"),
        "if-range: \"1\"".to_owned(),
    ] {
        assert!(request.contains(&part), "{part}: {request}");
    }
    assert_eq!(names(directory.path()), ["disk"]);
}

#[tokio::test]
async fn parts_of_two_versions_are_never_mixed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk");
    // The disk is another one in the next run.
    broken(&file).await;
    let compressed = response("200 OK", &packed(DISK), 0);
    let answers = [about("\"2\""), compressed.clone(), about("\"2\"")];
    let ended = download(&file, Format::Raw, &answers).await;
    ended.result.unwrap();
    assert!(ended.requests[1].contains("GET /disk.img.gz "));
    std::fs::remove_file(&file).unwrap();
    // It changes between the question and the request for the rest, or the server sends another part.
    let written = broken(&file).await;
    let whole = response("200 OK", DISK, 0);
    for other in [whole, rest(written + 1)] {
        let ended = download(&file, Format::Raw, &[about("\"1\""), other]).await;
        let error = format!("{:#}", ended.result.unwrap_err().into_error());
        assert_eq!(error, "the disk changed during the download");
        assert!(!file.exists());
    }
    let answers = [about("\"1\""), rest(written)];
    let ended = download(&file, Format::Raw, &answers).await;
    ended.result.unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), DISK);
    // It changes while the first request is answered.
    let answers = [about("\"2\""), compressed, about("\"3\"")];
    let ended = download(&file, Format::Raw, &answers).await;
    assert!(matches!(ended.result.unwrap_err(), Failed::Transient(_)));
    assert_eq!(names(directory.path()), ["disk"]);
}

#[test]
fn version_needs_ranges_a_length_and_a_tag() {
    let server = Server {
        trust: Trust::default(),
        token: String::new(),
        tunnel: None,
        proxies: Proxies::default(),
    };
    let volume = Volume {
        server: &server,
        addresses: Addresses {
            compressed: String::new(),
            raw: None,
        },
        identity: Identity {
            volume: "volume".to_owned(),
            export: "uid".to_owned(),
        },
        printer: Printer,
    };
    let version = |pairs: &[(&'static str, &'static str)]| {
        let headers = pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let version = volume.version_of(&headers.collect())?;
        Some((version.source, version.tag, version.length))
    };
    let (ranges, length) = (("accept-ranges", "bytes"), ("content-length", "8"));
    let time = ("last-modified", "Thu, 26 Nov 2026 04:00:00 GMT");
    let is = |source: &str, tag: &str| Some((source.to_owned(), tag.to_owned(), 8));
    let tag = ("etag", "\"1\"");
    assert_eq!(version(&[ranges, length, tag, time]), is("volume", "\"1\""));
    let weak = ("etag", "W/\"1\"");
    assert_eq!(
        version(&[ranges, length, weak, time]),
        is("volume in uid", time.1)
    );
    for incomplete in [
        &[ranges, length, weak][..],
        &[ranges, tag],
        &[length, tag],
        &[("accept-ranges", "none"), length, tag],
    ] {
        assert_eq!(version(incomplete), None, "{incomplete:?}");
    }
}
