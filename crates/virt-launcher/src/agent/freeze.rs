//! Calls of the agent on demand, and how freezing and thawing move the thaw timer.

use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::{AgentQuestion, AgentReport, FromLauncher, Reply};
use reasons::Reason;

use super::commands::{self, AgentError, Transport};
use super::task::AgentCall;
use super::thaw::ThawTimer;

/// The delay after a failed thaw; it doubles up to [`THAW_RETRY_MAX`].
pub(super) const THAW_RETRY: Duration = Duration::from_secs(5);
pub(super) const THAW_RETRY_MAX: Duration = Duration::from_secs(30);
/// Characters of a refusal.
const MAX_REFUSAL: usize = 300;

/// Whether a call has changed the guest, so that the agent has to be polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Changed,
    Unchanged,
}

/// Makes the call and sends the reply.
pub(super) async fn execute(
    transport: &impl Transport,
    call: AgentCall,
    thaw: &ThawTimer,
) -> Effect {
    let query = call.query;
    if let AgentQuestion::Freeze {
        thaw_after_seconds: Some(seconds),
    } = query
    {
        // Before the freeze: if a process dies from here on, the guest is still thawed.
        schedule(thaw, Duration::from_secs(seconds));
    }
    let outcome = commands::execute(transport, query).await;
    update_timer(thaw, query, &outcome);
    let is_freeze_or_thaw = matches!(query, AgentQuestion::Freeze { .. } | AgentQuestion::Thaw);
    let effect = if is_freeze_or_thaw && outcome.is_ok() {
        Effect::Changed
    } else {
        Effect::Unchanged
    };
    let reply = match outcome {
        Ok(report) => Reply::Agent(Box::new(report)),
        Err(error) => Reply::Refused {
            reason: Reason::AgentUnavailable.into(),
            message: format!("Guest agent call failed: {}.", printable(&error)),
            retry: true,
        },
    };
    let id = call.id;
    if let Err(error) = call.reply_to.try_send(FromLauncher::Reply { id, reply }) {
        tracing::info!(%error, "reply dropped: the handler does not read it");
    }
    effect
}

fn update_timer(thaw: &ThawTimer, query: AgentQuestion, outcome: &Result<AgentReport, AgentError>) {
    match (query, outcome) {
        (AgentQuestion::Freeze { thaw_after_seconds }, Ok(_)) => match thaw_after_seconds {
            Some(seconds) => schedule(thaw, Duration::from_secs(seconds)),
            None => thaw.cancel(),
        },
        // A slow guest may still freeze after the call has failed.
        (AgentQuestion::Freeze { .. }, Err(_)) => schedule(thaw, THAW_RETRY),
        (AgentQuestion::Thaw, Ok(_)) => thaw.cancel(),
        _ => {}
    }
}

/// A deadline that cannot be recorded still holds, unless this launcher dies before it.
fn schedule(thaw: &ThawTimer, after: Duration) {
    if let Err(error) = thaw.schedule(after) {
        tracing::warn!(%error, "failed to record the thaw deadline");
    }
}

/// The error without control characters: libvirt quotes the guest's text.
fn printable(error: &dyn std::error::Error) -> String {
    let text = error_chain(error);
    let plain = text.chars().filter(|char| !char.is_control());
    plain.take(MAX_REFUSAL).collect()
}
