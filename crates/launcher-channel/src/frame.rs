//! Frames: a big-endian `u32` length, then that many bytes of JSON.

use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The largest frame either side accepts.
pub const MAX_FRAME: usize = 4 << 20;

/// The largest frame that a launcher may send: it runs beside an untrusted guest.
pub const MAX_FROM_LAUNCHER: usize = 1 << 20;

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("frame of {length} bytes is over the limit of {limit}")]
    TooLarge { length: usize, limit: usize },
    #[error("malformed frame")]
    Malformed(#[from] serde_json::Error),
    #[error("connection lost")]
    Broken(#[from] std::io::Error),
}

/// Reads one frame; `None` if the peer closed the connection between two frames.
pub async fn read_frame<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<T>, FrameError> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > limit {
        return Err(FrameError::TooLarge { length, limit });
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    Ok(Some(serde_json::from_slice(&body)?))
}

/// Writes one frame.
pub async fn write_frame<T: Serialize + Sync>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> Result<(), FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    let prefix = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME);
    let prefix = prefix.ok_or(FrameError::TooLarge {
        length,
        limit: MAX_FRAME,
    })?;
    bytes[..4].copy_from_slice(&prefix.to_be_bytes());
    to.write_all(&bytes).await?;
    to.flush().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn message_is_read_back() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let sent = vec!["a".to_owned(), "b".to_owned()];
        write_frame(&mut near, &sent).await.unwrap();
        drop(near);
        assert_eq!(
            read_frame::<Vec<String>>(&mut far, MAX_FRAME)
                .await
                .unwrap(),
            Some(sent)
        );
        assert_eq!(
            read_frame::<Vec<String>>(&mut far, MAX_FRAME)
                .await
                .unwrap(),
            None
        );
    }

    #[tokio::test]
    async fn oversized_length_is_refused_before_allocation() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, 1, 2];
        let error = read_frame::<String>(&mut bytes, MAX_FRAME)
            .await
            .unwrap_err();
        assert!(matches!(error, FrameError::TooLarge { .. }), "{error}");
    }
}
