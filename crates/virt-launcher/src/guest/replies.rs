//! Replies to the handler's requests.

use launcher_channel::{FromLauncher, Part, Reply};
use tokio::sync::mpsc;

/// Where the reply to a request goes.
#[derive(Debug, Clone)]
pub(super) struct ReplyTo {
    pub(super) id: u64,
    pub(super) channel: mpsc::Sender<FromLauncher>,
}

impl ReplyTo {
    /// The handler may have disconnected or stopped reading: it repeats the request either way.
    pub(super) fn send(&self, reply: Reply) {
        let id = self.id;
        if let Err(error) = self.channel.try_send(FromLauncher::Reply { id, reply }) {
            tracing::info!(%error, "reply dropped: the handler does not read it");
        }
    }

    /// Sends binary content in parts, each when the handler has read the ones before.
    pub(super) async fn send_content(&self, media_type: &str, content: &[u8]) {
        let id = self.id;
        for part in Part::split(media_type, content) {
            let reply = Reply::Part(part);
            let message = FromLauncher::Reply { id, reply };
            if self.channel.send(message).await.is_err() {
                tracing::info!("content dropped: the handler has disconnected");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use launcher_channel::MAX_PART;

    use super::*;

    #[tokio::test]
    async fn content_waits_for_a_handler_that_reads_slowly() {
        let (channel, mut replies) = mpsc::channel(1);
        let reply_to = ReplyTo { id: 7, channel };
        let content = vec![1; 3 * MAX_PART + 1];
        let read = async {
            let mut lengths = vec![];
            while let Some(FromLauncher::Reply { id: 7, reply }) = replies.recv().await {
                let Reply::Part(part) = reply else {
                    panic!("{reply:?}");
                };
                lengths.push(part.data.len());
                if !part.more {
                    break;
                }
            }
            lengths
        };
        let ((), lengths) = tokio::join!(reply_to.send_content("image/png", &content), read);
        assert_eq!(lengths, [MAX_PART, MAX_PART, MAX_PART, 1]);
    }
}
