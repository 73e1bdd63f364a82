//! The server as its clients see it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;

use axum::Router;
use axum::body::Body;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use tempfile::TempDir;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::server::{Export, Server};
use crate::token::{self, TokenFile};
use crate::volume::{Volume, VolumeError};

const MIB: usize = 1 << 20;

struct Running {
    dir: TempDir,
    router: Router,
}

struct Answer {
    code: StatusCode,
    headers: HeaderMap,
    /// None if it broke off.
    body: Option<Vec<u8>>,
}

impl Answer {
    fn header(&self, name: header::HeaderName) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone().unwrap()).unwrap()
    }
}

/// A disk of 40 MiB with data at the beginning, at 30 MiB, and a hole at the end.
fn disk() -> Vec<u8> {
    let mut disk = vec![0; 40 * MIB];
    for (index, byte) in disk.iter_mut().take(MIB + 17).enumerate() {
        *byte = u8::try_from(index % 251).unwrap();
    }
    disk[30 * MIB..30 * MIB + 5].copy_from_slice(b"ferro");
    disk
}

fn write_sparse(path: &Path, disk: &[u8]) {
    let mut file = File::create(path).unwrap();
    for (index, piece) in disk.chunks(MIB).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            let at = u64::try_from(index * MIB).unwrap();
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(piece).unwrap();
        }
    }
    file.set_len(u64::try_from(disk.len()).unwrap()).unwrap();
}

impl Running {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in [
            "disk",
            "files",
            "files/inner",
            "files/lost+found",
            "manifests",
        ] {
            std::fs::create_dir(path(name)).unwrap();
        }
        write_sparse(&path("disk/disk.img"), &disk());
        std::fs::write(path("outside"), "secret").unwrap();
        std::fs::write(path("files/a b"), "first").unwrap();
        std::fs::write(path("files/inner/c"), "second").unwrap();
        symlink("../outside", path("files/link")).unwrap();
        std::fs::write(path("token"), "token").unwrap();
        std::fs::write(path("manifests/internal.yaml"), "kind: VM\n").unwrap();
        std::fs::write(path("manifests/external.json"), "{}").unwrap();
        let export = Export {
            volumes: vec![
                Volume::with_disk("root", &path("disk")).unwrap(),
                Volume::with_files("data", &path("files")).unwrap(),
            ],
            views: None,
            token: TokenFile(path("token")),
            manifests: Some(path("manifests")),
            header_secret: "header-secret".to_owned(),
            run: "1".to_owned(),
        };
        let router = Server::new(export, TaskTracker::new()).router();
        Self { dir, router }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.ok();
        Answer {
            code: parts.status,
            headers: parts.headers,
            body: body.map(|body| body.to_bytes().to_vec()),
        }
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(
            request
                .header(token::NAME, "token")
                .body(Body::empty())
                .unwrap(),
        )
        .await
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[]).await
    }
}

