//! Limits on the time of a copy: pure.

use std::time::Duration;

use kubevirt_api::{migration::VmimConfigurationOptions, quantity::Amount};
use launcher_channel::{MigrationProgress, MigrationReport};
use tokio::time::Instant;

/// Seconds per GiB, unless the configuration sets another value.
const COMPLETION_SECONDS_PER_GIB: i64 = 150;
/// Seconds without progress, unless the configuration sets another value.
const PROGRESS_SECONDS: i64 = 150;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// The limits of one migration. Zero is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    completion_per_gib: Duration,
    progress: Duration,
    at_completion: AtCompletion,
}

/// What follows when a copy is not complete in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtCompletion {
    End,
    /// It is switched to post-copy. One that cannot be switched ends after the same time again.
    Switch,
    /// Its guest is paused. If it is not complete after the same time again, it ends all the same.
    Pause,
}

/// What a late copy needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Due {
    #[default]
    Nothing,
    /// The switch to post-copy, or the pause of the guest.
    PostCopy,
}

impl Due {
    /// What is to be asked of the launcher with this report.
    pub(super) fn of(self, report: Option<&MigrationReport>) -> Self {
        match report {
            Some(report) if report.needs_no_switch => Self::Nothing,
            _ => self,
        }
    }
}

/// Whether the settings allow post-copy at all.
pub(super) fn allows_post_copy(written: Option<&VmimConfigurationOptions>) -> bool {
    let post_copy = written.and_then(|all| all.allow_post_copy);
    let disruption = written.and_then(|all| all.allow_workload_disruption);
    post_copy == Some(true) && disruption.unwrap_or(true)
}

/// Whether a guest that writes too fast is paused.
pub(super) fn allows_pause(written: Option<&VmimConfigurationOptions>) -> bool {
    let disruption = written.and_then(|all| all.allow_workload_disruption);
    disruption == Some(true) && written.and_then(|all| all.allow_post_copy) != Some(true)
}

/// What follows when a copy of a launcher with this report is late.
pub(super) fn at_completion(
    written: Option<&VmimConfigurationOptions>,
    report: Option<&MigrationReport>,
) -> AtCompletion {
    match report {
        Some(report) if report.can_switch && allows_pause(written) => AtCompletion::Pause,
        Some(report) if report.can_switch => AtCompletion::Switch,
        _ => AtCompletion::End,
    }
}

impl Limits {
    pub(super) fn of(
        written: Option<&VmimConfigurationOptions>,
        at_completion: AtCompletion,
    ) -> Self {
        let seconds = |value: Option<i64>, default: i64| {
            let seconds = u64::try_from(value.unwrap_or(default)).unwrap_or(0);
            Duration::from_secs(seconds)
        };
        Self {
            completion_per_gib: seconds(
                written.and_then(|all| all.completion_timeout_per_gib),
                COMPLETION_SECONDS_PER_GIB,
            ),
            progress: seconds(
                written.and_then(|all| all.progress_timeout),
                PROGRESS_SECONDS,
            ),
            at_completion,
        }
    }
}

/// The bandwidth limit in MiB a second; `None` without a limit.
pub(super) fn bandwidth_mib(written: Option<&VmimConfigurationOptions>) -> Option<u64> {
    let quantity = written?.bandwidth_per_migration.as_ref()?;
    let bytes = Amount::parse(quantity).ok()?.millis() / 1000;
    (bytes > 0).then(|| bytes.div_ceil(MIB))
}

/// The progress of a copy so far.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    began: Instant,
    /// The bytes that were left at last.
    remaining: Option<u64>,
    /// When fewer bytes were left than before. A guest that writes much has its memory copied again and again, so it
    /// is the step that counts, and not the least ever.
    progressed: Instant,
    overrun: Option<String>,
    is_switch_due: bool,
}

