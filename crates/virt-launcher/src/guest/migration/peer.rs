//! What two launchers say to each other.

use std::io;
use std::time::Duration;

use launcher_channel::{FrameError, MAX_FRAME, MigrationSocket, read_frame, write_frame};
use libvirt::Cookie;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

/// How long the other launcher may take for a step: it starts a QEMU, or reads the last state.
const STEP_LIMIT: Duration = Duration::from_mins(2);
/// The same for what takes no time. If Take is lost, the guest is paused until the handler repeats it,
/// which does so after this.
const LAST_STEP_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Ask {
    /// Start a QEMU for this domain that waits for the guest.
    Prepare {
        id: String,
        xml: String,
        cookie: WireCookie,
        copied_disks: Vec<String>,
    },
    /// All of the guest has been copied: take it, and keep it paused. `stays_paused` says that its user has
    /// paused it, so that it is not resumed after the hand-over either.
    Finish {
        cookie: WireCookie,
        #[serde(default)]
        stays_paused: bool,
    },
    /// Nothing more comes: end the QEMU.
    Abandon,
    /// The guest is given up: run it.
    Take { resume: bool },
}

impl Ask {
    fn limit(&self) -> Duration {
        match self {
            Self::Prepare { .. } | Self::Finish { .. } => STEP_LIMIT,
            Self::Abandon | Self::Take { .. } => LAST_STEP_LIMIT,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Answer {
    Cookie(WireCookie),
    Done,
    Refused(String),
}

/// A cookie in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WireCookie(String);

impl From<&Cookie> for WireCookie {
    fn from(cookie: &Cookie) -> Self {
        use base64::Engine as _;
        Self(base64::prelude::BASE64_STANDARD.encode(&cookie.0))
    }
}

impl WireCookie {
    pub(super) fn decode(&self) -> Result<Cookie, base64::DecodeError> {
        use base64::Engine as _;
        base64::prelude::BASE64_STANDARD.decode(&self.0).map(Cookie)
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    #[error("the other pod cannot be reached")]
    Connect(#[source] io::Error),
    #[error("the connection to the other pod has ended")]
    Closed,
    #[error("the connection to the other pod failed")]
    Frame(#[from] FrameError),
    #[error("the other pod did not answer in time")]
    Silent,
    #[error("the other pod refused: {0}")]
    Refused(String),
    #[error("the other pod answered with something else")]
    Unexpected,
    #[error("a cookie is malformed")]
    Cookie(#[from] base64::DecodeError),
}

/// The connection to the launcher that gets the guest.
#[derive(Debug)]
pub(super) struct Peer(UnixStream);

impl Peer {
    pub(super) async fn connect() -> Result<Self, PeerError> {
        let path = MigrationSocket::Control.source_path();
        let stream = UnixStream::connect(path).await;
        stream.map(Self).map_err(PeerError::Connect)
    }

    async fn ask(&mut self, ask: &Ask) -> Result<Answer, PeerError> {
        let exchange = async {
            write_frame(&mut self.0, ask).await?;
            let answer = read_frame(&mut self.0, MAX_FRAME).await?;
            answer.ok_or(PeerError::Closed)
        };
        match tokio::time::timeout(ask.limit(), exchange).await {
            Err(_) => Err(PeerError::Silent),
            Ok(Ok(Answer::Refused(message))) => Err(PeerError::Refused(message)),
            Ok(answer) => answer,
        }
    }

    pub(super) async fn ask_for_cookie(&mut self, ask: &Ask) -> Result<Cookie, PeerError> {
        match self.ask(ask).await? {
            Answer::Cookie(cookie) => Ok(cookie.decode()?),
            Answer::Done | Answer::Refused(_) => Err(PeerError::Unexpected),
        }
    }

    pub(super) async fn command(&mut self, ask: &Ask) -> Result<(), PeerError> {
        match self.ask(ask).await? {
            Answer::Done => Ok(()),
            Answer::Cookie(_) | Answer::Refused(_) => Err(PeerError::Unexpected),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn other_launcher_that_is_silent_keeps_a_guest_paused_only_briefly() {
        let (near, _far) = UnixStream::pair().unwrap();
        let began = tokio::time::Instant::now();
        let answer = Peer(near).command(&Ask::Take { resume: true }).await;
        assert!(matches!(answer, Err(PeerError::Silent)), "{answer:?}");
        assert!(began.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn cookie_is_carried_unchanged() {
        let cookie = Cookie(vec![0, 255, b'<', b'\n']);
        assert_eq!(WireCookie::from(&cookie).decode().unwrap(), cookie);
    }
}