fn unpack(bytes: &[u8]) -> Vec<u8> {
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(bytes)
        .read_to_end(&mut unpacked)
        .unwrap();
    unpacked
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_is_served_raw_and_compressed() {
    let server = Running::start();
    let raw = server.get("/volumes/root/disk.img").await;
    assert_eq!(raw.code, StatusCode::OK);
    assert_eq!(raw.header(header::CONTENT_LENGTH), (40 * MIB).to_string());
    assert!(raw.body.unwrap() == disk(), "the raw disk differs");
    let packed = server.get("/volumes/root/disk.img.gz").await;
    assert_eq!(packed.header(header::CONTENT_TYPE), "application/gzip");
    let packed = packed.body.unwrap();
    assert!(packed.len() < 2 * MIB, "{}", packed.len());
    assert!(unpack(&packed) == disk(), "the compressed disk differs");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_download_is_resumed() {
    let server = Running::start();
    let path = "/volumes/root/disk.img";
    let head = server.ask(Method::HEAD, path, &[]).await;
    assert_eq!(head.header(header::CONTENT_LENGTH), (40 * MIB).to_string());
    assert_eq!(head.header(header::ACCEPT_RANGES), "bytes");
    assert_eq!(head.body.as_deref(), Some(&[][..]));
    let tag = head.header(header::ETAG).to_owned();
    let from = MIB + 3;
    let range = format!("bytes={from}-");
    let wanted = [("range", range.as_str()), ("if-range", &tag)];
    let rest = server.ask(Method::GET, path, &wanted).await;
    assert_eq!(rest.code, StatusCode::PARTIAL_CONTENT);
    let expected = format!("bytes {from}-{}/{}", 40 * MIB - 1, 40 * MIB);
    assert_eq!(rest.header(header::CONTENT_RANGE), expected);
    assert!(rest.body.unwrap() == disk()[from..], "the rest differs");
    // The disk has changed: the client gets all of it.
    let file = File::options()
        .write(true)
        .open(server.dir.path().join("disk/disk.img"));
    file.unwrap().set_len(41 * MIB as u64).unwrap();
    let whole = server.ask(Method::GET, path, &wanted).await;
    assert_eq!(whole.code, StatusCode::OK);
    assert_eq!(whole.body.unwrap().len(), 41 * MIB);
    let beyond = server
        .ask(Method::GET, path, &[("range", "bytes=99999999-")])
        .await;
    assert_eq!(beyond.code, StatusCode::RANGE_NOT_SATISFIABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_without_the_token() {
    let server = Running::start();
    let ask = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        server.send(request).await
    };
    for path in [
        "/volumes/root/disk.img",
        "/volumes/other/disk.img",
        "/volumes/data/dir/",
        "/internal/manifests/all",
        "/internal/manifests/secret",
        "/nothing",
        "/volumes/root/disk.img?x-kubevirt-export-token=tokes",
    ] {
        let answer = ask(path).await;
        assert_eq!(answer.code, StatusCode::UNAUTHORIZED, "{path}");
        assert!(!answer.text().contains("tokes"), "{path}");
    }
    let ready = ask("/exportready").await;
    assert_eq!(ready.code, StatusCode::OK);
    let with_query = ask("/volumes/data/dir/inner/c?x-kubevirt-export-token=token").await;
    assert_eq!(with_query.text(), "second");
    // A changed secret takes effect at once.
    std::fs::write(server.dir.path().join("token"), "other").unwrap();
    let answer = server.get("/volumes/root/disk.img").await;
    assert_eq!(answer.code, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_listed_and_served_within_the_volume() {
    let server = Running::start();
    let moved = server.get("/volumes/data/dir?a=b").await;
    assert_eq!(moved.code, StatusCode::MOVED_PERMANENTLY);
    assert_eq!(moved.header(header::LOCATION), "dir/?a=b");
    let page = server.get("/volumes/data/dir/").await.text();
    assert!(page.contains("<a href=\"./a%20b\">a b</a>"), "{page}");
    assert!(page.contains("<a href=\"./inner/\">inner/</a>"), "{page}");
    let file = server.get("/volumes/data/dir/a%20b").await;
    assert_eq!(file.text(), "first");
    assert_eq!(file.header(header::CONTENT_DISPOSITION), "attachment");
    for path in [
        "/volumes/data/dir/link",
        "/volumes/data/dir/../outside",
        "/volumes/data/dir/a%20b/c",
        "/volumes/data/dir/none",
        "/volumes/data/disk.img",
        "/volumes/root/dir/disk.img",
        "/volumes/root/disk.tar.gz",
        "/volumes/none/disk.img",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.code, StatusCode::NOT_FOUND, "{path}");
    }
    let posted = server
        .ask(Method::POST, "/volumes/root/disk.img", &[])
        .await;
    assert_eq!(posted.code, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_has_all_files_and_follows_no_link() {
    let server = Running::start();
    let long = "n".repeat(150);
    std::fs::write(server.dir.path().join("files/inner").join(&long), "third").unwrap();
    let packed = server.get("/volumes/data/disk.tar.gz").await.body.unwrap();
    let unpacked = unpack(&packed);
    let mut archive = tar::Archive::new(unpacked.as_slice());
    let mut found: Vec<(String, String)> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            if let Some(target) = entry.link_name().unwrap() {
                text = format!("-> {}", target.display());
            }
            (path.trim_end_matches('/').to_owned(), text)
        })
        .collect();
    found.sort();
    let expected = [
        ("a b", "first"),
        ("inner", ""),
        ("inner/c", "second"),
        (&format!("inner/{long}"), "third"),
        ("link", "-> ../outside"),
    ];
    let expected = expected.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_are_for_an_audience_and_in_a_form() {
    let server = Running::start();
    let all = server.get("/internal/manifests/all").await;
    assert_eq!(all.text(), "kind: VM\n");
    let json = [("accept", "application/json")];
    let all = server
        .ask(Method::GET, "/external/manifests/all", &json)
        .await;
    assert_eq!(all.text(), "{}");
    let secret = server.get("/external/manifests/secret").await.text();
    assert!(secret.contains("x-kubevirt-export-token:token"), "{secret}");
}

#[tokio::test(flavor = "multi_thread")]
async fn downloads_are_bounded_and_a_client_that_left_frees_its_place() {
    let server = Running::start();
    let get = async || {
        let request = Request::get("/volumes/root/disk.img").header(token::NAME, "token");
        let request = request.body(Body::empty()).unwrap();
        server.router.clone().oneshot(request).await.unwrap()
    };
    let mut running = Vec::new();
    for _ in 0..8 {
        let response = get().await;
        assert_eq!(response.status(), StatusCode::OK);
        running.push(response);
    }
    let refused = get().await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    drop(running);
    while get().await.status() != StatusCode::OK {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_that_becomes_shorter_breaks_the_download_off() {
    let server = Running::start();
    let path = server.dir.path().join("disk/disk.img");
    // Without holes, so that all of it is read.
    std::fs::write(&path, vec![1; 4 * MIB]).unwrap();
    let request = Request::get("/volumes/root/disk.img").header(token::NAME, "token");
    let request = request.body(Body::empty()).unwrap();
    let response = server.router.clone().oneshot(request).await.unwrap();
    // The producer waits for the client after its first pieces.
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100)
        .unwrap();
    assert!(response.into_body().collect().await.is_err());
}

#[test]
fn volume_without_a_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = Volume::with_disk("a", dir.path()).unwrap_err();
    assert!(matches!(error, VolumeError::NoDisk { .. }), "{error}");
    // A guest's link is not followed.
    symlink("/etc/hostname", dir.path().join("disk.img")).unwrap();
    let error = Volume::with_disk("a", dir.path()).unwrap_err();
    assert!(matches!(error, VolumeError::Disk { .. }), "{error}");
    assert!(Volume::with_files("a", Path::new("/nowhere")).is_err());
}
