//! Copying between a stream to the guest and local bytes.

use anyhow::{Context, Result, bail};
use futures::{SinkExt, StreamExt, stream::SplitStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite::{Message, protocol::frame::coding::CloseCode};

use crate::subresource::Stream;

/// Bytes of a frame to the guest.
const CHUNK: usize = 32 << 10;

/// What happens when the local side has no more data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtEnd {
    /// The connection ends.
    Close,
    /// The guest may still answer.
    Wait,
}

/// Copies until either side ends. An error of the guest's side is an error.
pub(crate) async fn with_connection(
    stream: Stream,
    local: impl AsyncRead + AsyncWrite + Send,
) -> Result<()> {
    let (from, to) = tokio::io::split(local);
    join(stream, from, to, AtEnd::Close).await
}

/// Copies until the guest ends the connection.
pub(super) async fn with_standard_streams(stream: Stream) -> Result<()> {
    join(stream, tokio::io::stdin(), tokio::io::stdout(), AtEnd::Wait).await
}

async fn join(
    stream: Stream,
    mut from_local: impl AsyncRead + Unpin,
    mut to_local: impl AsyncWrite + Unpin,
    at_end: AtEnd,
) -> Result<()> {
    let (mut to_guest, mut from_guest) = stream.split();
    let inward = async {
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = from_local.read(&mut chunk).await.context("read locally")?;
            if count == 0 {
                break;
            }
            let bytes = chunk.get(..count).unwrap_or_default().to_vec();
            let sent = to_guest.send(Message::binary(bytes)).await;
            sent.context("write to the guest")?;
        }
        if at_end == AtEnd::Wait {
            return std::future::pending().await;
        }
        // The guest's side may be closed already.
        drop(to_guest.close().await);
        Ok(())
    };
    let outward = async {
        while let Some(bytes) = next(&mut from_guest).await? {
            to_local.write_all(&bytes).await.context("write locally")?;
            to_local.flush().await.context("write locally")?;
        }
        Ok(())
    };
    tokio::select! {
        ended = inward => ended,
        ended = outward => ended,
    }
}

/// The next data from the guest; `None` at the regular end.
pub(super) async fn next(from: &mut SplitStream<Stream>) -> Result<Option<Vec<u8>>> {
    loop {
        match from.next().await {
            None => bail!("the connection to the cluster broke"),
            Some(Err(error)) => return Err(error).context("read from the guest"),
            Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes.to_vec())),
            Some(Ok(Message::Close(frame))) => match frame {
                Some(frame) if frame.code != CloseCode::Normal => {
                    bail!("the guest's side failed: {}", frame.reason.as_str())
                }
                _ => return Ok(None),
            },
            Some(Ok(_)) => {}
        }
    }
}
