//! Downloads from a server in this process, on paused time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use reasons::Reason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use url::Url;

use super::*;
use crate::connect::{Connecting, Stream};
use crate::s3::tests::{example_keys, example_time};

const FILE: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// What the server does with one connection.
#[derive(Debug, Clone)]
enum Reply {
    /// The head with the file's length and tag, and as many bytes; then the connection closes.
    Whole { bytes: usize, tag: &'static str },
    /// The same from the requested offset.
    Rest { bytes: usize, tag: &'static str },
    /// The head and as many bytes, then nothing more.
    Hang { bytes: usize },
    /// Any response.
    Raw(String),
    /// No connection.
    Unreachable,
}

use Reply::*;

struct Server {
    replies: Arc<Replies>,
}

/// The script and the requests, shared with the tasks of connections.
#[derive(Default)]
struct Replies {
    script: tokio::sync::Mutex<VecDeque<Reply>>,
    requests: tokio::sync::Mutex<Vec<String>>,
}

impl Connect for Server {
    fn connect<'a>(&'a self, _: &'a Url) -> Connecting<'a> {
        Box::pin(async move {
            let reply = self.replies.script.lock().await.pop_front();
            let reply = reply.expect("a request more than expected");
            if matches!(reply, Unreachable) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let replies = Arc::clone(&self.replies);
            TaskTracker::new().spawn(async move { serve(theirs, reply, &replies).await });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

async fn serve(mut stream: DuplexStream, reply: Reply, replies: &Replies) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let offset = head.split_once("range: bytes=").map_or(0, |(_, rest)| {
        rest.split('-').next().unwrap().parse().unwrap()
    });
    replies.requests.lock().await.push(head);
    let (length, end) = (FILE.len(), FILE.len() - 1);
    let (answer, bytes) = match &reply {
        Whole { bytes, tag } => (
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{tag}\r\n"),
            &FILE[..*bytes],
        ),
        Hang { bytes } => (
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{TAG}\r\n"),
            &FILE[..*bytes],
        ),
        Rest { bytes, tag } => (
            format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n\
                 Content-Range: bytes {offset}-{end}/{length}\r\n{tag}\r\n",
                length - offset
            ),
            &FILE[offset..offset + bytes],
        ),
        Raw(text) => (text.clone(), &FILE[..0]),
        Unreachable => return,
    };
    // The client may be gone.
    drop(stream.write_all(answer.as_bytes()).await);
    drop(stream.write_all(bytes).await);
    if matches!(reply, Hang { .. }) {
        drop(stream.read_u8().await);
    }
}

const TAG: &str = "ETag: \"a\"\r\n";
const OTHER: &str = "ETag: \"b\"\r\n";

fn whole(bytes: usize) -> Reply {
    Whole { bytes, tag: TAG }
}

fn rest(bytes: usize) -> Reply {
    Rest { bytes, tag: TAG }
}

fn raw(head: &str, body: &str) -> Reply {
    Raw(format!("HTTP/1.1 {head}\r\n\r\n{body}"))
}

fn status(status: u16) -> Reply {
    raw(&format!("{status} X\r\nContent-Length: 0"), "")
}

#[derive(Default)]
struct Collect(Vec<u8>);

impl Sink for Collect {
    fn reset(&mut self) -> Result<(), ImportError> {
        self.0.clear();
        Ok(())
    }

    fn push(&mut self, bytes: &[u8], _: Option<u64>) -> Result<(), ImportError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

struct Outcome {
    result: Result<Vec<u8>, ImportError>,
    requests: Vec<String>,
}

async fn fetch_with(open_end: OpenEnd, headers: &[String], script: Vec<Reply>) -> Outcome {
    let source = WebSource::new("http://host/file", None, headers).unwrap();
    fetch_from(&source, open_end, script).await
}

async fn fetch_from(source: &WebSource, open_end: OpenEnd, script: Vec<Reply>) -> Outcome {
    let server = Server {
        replies: Arc::default(),
    };
    *server.replies.script.lock().await = script.into();
    let fetch = Fetch {
        connect: &server,
        source,
        patience: Patience::default(),
        open_end,
    };
    let mut sink = Collect::default();
    let result = fetch.run(&mut sink).await.map(|()| sink.0);
    let left = server.replies.script.lock().await.len();
    assert!(left == 0, "{left} replies were not requested: {result:?}");
    let requests = server.replies.requests.lock().await.clone();
    Outcome { result, requests }
}

async fn fetch(script: Vec<Reply>) -> Outcome {
    fetch_with(OpenEnd::Refused, &[], script).await
}

async fn succeeds(script: Vec<Reply>) -> Vec<String> {
    let shown = format!("{script:?}");
    let outcome = fetch(script).await;
    let found = outcome
        .result
        .unwrap_or_else(|error| panic!("{error:?}: {shown}"));
    assert_eq!(found, FILE, "{shown}");
    outcome.requests
}

async fn fails(script: Vec<Reply>, reason: Reason) {
    let shown = format!("{script:?}");
    let error = fetch(script).await.result.expect_err(&shown);
    assert_eq!(error.reason(), reason, "{error:?}: {shown}");
}

#[tokio::test(start_paused = true)]
async fn download_resumes_where_it_was_interrupted() {
    let requests = succeeds(vec![
        whole(10),
        rest(5),
        Unreachable,
        status(503),
        rest(0),
        rest(FILE.len() - 15),
    ])
    .await;
    let ranges = requests.iter().map(|head| {
        let range = head.split_once("range: bytes=");
        assert_eq!(range.is_some(), head.contains("if-range: \"a\""), "{head}");
        range.map_or("", |(_, rest)| rest.lines().next().unwrap())
    });
    let ranges: Vec<&str> = ranges.collect();
    assert_eq!(ranges, ["", "10-", "15-", "15-", "15-"]);
}

#[tokio::test(start_paused = true)]
async fn silent_server_is_asked_again() {
    let hang = Hang { bytes: 10 };
    succeeds(vec![hang, rest(FILE.len() - 10)]).await;
    succeeds(vec![Hang { bytes: 0 }, whole(FILE.len())]).await;
}

#[tokio::test(start_paused = true)]
async fn versions_of_a_file_are_never_joined() {
    let all = FILE.len();
    // Another version, by 206, by 200 and by 416.
    let other = |bytes| Rest { bytes, tag: OTHER };
    succeeds(vec![whole(10), other(all - 10), whole(all)]).await;
    succeeds(vec![whole(10), whole(all)]).await;
    succeeds(vec![whole(10), status(416), whole(all)]).await;
    // No version at all: it starts again.
    let unnamed = |bytes| Whole { bytes, tag: "" };
    let requests = succeeds(vec![unnamed(10), unnamed(all)]).await;
    assert!(!requests[1].contains("range"), "{}", requests[1]);
    // A file that changes all the time.
    let changing = (0..4).flat_map(|_| [whole(10), other(all - 10)]).collect();
    fails(changing, Reason::ImportSourceChanged).await;
    fails(vec![unnamed(10); 4], Reason::ImportSourceUnreachable).await;
}

#[tokio::test(start_paused = true)]
async fn part_is_never_taken_for_the_whole() {
    let unstated = raw("200 OK\r\nConnection: close", "01234");
    fails(vec![unstated.clone()], Reason::ImportSourceNotUsable).await;
    let accepted = fetch_with(OpenEnd::Accepted, &[], vec![unstated]).await;
    assert_eq!(accepted.result.unwrap(), b"01234");
    // A chunked body has an end.
    let chunks = |end: &str| {
        let body = format!("24\r\n{}\r\n{end}", std::str::from_utf8(FILE).unwrap());
        raw("200 OK\r\nTransfer-Encoding: chunked", &body)
    };
    succeeds(vec![chunks("0\r\n\r\n")]).await;
    succeeds(vec![chunks(""), chunks("0\r\n\r\n")]).await;
    // Less than announced, each time.
    fails(
        [vec![whole(10)], vec![rest(0); 8]].concat(),
        Reason::ImportSourceUnreachable,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn answers_have_their_reasons() {
    for (code, reason) in [
        (404, Reason::ImportSourceNotFound),
        (410, Reason::ImportSourceNotFound),
        (401, Reason::ImportSourceRefused),
        (403, Reason::ImportSourceRefused),
        (400, Reason::ImportSourceNotUsable),
        (204, Reason::ImportSourceNotUsable),
        (206, Reason::ImportSourceNotUsable),
        (304, Reason::ImportSourceNotUsable),
    ] {
        fails(vec![status(code)], reason).await;
    }
    for code in [408, 425, 429, 500, 502, 503, 504] {
        succeeds(vec![status(code), whole(FILE.len())]).await;
    }
    fails(vec![status(503); 9], Reason::ImportSourceUnreachable).await;
    fails(vec![Unreachable; 9], Reason::ImportSourceUnreachable).await;
    fails(
        vec![Raw("nonsense\r\n\r\n".to_owned()); 9],
        Reason::ImportSourceUnreachable,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn redirects_are_followed_without_the_secrets() {
    let redirect = |to: &str| raw(&format!("302 X\r\nLocation: {to}\r\nContent-Length: 0"), "");
    let script = vec![
        redirect("/same"),
        redirect("http://other/file?q"),
        whole(FILE.len()),
    ];
    let headers = ["X-Secret: s".to_owned()];
    let outcome = fetch_with(OpenEnd::Refused, &headers, script).await;
    assert_eq!(outcome.result.unwrap(), FILE);
    let [first, second, third] = outcome.requests.try_into().unwrap();
    assert!(first.contains("x-secret: s") && second.contains("x-secret: s"));
    assert!(second.starts_with("get /same http/1.1"));
    assert!(third.starts_with("get /file?q http/1.1") && third.contains("host: other"));
    assert!(!third.contains("x-secret"), "{third}");

    fails(vec![redirect("file:///x")], Reason::ImportSourceNotUsable).await;
    fails(vec![redirect("/same"); 11], Reason::ImportSourceNotUsable).await;
}

#[tokio::test(start_paused = true)]
async fn every_request_to_the_server_of_a_bucket_is_signed() {
    // Computed with another implementation of the signature.
    const SIGNATURE: &str =
        "signature=9fc5e2e99254aecacff9b3b79931273d30e48a6e2be54d2f39ed9e4b2c2822ce";
    let address = "http://minio.example:9000/images/a disk+(1)/\u{e4}.qcow2?versionId=x/y";
    let keys = example_keys();
    let source = WebSource::in_bucket(address, Some(&keys), example_time).unwrap();
    let script = vec![whole(10), rest(26)];
    let outcome = fetch_from(&source, OpenEnd::Refused, script).await;
    assert_eq!(outcome.result.unwrap(), FILE);
    for request in &outcome.requests {
        let first = "get /images/a%20disk%2b%281%29/%c3%a4.qcow2?versionid=x%2fy http/1.1\r\n";
        assert!(request.starts_with(first), "{request}");
        assert!(
            request.contains("host: minio.example:9000\r\n"),
            "{request}"
        );
        assert!(
            request.contains("x-amz-date: 20130524t000000z\r\n"),
            "{request}"
        );
        assert!(request.contains(SIGNATURE), "{request}");
    }

    let away = raw("302 X\r\nContent-Length: 0\r\nLocation: http://other/x", "");
    let outcome = fetch_from(&source, OpenEnd::Refused, vec![away, whole(36)]).await;
    assert_eq!(outcome.result.unwrap(), FILE);
    assert!(outcome.requests[0].contains("authorization: "));
    assert!(!outcome.requests[1].contains("authorization: "));

    let public = WebSource::in_bucket("s3://images/a", None, example_time).unwrap();
    let outcome = fetch_from(&public, OpenEnd::Refused, vec![whole(36)]).await;
    assert!(!outcome.requests[0].contains("authorization: "));
    assert!(outcome.requests[0].contains("host: s3.amazonaws.com\r\n"));
}
