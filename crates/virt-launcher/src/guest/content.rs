//! Binary answers about the running guest. A task of its own makes them, so that a large one delays
//! nothing.

use std::sync::Arc;

use error_chain::error_chain;
use libvirt::{Connection, Domain};
use tokio::sync::Mutex;

use super::refusal::Refusal;
use super::replies::ReplyTo;
use super::task::Guest;

/// One answer at a time: each is held in memory until the handler has read it.
#[derive(Debug, Clone, Default)]
pub(super) struct ContentTurn(Arc<Mutex<()>>);

/// Bytes and their media type.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) media_type: String,
    pub(super) data: Vec<u8>,
}

impl Guest {
    /// Starts the task that makes the content and replies.
    pub(super) async fn reply_with_content<F>(
        &mut self,
        reply_to: ReplyTo,
        make: impl FnOnce(Connection, Domain) -> F,
    ) -> Result<(), Refusal>
    where
        F: Future<Output = Result<Content, libvirt::Error>> + Send + 'static,
    {
        self.ensure_known().await?;
        let (true, Some(connection), Some(domain)) =
            (self.is_alive(), self.connection(), self.domain())
        else {
            return Err(Refusal::NotRunning);
        };
        let (turn, content) = (self.content_turn.clone(), make(connection, domain));
        self.tasks.spawn(async move {
            let _turn = turn.0.lock().await;
            match content.await {
                Ok(Content { media_type, data }) => {
                    reply_to.send_content(&media_type, &data).await;
                }
                Err(error) => {
                    tracing::warn!(error = error_chain(&error), "no content for the handler");
                    reply_to.send(Refusal::from(error).into_reply());
                }
            }
        });
        Ok(())
    }
}
