//! The protocol by which a service reports its state to systemd: a datagram to the socket in `NOTIFY_SOCKET`.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

const VARIABLE: &str = "NOTIFY_SOCKET";

/// Whether systemd started this process and waits for its notification.
pub(crate) fn is_service() -> bool {
    socket().is_some()
}

/// Reports that everything is up. Nothing happens if systemd does not wait for it.
pub(crate) fn ready(status: &str) -> io::Result<()> {
    send(&format!("READY=1\nSTATUS={status}"))
}

/// Reports that this process ends now.
pub(crate) fn stopping() -> io::Result<()> {
    send("STOPPING=1")
}

fn socket() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|name| !name.is_empty())
}

fn send(message: &str) -> io::Result<()> {
    match socket() {
        Some(name) => send_to(&name, message),
        None => Ok(()),
    }
}

/// A name that begins with `@` is in the abstract namespace.
fn send_to(name: &OsStr, message: &str) -> io::Result<()> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(bytes.get(..length).expect("its bytes")).into_owned()
    }

    #[test]
    fn message_reaches_sockets_of_both_kinds() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        send_to(path.as_os_str(), "READY=1").expect("sent");
        assert_eq!(received(&socket), "READY=1");

        let name = format!("ferrovirt-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let socket = UnixDatagram::bind_addr(&address).expect("a socket");
        send_to(OsStr::new(&format!("@{name}")), "STOPPING=1").expect("sent");
        assert_eq!(received(&socket), "STOPPING=1");
    }

    #[test]
    fn lost_socket_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        assert!(send_to(path.as_os_str(), "READY=1").is_err());
    }
}
