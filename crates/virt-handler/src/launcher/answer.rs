//! The answers to requests, from the replies of a launcher, which may be compromised.

use std::collections::HashMap;

use launcher_channel::{AgentReport, GuestState, Part, Reply};
use tokio::sync::oneshot;

use super::session::CallError;

/// Limit on the binary content of all requests in flight, in bytes. A screen of 3840 by 2160
/// pixels that does not compress has 24 MiB.
pub(super) const MAX_CONTENT: usize = 32 << 20;
/// Limit on the characters of a refusal; libvirt's longest are shorter.
const MAX_REFUSAL_CHARS: usize = 1024;

/// The answer to one request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "few answers wait at once")]
pub(super) enum Answer {
    State(GuestState),
    Agent(Box<AgentReport>),
    Content(Content),
}

/// Binary content, of which all parts have arrived.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) media_type: String,
    pub(super) data: Vec<u8>,
}

type Sender = oneshot::Sender<Result<Answer, CallError>>;

/// The requests that wait for their answer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    requests: HashMap<u64, Waiting>,
    /// Bytes of the parts that have arrived.
    held: usize,
}

#[derive(Debug)]
struct Waiting {
    sender: Sender,
    content: Content,
}

impl Pending {
    pub(super) fn insert(&mut self, id: u64, sender: Sender) {
        // Those that have timed out.
        self.requests.retain(|_, waiting| {
            let waits = !waiting.sender.is_closed();
            if !waits {
                self.held -= waiting.content.data.len();
            }
            waits
        });
        let content = Content::default();
        self.requests.insert(id, Waiting { sender, content });
    }

    /// Hands over the answer when its last reply has arrived.
    pub(super) fn receive(&mut self, id: u64, reply: Reply) {
        let Some(mut waiting) = self.requests.remove(&id) else {
            return;
        };
        self.held -= waiting.content.data.len();
        let answer = match reply {
            Reply::Done(state) => Ok(Answer::State(state)),
            Reply::Agent(report) => Ok(Answer::Agent(report)),
            Reply::Refused {
                reason,
                message,
                retry,
            } => Err(CallError::Refused {
                reason: truncate(&reason),
                message: truncate(&message),
                transient: retry,
            }),
            Reply::Part(part) => {
                let more = part.more;
                match self.add(&mut waiting.content, part) {
                    Ok(()) if more && !waiting.sender.is_closed() => {
                        self.held += waiting.content.data.len();
                        self.requests.insert(id, waiting);
                        return;
                    }
                    Ok(()) => Ok(Answer::Content(waiting.content)),
                    Err(error) => Err(error),
                }
            }
        };
        // The caller may have timed out.
        let _timed_out = waiting.sender.send(answer);
    }

    fn add(&self, content: &mut Content, part: Part) -> Result<(), CallError> {
        if self.held + content.data.len() + part.data.len() > MAX_CONTENT {
            return Err(CallError::TooLarge);
        }
        if content.data.is_empty() {
            *content = Content {
                media_type: part.media_type,
                data: part.data,
            };
        } else if content.media_type == part.media_type {
            content.data.extend(part.data);
        } else {
            return Err(CallError::UnexpectedReply);
        }
        Ok(())
    }
}

/// A refusal of any length would end up in a condition.
fn truncate(text: &str) -> String {
    text.chars().take(MAX_REFUSAL_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Receiver = oneshot::Receiver<Result<Answer, CallError>>;

    fn part(data: Vec<u8>, more: bool) -> Reply {
        Reply::Part(Part {
            media_type: "image/png".to_owned(),
            data,
            more,
        })
    }

    fn request(pending: &mut Pending, id: u64) -> Receiver {
        let (sender, receiver) = oneshot::channel();
        pending.insert(id, sender);
        receiver
    }

    #[test]
    fn parts_of_two_requests_are_joined() {
        let mut pending = Pending::default();
        let mut first = request(&mut pending, 1);
        let mut second = request(&mut pending, 2);
        for (id, data, more) in [(1, b"ab", true), (2, b"12", true), (1, b"cd", false)] {
            pending.receive(id, part(data.to_vec(), more));
        }
        let Ok(Answer::Content(content)) = first.try_recv().unwrap() else {
            panic!("no content");
        };
        assert_eq!(content.data, b"abcd");
        assert_eq!(content.media_type, "image/png");
        second.try_recv().unwrap_err();
        assert_eq!(pending.held, 2);
        // A request may also be refused after its first part.
        pending.receive(
            2,
            Reply::Refused {
                reason: "NotRunning".to_owned(),
                message: "The guest is not running.".repeat(100),
                retry: false,
            },
        );
        let Err(CallError::Refused { message, .. }) = second.try_recv().unwrap() else {
            panic!("not refused");
        };
        assert_eq!(message.chars().count(), MAX_REFUSAL_CHARS);
        assert_eq!((pending.held, pending.requests.len()), (0, 0));
    }

    #[test]
    fn content_over_the_limit_is_refused_and_dropped() {
        let mut pending = Pending::default();
        let mut other = request(&mut pending, 1);
        pending.receive(1, part(vec![0; MAX_CONTENT / 2], true));
        let mut flood = request(&mut pending, 2);
        for _ in 0..3 {
            pending.receive(2, part(vec![0; MAX_CONTENT / 4 + 1], true));
        }
        let error = flood.try_recv().unwrap().unwrap_err();
        assert!(matches!(error, CallError::TooLarge), "{error}");
        assert_eq!(pending.held, MAX_CONTENT / 2);
        pending.receive(1, part(vec![1], false));
        assert!(matches!(other.try_recv().unwrap(), Ok(Answer::Content(_))));
        assert_eq!(pending.held, 0);
    }

    #[test]
    fn content_of_a_caller_that_has_timed_out_is_dropped() {
        let mut pending = Pending::default();
        drop(request(&mut pending, 1));
        pending.receive(1, part(vec![0; 10], true));
        assert_eq!((pending.held, pending.requests.len()), (0, 0));
        let late = request(&mut pending, 2);
        pending.receive(2, part(vec![0; 10], true));
        drop(late);
        let _next = request(&mut pending, 3);
        assert_eq!((pending.held, pending.requests.len()), (0, 1));
    }

    #[test]
    fn parts_of_different_types_are_no_answer() {
        let mut pending = Pending::default();
        let mut request = request(&mut pending, 1);
        pending.receive(1, part(vec![1], true));
        let html = Part {
            media_type: "text/html".to_owned(),
            data: vec![2],
            more: false,
        };
        pending.receive(1, Reply::Part(html));
        let error = request.try_recv().unwrap().unwrap_err();
        assert!(matches!(error, CallError::UnexpectedReply), "{error}");
    }
}
