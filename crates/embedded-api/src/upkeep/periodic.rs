//! Periodic work: expires old events, and compacts the log of changes.

use std::time::Duration;

use apimachinery::meta;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    error::ApiError,
    fairness::panics::confine_pass,
    store::{Bound, Collection, Scope, StoreError},
};

/// The lifetime of events in kube-apiserver.
const EVENT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Changes kept for watchers to catch up. They have 5 to 10 KB each, unless a user writes large objects.
const RETAINED: Bound = Bound {
    count: 2000,
    bytes: 256 << 20,
};
const PERIOD: Duration = Duration::from_mins(1);
const CHUNK: usize = 100;

pub(crate) async fn run(api: Api, stop: CancellationToken) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = api.store.compact(RETAINED).await {
            let reason = error.reason();
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                %reason,
                "compaction failed"
            );
        }
        if let Err(error) = confine_pass(expire_events(&api)).await {
            tracing::warn!(%error, "expiry of events failed");
        }
    }
}

async fn expire_events(api: &Api) -> Result<(), ApiError> {
    let events = Collection::new("", "events");
    let now = api.clock.now();
    let mut after = None;
    loop {
        let page = api
            .store
            .list(&Scope::all(events.clone()), after, Some(CHUNK))
            .await?;
        for stored in page.items {
            let event = stored.parse()?;
            if has_expired(&event, now) {
                let key = events.key(meta::namespace(&event), meta::name(&event));
                match api.store.delete(&key, stored.revision, event).await {
                    // It was updated again, or removed already.
                    Ok(_) | Err(StoreError::Conflict) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        match page.more {
            Some(more) => after = Some(more.after),
            None => return Ok(()),
        }
    }
}

/// Whether the latest time of an event is too long ago. Times in the future are ignored: clients choose some of
/// them, and a clock may have been wrong.
fn has_expired(event: &Value, now: Timestamp) -> bool {
    let times = [
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["series"]["lastObservedTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    let latest = times
        .into_iter()
        .filter_map(Value::as_str)
        .filter_map(|time| time.parse().ok())
        .filter(|time: &Timestamp| *time <= now)
        .max();
    latest.is_none_or(|latest| now.duration_since(latest) > EVENT_LIFETIME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_expire_an_hour_after_their_latest_time() {
        let now = "2026-01-02T03:04:05Z".parse().expect("a time");
        for (created, last, expected) in [
            ("2026-01-02T03:00:00Z", None, false),
            ("2026-01-02T02:00:00Z", None, true),
            ("2026-01-02T02:00:00Z", Some("2026-01-02T03:00:00Z"), false),
            ("2026-01-02T02:00:00Z", Some("9999-01-01T00:00:00Z"), true),
            ("2026-01-02T03:00:00Z", Some("9999-01-01T00:00:00Z"), false),
            // Created while the clock was ten years ahead.
            ("2036-01-02T03:00:00Z", None, true),
        ] {
            let event = json!({
                "metadata": {"creationTimestamp": created}, "lastTimestamp": last,
            });
            assert_eq!(has_expired(&event, now), expected, "{created} {last:?}");
        }
    }
}
