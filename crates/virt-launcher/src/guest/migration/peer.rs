//! What two launchers say to each other.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use launcher_channel::{
    FrameError, GuestPlan, MAX_FRAME, MigrationCompression, MigrationSocket, StopReason,
    read_frame, write_frame,
};
use libvirt::Cookie;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long the other launcher may take to start a QEMU. The guest runs meanwhile.
const START_LIMIT: Duration = Duration::from_mins(2);
/// How long it may take to read the last state of the guest, which is paused meanwhile.
const FINISH_LIMIT: Duration = Duration::from_secs(30);
/// How long the rest of the memory may take in post-copy: as long as it flows. The other launcher reports
/// meanwhile that it is busy.
const FOLLOW_LIMIT: Duration = Duration::from_hours(24 * 365);
/// The same for what takes no time. If Take is lost, the guest is paused until the handler repeats it,
/// which does so after this.
const LAST_STEP_LIMIT: Duration = Duration::from_secs(10);
/// How long nothing may come from the other launcher while the guest is paused.
const SILENCE_LIMIT: Duration = Duration::from_secs(15);
/// How often a launcher says that it is still busy.
pub(super) const BUSY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Ask {
    /// Start a QEMU for this domain that waits for the guest.
    Prepare {
        id: String,
        xml: String,
        cookie: WireCookie,
        copied_disks: Vec<String>,
        /// The bytes that the guest sees of those that are on other claims in the new pod.
        #[serde(default)]
        disk_lengths: BTreeMap<String, u64>,
        /// The copy may be switched to post-copy.
        #[serde(default)]
        post_copy: bool,
        /// Memory comes through that many connections; 0 for one that carries all.
        #[serde(default)]
        parallel_connections: u8,
        #[serde(default)]
        compression: MigrationCompression,
        /// The guest that comes; a launcher of an earlier version does not say it.
        #[serde(default)]
        origin: Option<Origin>,
    },
    /// The copy is about to be switched to post-copy: keep what has arrived if this connection ends, since the
    /// guest may not be able to go on in its old pod.
    Hold,
    /// All of the guest has been copied: take it, and keep it paused. `stays_paused` says that its user has
    /// paused it, so that it is not resumed after the hand-over either.
    Finish {
        cookie: WireCookie,
        #[serde(default)]
        stays_paused: bool,
        /// Says [`Answer::Busy`] every second until the answer.
        #[serde(default)]
        reports_busy: bool,
        /// The guest was given up before: run it now, and answer when the rest of its memory is there.
        #[serde(default)]
        post_copy: bool,
    },
    /// Nothing more comes: end the QEMU.
    Abandon,
    /// Whether the guest, which ran before all of its memory was there, has ended.
    End,
    /// The guest is given up: run it.
    Take { resume: bool },
}

impl Ask {
    fn limit(&self) -> Duration {
        match self {
            Self::Prepare { .. } => START_LIMIT,
            Self::Finish {
                post_copy: true, ..
            } => FOLLOW_LIMIT,
            Self::Finish { .. } => FINISH_LIMIT,
            Self::Hold | Self::Abandon | Self::End | Self::Take { .. } => LAST_STEP_LIMIT,
        }
    }

    /// How long nothing may come before the answer.
    fn silence_limit(&self) -> Duration {
        if self.reports_busy() {
            SILENCE_LIMIT
        } else {
            self.limit()
        }
    }

    /// Whether this is the last request of a migration, unless it is refused.
    pub(super) fn is_last(&self) -> bool {
        matches!(
            self,
            Self::Take { .. }
                | Self::Finish {
                    post_copy: true,
                    ..
                }
        )
    }

    pub(super) fn reports_busy(&self) -> bool {
        matches!(
            self,
            Self::Finish {
                reports_busy: true,
                ..
            }
        )
    }
}

/// What the guest is in the pod that it leaves. Paths in that pod are made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Origin {
    pub(super) vmi_uid: String,
    /// `<namespace>_<vmi>`.
    pub(super) domain_name: String,
    pub(super) domain_uuid: String,
}

