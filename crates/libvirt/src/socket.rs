//! Whole frames and their descriptors over a unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::frame::{self, Frame};
use crate::{Error, ProtocolError};

/// Reads one frame and the descriptors that follow it.
///
/// Frames are read to their exact length, so the single bytes that carry descriptors are never
/// swallowed together with other data.
pub(crate) async fn read_frame(from: &mut OwnedReadHalf) -> Result<(Frame, Vec<OwnedFd>), Error> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Ok(_) => {}
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Err(Error::Closed),
        Err(err) => return Err(err.into()),
    }
    let mut rest = vec![0; frame::rest_length(length)?];
    from.read_exact(&mut rest).await?;
    let mut frame = Frame::parse(&rest)?;
    let mut fds = Vec::new();
    for _ in 0..frame.take_fd_count()? {
        fds.push(receive_fd(from.as_ref()).await?);
    }
    Ok((frame, fds))
}

/// Writes one frame and the descriptors that belong to it.
pub(crate) async fn write_frame(
    to: &mut OwnedWriteHalf,
    bytes: &[u8],
    fds: &[OwnedFd],
) -> Result<(), Error> {
    to.write_all(bytes).await?;
    for fd in fds {
        send_fd(to.as_ref(), fd).await?;
    }
    Ok(())
}

async fn receive_fd(socket: &UnixStream) -> Result<OwnedFd, Error> {
    let fd = socket
        .async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0_u8];
            let mut iov = [IoSliceMut::new(&mut byte)];
            let got = recvmsg(
                socket.as_fd(),
                &mut iov,
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            )?;
            if got.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            }))
        })
        .await?;
    Ok(fd.ok_or(ProtocolError::Malformed(
        "a descriptor was announced and did not come",
    ))?)
}

async fn send_fd(socket: &UnixStream, fd: &OwnedFd) -> Result<(), Error> {
    socket
        .async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [fd.as_fd()];
            if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
                return Err(io::Error::other("no room for a descriptor"));
            }
            sendmsg(
                socket.as_fd(),
                &[IoSlice::new(&[0])],
                &mut control,
                SendFlags::NOSIGNAL,
            )?;
            Ok(())
        })
        .await?;
    Ok(())
}
