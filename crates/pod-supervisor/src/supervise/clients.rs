//! Connections to the control socket.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
};

use error_chain::error_chain;
use rustix::net::sockopt::socket_peercred;

use super::Supervisor;
use crate::protocol::{MAX_LINE, Reply, Request};

/// More connections than a node needs.
const MAX_CLIENTS: usize = 16;
/// A subscriber that reads nothing while this much piles up is disconnected.
const MAX_UNSENT: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: UnixStream,
    input: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) subscribed: bool,
    pub(super) gone: bool,
}

impl Supervisor {
    pub(super) fn on_connection(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else {
            return;
        };
        let root = socket_peercred(&stream).is_ok_and(|peer| peer.uid.is_root());
        if !root || self.clients.len() >= MAX_CLIENTS || stream.set_nonblocking(true).is_err() {
            return;
        }
        self.clients.push(Client {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            subscribed: false,
            gone: false,
        });
    }

    pub(super) fn on_client(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        client.flush();
        client.receive();
        while let Some(line) = self.clients.get_mut(index).and_then(Client::next_line) {
            let request = serde_json::from_slice::<Request>(&line);
            let subscribes = matches!(request, Ok(Request::Subscribe));
            let reply = match request {
                Ok(request) => self.reply_to(&request),
                Err(error) => Reply::Refused {
                    message: error_chain(&error),
                },
            };
            if let Some(client) = self.clients.get_mut(index) {
                client.subscribed |= subscribes;
                client.send(&reply);
            }
        }
    }
}

impl Client {
    fn receive(&mut self) {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.gone = true,
                Ok(count) => {
                    self.input
                        .extend_from_slice(buffer.get(..count).unwrap_or_default());
                    if self.input.len() <= MAX_LINE {
                        continue;
                    }
                    self.gone = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => self.gone = true,
            }
            return;
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.input.iter().position(|byte| *byte == b'\n')?;
        let line = self.input.drain(..=end).collect();
        if self.input.is_empty() {
            // Free the buffer: a container's specification is large and arrives once.
            self.input = Vec::new();
        }
        Some(line)
    }

    pub(super) fn send(&mut self, reply: &Reply) {
        let line = serde_json::to_vec(reply).expect("a reply is always JSON");
        self.output.extend_from_slice(&line);
        self.output.push(b'\n');
        self.flush();
        if self.output.len() > MAX_UNSENT {
            self.gone = true;
        }
    }

    fn flush(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.gone |= error.kind() != io::ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }
}
