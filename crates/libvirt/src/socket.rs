//! Reads and writes whole frames on a unix socket.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::Error;
use crate::frame::{self, Frame};

/// Reads one frame.
pub(crate) async fn read_frame(from: &mut OwnedReadHalf) -> Result<Frame, Error> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Error::Closed),
        Err(error) => return Err(error.into()),
    }
    let mut rest = vec![0; frame::rest_length(length)?];
    from.read_exact(&mut rest).await?;
    Ok(Frame::parse(&rest)?)
}

/// Writes one encoded frame.
pub(crate) async fn write_frame(to: &mut OwnedWriteHalf, bytes: &[u8]) -> Result<(), Error> {
    Ok(to.write_all(bytes).await?)
}
