//! The handler's end of the channel.

use std::time::Duration;

use launcher_channel::{
    DomainState, FromLauncher, GuestState, MAX_FROM_LAUNCHER, Reply, Request, ToLauncher,
    read_frame, write_frame,
};
use tokio::net::UnixStream;

use crate::bundle::Bundle;

/// A connection to the launcher.
pub(crate) struct Handler<'a> {
    pub(crate) pod: &'a Bundle,
    pub(crate) stream: UnixStream,
    next: u64,
    pub(crate) state: Option<GuestState>,
}

impl<'a> Handler<'a> {
    pub(crate) fn connect(pod: &'a Bundle) -> Self {
        Self::connect_past(pod, None)
    }

    /// Connects to another launcher than the one with this process ID.
    pub(crate) fn connect_past(pod: &'a Bundle, gone: Option<i32>) -> Self {
        let path = pod.run_dir().join("kubevirt/sockets/launcher-sock");
        let found = pod.wait("launcher", || {
            let stream = std::os::unix::net::UnixStream::connect(&path).ok()?;
            pod.pids("virt-launcher")
                .iter()
                .any(|pid| Some(*pid) != gone)
                .then_some(stream)
        });
        found.set_nonblocking(true).unwrap();
        Self::over(pod, UnixStream::from_std(found).unwrap())
    }

    pub(crate) fn over(pod: &'a Bundle, stream: UnixStream) -> Self {
        Self {
            pod,
            stream,
            next: 1,
            state: None,
        }
    }

    async fn read(&mut self) -> FromLauncher {
        let read = read_frame(&mut self.stream, MAX_FROM_LAUNCHER);
        let message = tokio::time::timeout(Duration::from_mins(1), read).await;
        let log = || self.pod.log();
        let message = message.unwrap_or_else(|_| panic!("no message; the log:\n{}", log()));
        let message = message.unwrap_or_else(|error| panic!("{error}; the log:\n{}", log()));
        let message = message.unwrap_or_else(|| panic!("disconnected; the log:\n{}", log()));
        if let FromLauncher::State(state) = &message {
            self.state = Some(state.clone());
        }
        message
    }

    /// Sends a request; `None` if the launcher dies before its reply.
    pub(crate) async fn try_call(&mut self, request: Request) -> Option<Reply> {
        let id = self.next;
        self.next += 1;
        write_frame(&mut self.stream, &ToLauncher { id, request })
            .await
            .ok()?;
        loop {
            let read = read_frame(&mut self.stream, MAX_FROM_LAUNCHER);
            let message = tokio::time::timeout(Duration::from_mins(1), read).await;
            let log = || self.pod.log();
            let message = message.unwrap_or_else(|_| panic!("no message; the log:\n{}", log()));
            if let FromLauncher::Reply { reply, .. } = message.ok()?? {
                return Some(reply);
            }
        }
    }

    pub(crate) async fn call(&mut self, request: Request) -> Reply {
        let id = self.next;
        self.next += 1;
        write_frame(&mut self.stream, &ToLauncher { id, request })
            .await
            .unwrap();
        loop {
            if let FromLauncher::Reply { id: replied, reply } = self.read().await {
                assert_eq!(replied, id);
                return reply;
            }
        }
    }

    /// Sends a request that must succeed.
    pub(crate) async fn done(&mut self, request: Request) -> GuestState {
        match self.call(request).await {
            Reply::Done(state) => state,
            refused => panic!("{refused:?}; the log:\n{}", self.pod.log()),
        }
    }

    /// Sends a request that must be refused, and returns the reason.
    pub(crate) async fn refused(&mut self, request: Request) -> String {
        match self.call(request).await {
            Reply::Refused {
                reason, message, ..
            } => {
                let is_sentence = message.starts_with(char::is_uppercase) && message.ends_with('.');
                assert!(is_sentence, "{message}");
                reason
            }
            other => panic!("{other:?}"),
        }
    }

    /// Reads the next message.
    pub(crate) async fn next_state(&mut self) {
        self.read().await;
    }

    /// Reads until the launcher reports this state.
    pub(crate) async fn reports(&mut self, domain: DomainState) {
        while self.state.as_ref().and_then(|state| state.domain) != Some(domain) {
            self.read().await;
        }
    }
}

/// Counts the messages until the launcher closes the connection.
pub(crate) async fn read_to_end(mut handler: Handler<'_>) -> usize {
    let mut left = 0;
    while read_frame::<FromLauncher>(&mut handler.stream, MAX_FROM_LAUNCHER)
        .await
        .unwrap()
        .is_some()
    {
        left += 1;
    }
    left
}