impl Watch {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            remaining: None,
            progressed: now,
            overrun: None,
            is_switch_due: false,
        }
    }

    /// What has to happen with the copy, from the first time on.
    pub(super) fn due(&self) -> Due {
        if self.is_switch_due {
            Due::PostCopy
        } else {
            Due::Nothing
        }
    }

    /// Notes the progress; returns why the copy has to end, from the first time on.
    pub(super) fn observe(
        &mut self,
        limits: Limits,
        progress: Option<&MigrationProgress>,
        now: Instant,
    ) -> Option<&str> {
        let remaining = progress.and_then(|progress| progress.remaining_bytes);
        if let Some(remaining) = remaining {
            if self.remaining.is_none_or(|before| remaining < before) {
                self.progressed = now;
            }
            self.remaining = Some(remaining);
        }
        let is_late = limits.at_completion != AtCompletion::End
            && self
                .completion(limits, progress, now)
                .is_some_and(|time| time.elapsed >= time.limit);
        self.is_switch_due |= is_late;
        if self.overrun.is_none() {
            self.overrun = self.exceeded(limits, progress, now);
        }
        self.overrun.as_deref()
    }

    fn exceeded(
        &self,
        limits: Limits,
        progress: Option<&MigrationProgress>,
        now: Instant,
    ) -> Option<String> {
        let stalled = now.duration_since(self.progressed);
        if !limits.progress.is_zero() && stalled >= limits.progress {
            let seconds = limits.progress.as_secs();
            return Some(format!(
                "no progress for {seconds} s (migrations.progressTimeout): the guest may change its \
                 memory faster than it is copied"
            ));
        }
        let Time {
            elapsed,
            limit,
            gib,
        } = self.completion(limits, progress, now)?;
        let (limit, detail) = match limits.at_completion {
            AtCompletion::End => (limit, ""),
            AtCompletion::Switch => (
                limit.saturating_mul(2),
                ", and QEMU does not switch to post-copy",
            ),
            AtCompletion::Pause => (
                limit.saturating_mul(2),
                ", though the guest was paused for the second half",
            ),
        };
        (elapsed >= limit).then(|| {
            format!(
                "not complete after {} s for {gib} GiB (migrations.completionTimeoutPerGiB){detail}",
                limit.as_secs()
            )
        })
    }

    /// The time for the whole copy; `None` if its size is unknown, or if it has no limit.
    fn completion(
        &self,
        limits: Limits,
        progress: Option<&MigrationProgress>,
        now: Instant,
    ) -> Option<Time> {
        let total = progress.and_then(|progress| progress.total_bytes)?;
        let gib = u32::try_from(total.div_ceil(GIB).max(1)).unwrap_or(u32::MAX);
        let limit = limits.completion_per_gib.saturating_mul(gib);
        let elapsed = progress.and_then(|progress| progress.elapsed_ms);
        let elapsed = elapsed.map_or_else(|| now.duration_since(self.began), Duration::from_millis);
        (!limit.is_zero()).then_some(Time {
            elapsed,
            limit,
            gib,
        })
    }
}

/// How long a copy takes, and may take.
#[derive(Debug, Clone, Copy)]
struct Time {
    elapsed: Duration,
    limit: Duration,
    gib: u32,
}

#[cfg(test)]
mod tests {
    use launcher_channel::MigrationStage;
    use serde_json::json;

    use super::*;

    fn written(value: serde_json::Value) -> VmimConfigurationOptions {
        serde_json::from_value(value).unwrap()
    }

    fn progress(seconds: u64, remaining: u64) -> MigrationProgress {
        MigrationProgress {
            elapsed_ms: Some(seconds * 1000),
            total_bytes: Some(GIB + 1),
            remaining_bytes: Some(remaining),
            ..MigrationProgress::default()
        }
    }

