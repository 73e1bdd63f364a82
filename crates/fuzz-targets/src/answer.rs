//! The replies of a launcher to two requests, one of which has no waiting caller: lines of JSON, each with the
//! number of its request before it. What is handed over is bounded.

use launcher_channel::Reply;
use tokio::sync::oneshot;

// A file of virt-handler is included: the whole crate would bring a client and the network.
#[path = "../../virt-handler/src/launcher/answer.rs"]
mod pending;

/// The part of virt-handler's module of this name that the included file needs.
mod session {
    #[derive(Debug)]
    pub(super) enum CallError {
        Refused {
            reason: String,
            message: String,
            transient: bool,
        },
        TooLarge,
        UnexpectedReply,
    }
}

use pending::{Answer, MAX_CONTENT, Pending};
use session::CallError;

/// A character may have four bytes.
const MAX_REFUSAL: usize = 4 * 1024;

pub fn run(bytes: &[u8]) {
    let mut pending = Pending::default();
    let (sender, mut receiver) = oneshot::channel();
    pending.insert(0, sender);
    let (sender, _) = oneshot::channel();
    pending.insert(1, sender);
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some((id, reply)) = line.split_first() else {
            continue;
        };
        if let Ok(reply) = serde_json::from_slice::<Reply>(reply) {
            pending.receive(u64::from(id & 1), reply);
        }
    }
    match receiver.try_recv() {
        Ok(Ok(Answer::Content(content))) => assert!(content.data.len() <= MAX_CONTENT),
        Ok(Err(CallError::Refused {
            reason, message, ..
        })) => {
            assert!(reason.len() <= MAX_REFUSAL && message.len() <= MAX_REFUSAL);
        }
        _ => {}
    }
}
