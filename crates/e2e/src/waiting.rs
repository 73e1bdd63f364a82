//! Waits for conditions with a deadline, and reports the last state when it passes.

use std::{fmt::Debug, time::Duration};

use kube::{Api, api::DynamicObject, runtime::wait::await_condition};
use serde_json::Value;

/// Generous enough for a busy host with emulated guests.
pub const DEADLINE: Duration = Duration::from_mins(5);
/// The polling interval for what cannot be watched.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// Watches an object until `condition` holds; `Null` stands for a missing object.
#[track_caller]
pub fn wait_for<'a>(
    api: &'a Api<DynamicObject>,
    name: &'a str,
    what: &'a str,
    condition: impl Fn(&Value) -> bool + Send + 'a,
) -> impl Future<Output = Value> + 'a {
    wait_for_within(DEADLINE, api, name, what, condition)
}

/// Like [`wait_for`], with another deadline.
#[track_caller]
pub fn wait_for_within<'a>(
    patience: Duration,
    api: &'a Api<DynamicObject>,
    name: &'a str,
    what: &'a str,
    condition: impl Fn(&Value) -> bool + Send + 'a,
) -> impl Future<Output = Value> + 'a {
    let caller = std::panic::Location::caller();
    let json = |object: Option<&DynamicObject>| {
        object.map_or(Value::Null, |object| {
            serde_json::to_value(object).unwrap_or_default()
        })
    };
    let holds = move |object: Option<&DynamicObject>| condition(&json(object));
    async move {
        let waited =
            tokio::time::timeout(patience, await_condition(api.clone(), name, holds)).await;
        match waited {
            Ok(object) => {
                let object = object.unwrap_or_else(|err| panic!("{caller}: watch {name}: {err}"));
                json(object.as_ref())
            }
            Err(_elapsed) => {
                let seen = api.get_opt(name).await;
                let seen = seen.map(|object| json(object.as_ref())["status"].take());
                panic!("{caller}: {name} is not {what} within {patience:?}; its status: {seen:#?}")
            }
        }
    }
}

/// Polls until `poll` succeeds.
#[track_caller]
pub fn eventually<T, E: Debug>(
    what: &str,
    mut poll: impl FnMut() -> Result<T, E>,
) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        let until = tokio::time::Instant::now() + DEADLINE;
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            match poll() {
                Ok(found) => return found,
                Err(seen) if tokio::time::Instant::now() > until => {
                    panic!("{caller}: not {what} within {DEADLINE:?}: {seen:?}")
                }
                Err(_not_yet) => {}
            }
        }
    }
}