    #[test]
    fn stalled_copy_is_ended_and_one_with_progress_goes_on() {
        let settings = written(json!({"completionTimeoutPerGiB": 0}));
        let limits = Limits::of(Some(&settings), AtCompletion::End);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut watch = Watch::new(start);
        for (seconds, remaining) in [(1, 900), (100, 800), (200, 800), (249, 850)] {
            let progress = progress(seconds, remaining);
            assert_eq!(watch.observe(limits, Some(&progress), at(seconds)), None);
        }
        let late = progress(250, 850);
        let found = watch.observe(limits, Some(&late), at(250)).unwrap();
        assert!(
            found.contains("150 s (migrations.progressTimeout)"),
            "{found}"
        );
        // It stays ended, whatever follows.
        let ended = progress(251, 1);
        assert!(watch.observe(limits, Some(&ended), at(251)).is_some());
        // Without any report, too.
        let mut silent = Watch::new(start);
        assert!(silent.observe(limits, None, at(150)).is_some());
    }

    /// Issue: a guest that writes faster than it is copied was cancelled before it could be switched.
    #[test]
    fn copy_of_a_busy_guest_lasts_until_its_time_is_over() {
        let limits = Limits::of(None, AtCompletion::Switch);
        let start = Instant::now();
        let mut watch = Watch::new(start);
        for seconds in 1..300 {
            // All of its memory is copied every ten seconds, and is never less than it was at first.
            let remaining = 100 + 10 * (10 - seconds % 10) + seconds;
            let now = start + Duration::from_secs(seconds);
            let found = watch.observe(limits, Some(&progress(seconds, remaining)), now);
            assert_eq!(found, None, "{seconds}");
            assert_eq!(watch.due(), Due::Nothing, "{seconds}");
        }
        let now = start + Duration::from_mins(5);
        let found = watch.observe(limits, Some(&progress(300, 500)), now);
        assert_eq!(found, None);
        assert_eq!(watch.due(), Due::PostCopy);
    }

    #[test]
    fn time_grows_with_the_size() {
        let settings = written(json!({"progressTimeout": 0}));
        let limits = Limits::of(Some(&settings), AtCompletion::End);
        let start = Instant::now();
        let mut watch = Watch::new(start);
        assert_eq!(watch.observe(limits, Some(&progress(299, 5)), start), None);
        let found = watch.observe(limits, Some(&progress(300, 4)), start);
        assert!(found.unwrap().contains("after 300 s for 2 GiB"));
        let default = Limits::of(None, AtCompletion::End);
        assert_eq!(default.completion_per_gib.as_secs(), 150);
        assert_eq!(watch.due(), Due::Nothing);
    }

    #[test]
    fn copy_that_may_be_switched_has_its_time_twice() {
        let settings = written(json!({"progressTimeout": 0}));
        let limits = Limits::of(Some(&settings), AtCompletion::Switch);
        let start = Instant::now();
        let mut watch = Watch::new(start);
        for (seconds, due, has_ended) in [
            (299, Due::Nothing, false),
            (300, Due::PostCopy, false),
            // It stays due, whatever follows.
            (299, Due::PostCopy, false),
            (599, Due::PostCopy, false),
            (600, Due::PostCopy, true),
        ] {
            let overrun = watch.observe(limits, Some(&progress(seconds, 5)), start);
            let overrun = overrun.map(str::to_owned);
            assert_eq!(overrun.is_some(), has_ended, "{seconds}: {overrun:?}");
            assert_eq!(watch.due(), due, "{seconds}");
        }
        // One that stands still is not helped by post-copy: its connection does not work.
        let limits = Limits::of(None, AtCompletion::Switch);
        let mut stalled = Watch::new(start);
        let late = start + Duration::from_secs(150);
        assert!(
            stalled
                .observe(limits, Some(&progress(1, 5)), start)
                .is_none()
        );
        assert!(
            stalled
                .observe(limits, Some(&progress(151, 5)), late)
                .is_some()
        );
    }

