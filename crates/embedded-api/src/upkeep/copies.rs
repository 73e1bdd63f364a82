//! Keeps copies of the database: one every few hours, the latest few.

use std::{fs, io, path::PathBuf, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{api::Api, store::StoreError};

/// Where copies are kept, and how many.
#[derive(Debug, Clone)]
pub struct Copies {
    /// The directory of the copies and of nothing else; created if it is missing.
    pub dir: PathBuf,
    pub keep: usize,
}

/// The age of the latest copy at which the next one is made.
const AGE: SignedDuration = SignedDuration::from_hours(6);
const PERIOD: Duration = Duration::from_mins(10);
const PREFIX: &str = "api-";
const SUFFIX: &str = ".db";

pub(crate) async fn run(api: Api, copies: Copies, stop: CancellationToken) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let (server, settings) = (api.clone(), copies.clone());
        let kept = tokio::task::spawn_blocking(move || keep(&server, &settings)).await;
        if let Err(error) = kept.unwrap_or_else(|error| Err(error.into())) {
            let reason = error.reason();
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                %reason,
                dir = %copies.dir.display(),
                "copying the database failed, will retry"
            );
        }
    }
}

/// Makes a copy if one is due. Blocks.
fn keep(api: &Api, copies: &Copies) -> Result<(), StoreError> {
    let failed = |source| StoreError::File {
        path: copies.dir.clone(),
        source,
    };
    let now = api.clock.now();
    let mut present = present(copies).map_err(failed)?;
    if !is_due(&present, now) {
        return Ok(());
    }
    api.store.copy_to(&copies.dir.join(name_of(now)))?;
    present.push(name_of(now));
    for name in surplus(present, copies.keep, now) {
        fs::remove_file(copies.dir.join(name)).map_err(failed)?;
    }
    Ok(())
}

/// The names of the copies.
fn present(copies: &Copies) -> io::Result<Vec<String>> {
    durable_file::create_directory(&copies.dir)?;
    let names = fs::read_dir(&copies.dir)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| time_of(name).is_some());
    Ok(names.collect())
}

fn name_of(time: Timestamp) -> String {
    let seconds = Timestamp::from_second(time.as_second()).unwrap_or(time);
    format!("{PREFIX}{seconds}{SUFFIX}")
}

fn time_of(name: &str) -> Option<Timestamp> {
    let time = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    time.parse().ok()
}

/// A copy from the future was made under a wrong clock, and must not prevent the next one.
fn is_due(present: &[String], now: Timestamp) -> bool {
    !present
        .iter()
        .filter_map(|name| time_of(name))
        .any(|time| time <= now && now.duration_since(time) < AGE)
}

/// The oldest names beyond the number to keep. Those from the future were made under a wrong clock and come
/// first: otherwise they would take the places of all later copies.
fn surplus(mut names: Vec<String>, keep: usize, now: Timestamp) -> Vec<String> {
    names.sort_by_key(|name| {
        let time = time_of(name);
        (time.is_none_or(|time| time <= now), time)
    });
    let count = names.len().saturating_sub(keep.max(1));
    names.truncate(count);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hour * 3600).unwrap()
    }

    #[test]
    fn copy_is_made_every_six_hours() {
        for (case, present, expected) in [
            ("none yet", vec![], true),
            ("recent", vec![0], false),
            ("old", vec![-7], true),
            ("old and recent", vec![-7, -5], false),
            ("made under a wrong clock", vec![90_000], true),
        ] {
            let present: Vec<String> = present.into_iter().map(|hour| name_of(at(hour))).collect();
            assert_eq!(is_due(&present, at(0)), expected, "{case}");
        }
    }

    #[test]
    fn the_latest_copies_are_kept() {
        let names: Vec<String> = [3, 1, 2].map(|hour| name_of(at(hour))).into();
        assert_eq!(surplus(names.clone(), 2, at(3)), [name_of(at(1))]);
        assert_eq!(surplus(names.clone(), 3, at(3)), Vec::<String>::new());
        assert_eq!(
            surplus(names, 0, at(3)).len(),
            2,
            "the latest copy is never removed"
        );
        // Two were made while the clock was ten years ahead.
        let wrong = [1, 90_000, 2, 90_006, 3].map(|hour| name_of(at(hour)));
        let removed = [90_000, 90_006].map(|hour| name_of(at(hour)));
        assert_eq!(surplus(wrong.into(), 3, at(3)), removed);
        assert_eq!(time_of("api-x.db.new"), None);
    }
}
