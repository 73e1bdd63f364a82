//! Downloads from an export server.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use tower::BoxError;

use super::{cli::Format, tunnel::Tunnel};
use crate::{
    connect::Cluster,
    https::{self, Trust},
    printer::Printer,
};

const TOKEN: &str = "x-kubevirt-export-token";
/// The longest message or manifest.
const TEXT: usize = 64 << 20;

/// A server and the right to ask it.
pub(super) struct Server {
    pub(super) trust: Trust,
    pub(super) token: String,
    /// How to reach it, if not by its address.
    pub(super) tunnel: Option<(Cluster, Tunnel)>,
}

/// Why there is no download.
#[derive(Debug)]
pub(super) enum Failed {
    /// The connection broke or the server is not ready; another attempt may succeed.
    Transient(anyhow::Error),
    Final(anyhow::Error),
}

impl Server {
    /// A text, such as a manifest.
    pub(super) async fn text(&self, url: &str, accept: &str) -> Result<String, Failed> {
        let body = self.get(url, accept).await?;
        let body = Limited::new(body, TEXT).collect().await;
        let body = body.map_err(|err| Failed::Transient(anyhow::anyhow!(err)))?;
        Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    }

    /// A volume, into a file that is removed if it is incomplete.
    pub(super) async fn volume(
        &self,
        url: &str,
        (file, format): (&Path, Format),
        printer: Printer,
    ) -> Result<(), Failed> {
        let body = self.get(url, "*/*").await?;
        if file == Path::new("-") {
            return save(body, output(io::stdout(), format), printer).await;
        }
        let opened = File::create(file).with_context(|| format!("write {}", file.display()));
        let opened = opened.map_err(Failed::Final)?;
        let saved = save(body, output(opened, format), printer).await;
        if saved.is_err()
            && let Err(err) = std::fs::remove_file(file)
        {
            printer.warn(&format!(
                "{} is incomplete and was not removed: {err}",
                file.display()
            ));
        }
        saved
    }

    async fn get(&self, url: &str, accept: &str) -> Result<Incoming, Failed> {
        let request = Request::get(url)
            .header(TOKEN, &self.token)
            .header(header::ACCEPT, accept)
            .body(Empty::<Bytes>::new())
            .with_context(|| format!("ask {url}"))
            .map_err(Failed::Final)?;
        let response = match &self.tunnel {
            None => {
                let client = https::client(&self.trust).map_err(Failed::Final)?;
                client.request(request).await
            }
            Some((cluster, tunnel)) => {
                let (cluster, tunnel) = (cluster.clone(), tunnel.clone());
                let connector = tower::service_fn(move |_server: Uri| {
                    let opened = tunnel.clone().open(cluster.clone());
                    async { opened.await.map_err(BoxError::from) }
                });
                let client = https::client_over(&self.trust, connector).map_err(Failed::Final)?;
                client.request(request).await
            }
        };
        let response = response
            .with_context(|| format!("reach the export server {url}"))
            .map_err(Failed::Transient)?;
        let code = response.status();
        if code.is_success() {
            return Ok(response.into_body());
        }
        let body = Limited::new(response.into_body(), TEXT).collect().await;
        // The code alone decides; a cut message is no further failure.
        let message = body
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let message = String::from_utf8_lossy(&message);
        let error = anyhow::anyhow!("the export server answered {code}: {}", message.trim());
        Err(if code.is_server_error() {
            Failed::Transient(error)
        } else {
            Failed::Final(error)
        })
    }
}

/// Where the bytes go; the server compresses them.
enum Output<W: Write> {
    Gzip(W),
    Raw(MultiGzDecoder<W>),
}

fn output<W: Write>(to: W, format: Format) -> Output<W> {
    match format {
        Format::Gzip => Output::Gzip(to),
        Format::Raw => Output::Raw(MultiGzDecoder::new(to)),
    }
}

impl<W: Write> Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(to) => to.write_all(bytes),
            Self::Raw(to) => to.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Gzip(mut to) => to.flush(),
            Self::Raw(to) => to.finish()?.flush(),
        }
    }
}

async fn save(
    mut body: Incoming,
    mut to: Output<impl Write>,
    printer: Printer,
) -> Result<(), Failed> {
    let write_error =
        |err: io::Error| Failed::Final(anyhow::Error::new(err).context("write the file"));
    let mut received: u64 = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame
            .context("the download broke")
            .map_err(Failed::Transient)?;
        if let Ok(bytes) = frame.into_data() {
            to.write(&bytes).map_err(write_error)?;
            received = received.saturating_add(u64::try_from(bytes.len()).unwrap_or_default());
            printer.amount("Downloading", received);
        }
    }
    printer.end_of_progress();
    to.finish().map_err(write_error)
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    fn packed() -> Vec<u8> {
        let mut encoder = GzEncoder::new(vec![], Compression::fast());
        encoder.write_all(b"disk").unwrap();
        encoder.finish().unwrap()
    }

    /// Downloads what a server answers, and returns its request too.
    async fn download(
        answer: &[u8],
        format: Format,
    ) -> (Result<(), Failed>, Option<Vec<u8>>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/disk", listener.local_addr().unwrap());
        let serve = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = vec![];
            while !request.ends_with(b"\r\n\r\n") {
                connection.read_buf(&mut request).await.unwrap();
            }
            connection.write_all(answer).await.unwrap();
            String::from_utf8(request).unwrap()
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("disk");
        let server = Server {
            trust: Trust::default(),
            token: "secret".to_owned(),
            tunnel: None,
        };
        let downloading = server.volume(&url, (&file, format), Printer);
        let (ended, request) = tokio::join!(downloading, serve);
        (ended, std::fs::read(file).ok(), request)
    }

    fn complete(code: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 {code}\r\ncontent-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    #[tokio::test]
    async fn volume_is_saved_compressed_or_not() {
        let (ended, file, request) = download(&complete("200 OK", &packed()), Format::Gzip).await;
        ended.unwrap();
        assert_eq!(file.unwrap(), packed());
        assert!(
            request.contains("x-kubevirt-export-token: secret"),
            "{request}"
        );
        let (ended, file, _) = download(&complete("200 OK", &packed()), Format::Raw).await;
        ended.unwrap();
        assert_eq!(file.unwrap(), b"disk");
    }

    #[tokio::test]
    async fn incomplete_download_leaves_no_file() {
        let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec();
        let short = complete("200 OK", packed().get(..12).unwrap());
        for (answer, format, transient) in [
            (cut, Format::Gzip, true),
            (short, Format::Raw, false),
            (complete("503 Busy", b""), Format::Gzip, true),
            (complete("401 No", b"wrong token"), Format::Gzip, false),
        ] {
            let (ended, file, _) = download(&answer, format).await;
            assert_eq!(
                matches!(ended.unwrap_err(), Failed::Transient(_)),
                transient
            );
            assert_eq!(file, None);
        }
    }
}