impl Origin {
    pub(super) fn of(plan: &GuestPlan) -> Self {
        Self {
            vmi_uid: plan.vmi_uid.clone(),
            domain_name: plan.domain_name.clone(),
            domain_uuid: plan.domain_uuid.clone(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Answer {
    Cookie(WireCookie),
    /// The QEMU waits for memory through several connections, as was asked. A launcher that does not know them
    /// answers with a cookie.
    Parallel(WireCookie),
    Done,
    /// How the guest has ended, if it has.
    Ended(Option<StopReason>),
    Refused(String),
    /// The answer follows later.
    Busy,
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

/// The connection to the launcher that gets the guest. `None` after a request whose answer may still come: it must not
/// be taken for that of the next request, which has a new connection.
#[derive(Debug)]
pub(super) struct Peer(Option<UnixStream>);

impl Peer {
    pub(super) async fn connect() -> Result<Self, PeerError> {
        Ok(Self(Some(connect().await?)))
    }

    async fn ask(&mut self, ask: &Ask) -> Result<Answer, PeerError> {
        let mut stream = match self.0.take() {
            Some(stream) => stream,
            None => connect().await?,
        };
        let answer = timeout(ask.limit(), exchange(&mut stream, ask)).await;
        let answer = answer.map_err(|_| PeerError::Silent).flatten();
        if matches!(answer, Ok(_) | Err(PeerError::Refused(_))) {
            self.0 = Some(stream);
        }
        answer
    }

    pub(super) async fn ask_for_cookie(&mut self, ask: &Ask) -> Result<Cookie, PeerError> {
        Ok(self.ask_for_flows(ask).await?.0)
    }

    /// The cookie, and how the memory is awaited.
    pub(super) async fn ask_for_flows(&mut self, ask: &Ask) -> Result<(Cookie, Flows), PeerError> {
        match self.ask(ask).await? {
            Answer::Cookie(cookie) => Ok((cookie.decode()?, Flows::One)),
            Answer::Parallel(cookie) => Ok((cookie.decode()?, Flows::Many)),
            Answer::Done | Answer::Ended(_) | Answer::Refused(_) | Answer::Busy => {
                Err(PeerError::Unexpected)
            }
        }
    }

    pub(super) async fn command(&mut self, ask: &Ask) -> Result<(), PeerError> {
        match self.ask(ask).await? {
            Answer::Done => Ok(()),
            Answer::Cookie(_)
            | Answer::Parallel(_)
            | Answer::Ended(_)
            | Answer::Refused(_)
            | Answer::Busy => Err(PeerError::Unexpected),
        }
    }

    pub(super) async fn ask_for_end(&mut self) -> Result<Option<StopReason>, PeerError> {
        match self.ask(&Ask::End).await? {
            Answer::Ended(reason) => Ok(reason),
            Answer::Cookie(_)
            | Answer::Parallel(_)
            | Answer::Done
            | Answer::Refused(_)
            | Answer::Busy => Err(PeerError::Unexpected),
        }
    }
}

/// How many connections the other pod expects for the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flows {
    One,
    Many,
}

async fn connect() -> Result<UnixStream, PeerError> {
    let path = MigrationSocket::Control.source_path();
    UnixStream::connect(path).await.map_err(PeerError::Connect)
}

async fn exchange(stream: &mut UnixStream, ask: &Ask) -> Result<Answer, PeerError> {
    write_frame(stream, ask).await?;
    loop {
        let read = read_frame(stream, MAX_FRAME);
        let answer = timeout(ask.silence_limit(), read).await;
        let answer = answer.map_err(|_| PeerError::Silent)??;
        match answer.ok_or(PeerError::Closed)? {
            Answer::Busy => {}
            Answer::Refused(message) => return Err(PeerError::Refused(message)),
            answer => return Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn other_launcher_that_is_silent_keeps_a_guest_paused_only_briefly() {
        let asks = [
            Ask::Take { resume: true },
            Ask::Hold,
            finish(false),
            finish(true),
        ];
        for ask in asks {
            let (near, _far) = UnixStream::pair().unwrap();
            let began = tokio::time::Instant::now();
            let answer = Peer(Some(near)).ask(&ask).await;
            assert!(matches!(answer, Err(PeerError::Silent)), "{answer:?}");
            assert!(began.elapsed() < Duration::from_secs(20), "{ask:?}");
        }
    }

    fn finish(post_copy: bool) -> Ask {
        Ask::Finish {
            cookie: WireCookie::from(&Cookie::default()),
            stays_paused: false,
            reports_busy: true,
            post_copy,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_launcher_that_is_busy_is_waited_for_up_to_a_limit() {
        for (seconds, post_copy, is_in_time) in
            [(20, false, true), (40, false, false), (4000, true, true)]
        {
            let (near, mut far) = UnixStream::pair().unwrap();
            let other = async {
                let _ask: Option<Ask> = read_frame(&mut far, MAX_FRAME).await.unwrap();
                for _ in 0..seconds {
                    tokio::time::sleep(BUSY_INTERVAL).await;
                    write_frame(&mut far, &Answer::Busy).await.unwrap();
                }
                let answer = Answer::Cookie(WireCookie::from(&Cookie::default()));
                write_frame(&mut far, &answer).await.unwrap();
                std::future::pending::<()>().await;
            };
            let mut peer = Peer(Some(near));
            let asked = finish(post_copy);
            let answer = tokio::select! {
                answer = peer.ask_for_cookie(&asked) => answer,
                () = other => unreachable!("it never ends"),
            };
            assert_eq!(answer.is_ok(), is_in_time, "{seconds}: {answer:?}");
        }
    }

    /// Issue: the late answer was taken for that of the next request.
    #[tokio::test(start_paused = true)]
    async fn connection_with_an_answer_outstanding_is_not_used_again() {
        for (answer, is_kept) in [
            (Some(Answer::Done), true),
            (Some(Answer::Refused(String::new())), true),
            (None, false),
        ] {
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut peer = Peer(Some(near));
            let other = async {
                let _ask: Option<Ask> = read_frame(&mut far, MAX_FRAME).await.unwrap();
                if let Some(answer) = &answer {
                    write_frame(&mut far, answer).await.unwrap();
                }
            };
            let (asked, ()) = tokio::join!(peer.ask(&Ask::Hold), other);
            assert_eq!(peer.0.is_some(), is_kept, "{answer:?} {asked:?}");
        }
    }

    /// Launchers of two versions: neither of them fails for what only one of them knows.
    #[tokio::test]
    async fn other_launcher_says_whether_it_knows_several_connections() {
        let old =
            serde_json::json!({"prepare": {"id": "m", "xml": "", "cookie": "", "copiedDisks": []}});
        let old: Ask = serde_json::from_value(old).unwrap();
        assert!(matches!(
            old,
            Ask::Prepare {
                parallel_connections: 0,
                compression: MigrationCompression::None,
                ..
            }
        ));
        let cookie = || WireCookie::from(&Cookie::default());
        for (answer, expected) in [
            (Answer::Cookie(cookie()), Flows::One),
            (Answer::Parallel(cookie()), Flows::Many),
        ] {
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut peer = Peer(Some(near));
            let other = async {
                let _ask: Option<Ask> = read_frame(&mut far, MAX_FRAME).await.unwrap();
                write_frame(&mut far, &answer).await.unwrap();
            };
            let (found, ()) = tokio::join!(peer.ask_for_flows(&old), other);
            assert_eq!(found.unwrap().1, expected, "{answer:?}");
        }
    }

    #[test]
    fn cookie_is_carried_unchanged() {
        let cookie = Cookie(vec![0, 255, b'<', b'\n']);
        assert_eq!(WireCookie::from(&cookie).decode().unwrap(), cookie);
    }
}
