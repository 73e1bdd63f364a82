//! The download of a volume into a file.
//!
//! Compressed data is made anew by the server for each request, so only an uncompressed download can go on where an
//! earlier one stopped. Such a download begins with the compressed data all the same, since the empty parts of a disk
//! cost nothing there, and goes on with a range of the disk.
//!
//! **Invariant**: the parts of a file are of one version of the disk, as the server's tag or time of change says.

use std::{
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result, anyhow};
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{
    cli::Format,
    download::{Failed, Server},
};
use crate::{
    files::{NewFile, Partial, Version},
    printer::{self, Printer},
};

const WORK: &str = "Downloading";

/// Where a volume is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) compressed: String,
    /// Of the disk as it is.
    pub(super) raw: Option<String>,
}

/// What the volume belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// The same in every export of the same source.
    pub(super) volume: String,
    /// Of this export alone.
    pub(super) export: String,
}

/// A volume of an export.
pub(super) struct Volume<'a> {
    pub(super) server: &'a Server,
    pub(super) addresses: Addresses,
    pub(super) identity: Identity,
    pub(super) printer: Printer,
}

impl Volume<'_> {
    /// Downloads into a file, or to standard output if it is `-`. After a failure the file is as it was before.
    pub(super) async fn download(&self, file: &Path, format: Format) -> Result<(), Failed> {
        if file == Path::new("-") {
            let to = io::stdout();
            return self.stream(to, format).await.map(drop);
        }
        if format == Format::Raw
            && let Some(raw) = &self.addresses.raw
            && let Some(version) = self.version(raw).await?
            && let Some(partial) = Partial::open(file, &version).map_err(Failed::Final)?
        {
            return self.resumable(raw, &version, partial).await;
        }
        let to = NewFile::create(file).map_err(Failed::Final)?;
        let file = self.stream(to, format).await?;
        file.complete().map_err(Failed::Final)
    }

    async fn stream<W: Write>(&self, to: W, format: Format) -> Result<W, Failed> {
        let response = self
            .server
            .get(&self.addresses.compressed, HeaderMap::new());
        let body = response.await?.into_body();
        match format {
            Format::Gzip => {
                let mut to = to;
                copy(body, &mut to, |_, received| {
                    self.printer.amount(WORK, received);
                })
                .await?;
                self.printer.end_of_progress();
                to.flush().map_err(write_error)?;
                Ok(to)
            }
            Format::Raw => {
                let mut to = MultiGzDecoder::new(to);
                copy(body, &mut to, |_, received| {
                    self.printer.amount(WORK, received);
                })
                .await?;
                self.printer.end_of_progress();
                let mut to = to.finish().map_err(write_error)?;
                to.flush().map_err(write_error)?;
                Ok(to)
            }
        }
    }

    /// The version of the disk; `None` if the server cannot send parts of it, or does not say which version it sends.
    async fn version(&self, raw: &str) -> Result<Option<Version>, Failed> {
        match self.server.head(raw).await {
            Ok(headers) => Ok(self.version_of(&headers)),
            // Another attempt may succeed.
            Err(Failed::Transient(error)) => Err(Failed::Transient(error)),
            // What is wrong, such as the token, is also wrong for the data.
            Err(Failed::Final(_)) => Ok(None),
        }
    }

    fn version_of(&self, headers: &HeaderMap) -> Option<Version> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if text(header::ACCEPT_RANGES) != Some("bytes") {
            return None;
        }
        let length = text(header::CONTENT_LENGTH)?.parse().ok()?;
        let volume = &self.identity.volume;
        // A weak tag does not tell apart all versions.
        let tag = text(header::ETAG).filter(|tag| tag.starts_with('"'));
        let (source, tag) = match (tag, text(header::LAST_MODIFIED)) {
            (Some(tag), _) => (volume.clone(), tag),
            // Several disks may have changed in one second.
            (None, Some(time)) => (format!("{volume} in {}", self.identity.export), time),
            (None, None) => return None,
        };
        Some(Version {
            source,
            tag: tag.to_owned(),
            length,
        })
    }

    async fn resumable(
        &self,
        raw: &str,
        version: &Version,
        mut partial: Partial,
    ) -> Result<(), Failed> {
        if partial.written() == 0 {
            partial = self.first_part(raw, version, partial).await?;
        } else if partial.written() < version.length {
            self.printer.note(&format!(
                "Resuming at {} of {}",
                printer::size(partial.written()),
                printer::size(version.length)
            ));
            self.rest(raw, version, &mut partial).await?;
        }
        partial.complete().map_err(Failed::Final)
    }

    /// From the beginning, compressed.
    async fn first_part(
        &self,
        raw: &str,
        version: &Version,
        mut partial: Partial,
    ) -> Result<Partial, Failed> {
        let response = self
            .server
            .get(&self.addresses.compressed, HeaderMap::new());
        let body = response.await?.into_body();
        // The disk was opened between the two questions for its version.
        if self.version(raw).await?.as_ref() != Some(version) {
            partial.discard();
            return Err(changed());
        }
        let mut decoder = MultiGzDecoder::new(&mut partial);
        let copied = copy(body, &mut decoder, |decoder, _| {
            let written = decoder.get_ref().written();
            self.printer.progress(WORK, written, version.length);
        })
        .await;
        let finished = match copied {
            Ok(()) => decoder.finish().map(drop).map_err(write_error),
            Err(failed) => {
                // Writes the data that it still has.
                drop(decoder);
                Err(failed)
            }
        };
        self.printer.end_of_progress();
        if matches!(finished, Err(Failed::Final(_))) && !partial.write_failed() {
            // What the server sent is no compressed data, so what came before is not trusted either.
            partial.discard();
            return Err(finished.err().unwrap_or_else(changed));
        }
        finished.map(|()| partial)
    }

    async fn rest(
        &self,
        raw: &str,
        version: &Version,
        partial: &mut Partial,
    ) -> Result<(), Failed> {
        let start = partial.written();
        let mut headers = HeaderMap::new();
        let value = |text: &str| {
            HeaderValue::from_str(text)
                .context("ask for the rest")
                .map_err(Failed::Final)
        };
        headers.insert(header::RANGE, value(&format!("bytes={start}-"))?);
        headers.insert(header::IF_RANGE, value(&version.tag)?);
        let response = self.server.get(raw, headers).await?;
        let text = |name| {
            let value: Option<&HeaderValue> = response.headers().get(name);
            value.and_then(|value| value.to_str().ok())
        };
        let last = version.length.saturating_sub(1);
        let expected = format!("bytes {start}-{last}/{}", version.length);
        if response.status() != StatusCode::PARTIAL_CONTENT
            || text(header::CONTENT_RANGE) != Some(&*expected)
        {
            return Err(changed());
        }
        let copied = copy(response.into_body(), partial, |partial, _| {
            self.printer
                .progress(WORK, partial.written(), version.length);
        });
        let copied = copied.await;
        self.printer.end_of_progress();
        copied
    }
}

fn changed() -> Failed {
    Failed::Transient(anyhow!("the disk changed during the download"))
}

fn write_error(error: io::Error) -> Failed {
    Failed::Final(anyhow::Error::new(error).context("write the file"))
}

/// Copies all of a body. `report` gets the number of bytes of the body so far.
async fn copy<W: Write>(
    mut body: Incoming,
    to: &mut W,
    report: impl Fn(&W, u64),
) -> Result<(), Failed> {
    let mut received: u64 = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame
            .context("the download broke")
            .map_err(Failed::Transient)?;
        if let Ok(bytes) = frame.into_data() {
            to.write_all(&bytes).map_err(write_error)?;
            received = received.saturating_add(u64::try_from(bytes.len()).unwrap_or_default());
            report(to, received);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
