//! Sends the file to the upload proxy.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::{Stream, stream};
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Either, Empty, Limited, StreamBody};
use hyper::body::Frame;
use tokio::{fs::File, io::AsyncReadExt};

use crate::{
    https::{self, Trust, Unanswered},
    printer::Printer,
    proxy::Proxies,
};

/// The proxy answers when all data is there; processing goes on.
const ASYNCHRONOUS: &str = "/v1beta1/upload-async";
/// The proxy answers when the data is processed.
const SYNCHRONOUS: &str = "/v1beta1/upload";
/// Bytes of a read of the file.
const CHUNK: usize = 256 << 10;
/// How often the progress is shown.
const SHOWN: Duration = Duration::from_millis(200);
/// The longest message of the proxy.
const MESSAGE: usize = 64 << 10;

/// An upload proxy.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    pub(super) url: String,
    pub(super) insecure: bool,
    /// Certificates to check it with, as PEM; those of the system if there are none.
    pub(super) authorities: Option<String>,
    /// Those between this computer and it.
    pub(super) proxies: Proxies,
}

/// Why the file did not arrive.
#[derive(Debug)]
pub(super) enum NotSent {
    /// The connection broke or the proxy is not ready; another attempt may succeed.
    Transient(anyhow::Error),
    Final(anyhow::Error),
}

/// Sends the whole file once.
pub(super) async fn send(
    proxy: &Proxy,
    token: &str,
    file: &Path,
    printer: Printer,
) -> Result<(), NotSent> {
    let opened = File::open(file).await;
    let file_error = || format!("read {}", file.display());
    let opened = opened.with_context(file_error).map_err(NotSent::Final)?;
    let metadata = opened
        .metadata()
        .await
        .with_context(file_error)
        .map_err(NotSent::Final)?;
    let size = metadata.len();
    // Old proxies have only the synchronous path.
    let path = match request(proxy, Method::HEAD, ASYNCHRONOUS, token, None).await? {
        (StatusCode::OK, _) => ASYNCHRONOUS,
        _ => SYNCHRONOUS,
    };
    let sent = Arc::new(AtomicU64::new(0));
    let body = (opened, size, Arc::clone(&sent));
    let sending = request(proxy, Method::POST, path, token, Some(body));
    tokio::pin!(sending);
    let mut ticks = tokio::time::interval(SHOWN);
    let (code, message) = loop {
        tokio::select! {
            response = &mut sending => break response,
            _ = ticks.tick() => printer.progress("Uploading", sent.load(Ordering::Relaxed), size),
        }
    }?;
    if code.is_success() {
        printer.progress("Uploading", size, size);
        printer.end_of_progress();
        return Ok(());
    }
    printer.end_of_progress();
    let message = message.trim();
    let error = anyhow::anyhow!("the upload proxy {} answered {code}: {message}", proxy.url);
    Err(if code.is_server_error() {
        NotSent::Transient(error)
    } else {
        NotSent::Final(error)
    })
}

async fn request(
    proxy: &Proxy,
    method: Method,
    path: &str,
    token: &str,
    body: Option<(File, u64, Arc<AtomicU64>)>,
) -> Result<(StatusCode, String), NotSent> {
    let url = format!("{}{path}", proxy.url.trim_end_matches('/'));
    let uri: Uri = url
        .parse()
        .with_context(|| format!("parse the address of the upload proxy {url}"))
        .map_err(NotSent::Final)?;
    let trust = Trust {
        insecure: proxy.insecure,
        authorities: proxy.authorities.clone(),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::AUTHORIZATION, format!("Bearer {token}"));
    let body = match body {
        None => Either::Left(Empty::<Bytes>::new()),
        Some((file, size, sent)) => {
            request = request
                .header(header::CONTENT_TYPE, "application/octet-stream")
                .header(header::CONTENT_LENGTH, size);
            Either::Right(StreamBody::new(Box::pin(chunks(file, sent))))
        }
    };
    let request = request
        .body(body)
        .context("make the request")
        .map_err(NotSent::Final)?;
    let response = https::send(&trust, &proxy.proxies, request).await;
    let response = response.map_err(|unanswered| match unanswered {
        Unanswered::Unprepared(error) => NotSent::Final(error),
        Unanswered::Broken(error) => {
            NotSent::Transient(error.context(format!("reach the upload proxy {}", proxy.url)))
        }
    })?;
    let code = response.status();
    let body = Limited::new(response.into_body(), MESSAGE).collect().await;
    // The code alone decides; a cut message is no further failure.
    let message = body
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    Ok((code, String::from_utf8_lossy(&message).into_owned()))
}