    /// Issue: the launcher was asked each second, and a guest that its user had paused for nothing.
    #[test]
    fn switch_is_asked_for_until_the_launcher_says_enough() {
        let report = |needs_no_switch| MigrationReport {
            id: "m".to_owned(),
            stage: MigrationStage::Copying,
            progress: None,
            can_switch: true,
            needs_no_switch,
            paused: false,
        };
        for (due, report, expected) in [
            (Due::PostCopy, None, Due::PostCopy),
            (Due::PostCopy, Some(report(false)), Due::PostCopy),
            (Due::PostCopy, Some(report(true)), Due::Nothing),
            (Due::Nothing, Some(report(false)), Due::Nothing),
        ] {
            assert_eq!(due.of(report.as_ref()), expected, "{due:?} {report:?}");
        }
    }

    #[test]
    fn guest_is_paused_only_where_post_copy_is_not_allowed() {
        let report = |can_switch| MigrationReport {
            id: "m".to_owned(),
            stage: MigrationStage::Copying,
            progress: None,
            can_switch,
            needs_no_switch: false,
            paused: false,
        };
        let (knows, knows_not) = (report(true), report(false));
        for (settings, report, expected) in [
            (json!({}), &knows_not, AtCompletion::End),
            (
                json!({"allowWorkloadDisruption": true}),
                &knows,
                AtCompletion::Pause,
            ),
            // A launcher of an earlier version.
            (
                json!({"allowWorkloadDisruption": true}),
                &knows_not,
                AtCompletion::End,
            ),
            (
                json!({"allowWorkloadDisruption": true, "allowPostCopy": false}),
                &knows,
                AtCompletion::Pause,
            ),
            (
                json!({"allowWorkloadDisruption": true, "allowPostCopy": true}),
                &knows,
                AtCompletion::Switch,
            ),
            (json!({"allowPostCopy": true}), &knows, AtCompletion::Switch),
        ] {
            let found = at_completion(Some(&written(settings.clone())), Some(report));
            assert_eq!(found, expected, "{settings}");
        }
        for settings in [
            json!({}),
            json!({"allowWorkloadDisruption": false}),
            json!({"allowPostCopy": true, "allowWorkloadDisruption": true}),
        ] {
            assert!(
                !allows_pause(Some(&written(settings.clone()))),
                "{settings}"
            );
        }
        // It has its time twice, as with post-copy.
        let settings = written(json!({"progressTimeout": 0}));
        let limits = Limits::of(Some(&settings), AtCompletion::Pause);
        let start = Instant::now();
        let mut watch = Watch::new(start);
        for (seconds, due, has_ended) in [
            (299, Due::Nothing, false),
            (300, Due::PostCopy, false),
            (600, Due::PostCopy, true),
        ] {
            let overrun = watch.observe(limits, Some(&progress(seconds, 5)), start);
            assert_eq!(overrun.is_some(), has_ended, "{seconds}");
            assert_eq!(watch.due(), due, "{seconds}");
        }
    }

    #[test]
    fn post_copy_needs_permission_to_disrupt_the_guest() {
        for (settings, expected) in [
            (json!({}), false),
            (json!({"allowPostCopy": false}), false),
            (json!({"allowPostCopy": true}), true),
            (json!({"allowWorkloadDisruption": true}), false),
            (
                json!({"allowPostCopy": true, "allowWorkloadDisruption": false}),
                false,
            ),
        ] {
            let found = allows_post_copy(Some(&written(settings.clone())));
            assert_eq!(found, expected, "{settings}");
        }
        assert!(!allows_post_copy(None));
    }

    #[test]
    fn bandwidth_is_rounded_up_and_zero_is_no_limit() {
        for (value, expected) in [("64Mi", Some(64)), ("1", Some(1)), ("0", None)] {
            let written = written(json!({"bandwidthPerMigration": value}));
            assert_eq!(bandwidth_mib(Some(&written)), expected, "{value}");
        }
        assert_eq!(bandwidth_mib(None), None);
    }
}