/// The content of the file; counts the bytes that the connection took.
fn chunks(
    file: File,
    sent: Arc<AtomicU64>,
) -> impl Stream<Item = std::io::Result<Frame<Bytes>>> + Send {
    stream::try_unfold(file, move |mut file| {
        let sent = Arc::clone(&sent);
        async move {
            let mut chunk = vec![0; CHUNK];
            let count = file.read(&mut chunk).await?;
            if count == 0 {
                return Ok(None);
            }
            chunk.truncate(count);
            let bytes = u64::try_from(count).unwrap_or_default();
            sent.fetch_add(bytes, Ordering::Relaxed);
            Ok(Some((Frame::data(Bytes::from(chunk)), file)))
        }
    })
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::AsyncWriteExt,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// Answers requests with these codes, in this order; 0 cuts the connection. Returns the bodies.
    async fn proxy(listener: TcpListener, codes: &[u16]) -> Vec<(String, Vec<u8>)> {
        let mut bodies = vec![];
        for code in codes {
            let (mut connection, _) = listener.accept().await.unwrap();
            bodies.push(read(&mut connection).await);
            if *code != 0 {
                let answer = format!("HTTP/1.1 {code} x\r\ncontent-length: 4\r\n\r\nwhy?");
                connection.write_all(answer.as_bytes()).await.unwrap();
            }
        }
        bodies
    }

    /// The request line and the body.
    async fn read(connection: &mut TcpStream) -> (String, Vec<u8>) {
        let mut bytes = vec![];
        loop {
            let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
            if let Some((head, _)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                let length = length.map_or(0, |length| length.parse::<usize>().unwrap());
                let start = head.len() + 4;
                if bytes.len() >= start + length {
                    let line = head.lines().next().unwrap().to_owned();
                    return (line, bytes.split_off(start));
                }
            }
            assert_ne!(connection.read_buf(&mut bytes).await.unwrap(), 0);
        }
    }

    async fn upload(codes: &[u16]) -> (Result<(), NotSent>, Vec<(String, Vec<u8>)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("image");
        std::fs::write(&file, vec![7; CHUNK + 1]).unwrap();
        let to = Proxy {
            url,
            insecure: false,
            authorities: None,
            proxies: Proxies::default(),
        };
        let sending = send(&to, "token", &file, Printer);
        tokio::join!(sending, proxy(listener, codes))
    }

    #[tokio::test]
    async fn whole_file_is_sent_to_the_path_that_the_proxy_has() {
        for (head, path) in [(200, ASYNCHRONOUS), (404, SYNCHRONOUS)] {
            let (sent, bodies) = upload(&[head, 200]).await;
            sent.unwrap();
            let [(_, empty), (line, body)] = bodies.as_slice() else {
                panic!("{bodies:?}");
            };
            assert_eq!(line, &format!("post {path} http/1.1"));
            assert_eq!((empty.len(), body.len()), (0, CHUNK + 1));
        }
    }

    #[tokio::test]
    async fn only_failures_that_may_pass_are_transient() {
        for (codes, transient) in [
            (&[200, 502][..], true),
            (&[200, 0], true),
            (&[200, 401], false),
            (&[200, 400], false),
        ] {
            let (sent, _) = upload(codes).await;
            let error = match (sent.unwrap_err(), transient) {
                (NotSent::Transient(error), true) | (NotSent::Final(error), false) => error,
                other => panic!("{codes:?}: {other:?}"),
            };
            let answered = error.to_string().ends_with("why?");
            assert_eq!(answered, codes != [200, 0], "{error:#}");
        }
    }

    #[tokio::test]
    async fn file_that_cannot_be_read_is_final() {
        let to = Proxy {
            url: "http://127.0.0.1:1".to_owned(),
            insecure: false,
            authorities: None,
            proxies: Proxies::default(),
        };
        let sent = send(&to, "token", Path::new("/missing"), Printer).await;
        assert!(matches!(sent, Err(NotSent::Final(_))), "{sent:?}");
    }
}
