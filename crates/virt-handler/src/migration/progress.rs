//! How far a copy is, for the VMI's status: pure.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    conditions::{self, ConditionValue},
    vmi_status::{VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as Type},
};
use launcher_channel::{MigrationProgress, MigrationReport, MigrationStage as Stage};

/// The condition of the VMI, during the copy only. `False` while the guest writes faster than it is
/// copied.
const CONDITION: &str = "MigrationProgress";
/// How often it is written.
const INTERVAL: SignedDuration = SignedDuration::from_secs(5);
const MIB: u64 = 1 << 20;

pub(crate) fn set(
    list: &mut Vec<VirtualMachineInstanceCondition>,
    report: Option<&MigrationReport>,
    now: &Time,
) {
    let kind = Type::from(CONDITION);
    let copying = report.filter(|report| matches!(report.stage, Stage::Copying | Stage::PostCopy));
    let Some(report) = copying else {
        conditions::remove(list, &kind);
        return;
    };
    let Some(message) = report.progress.as_ref().and_then(message) else {
        return;
    };
    let before = conditions::find(list, &kind).and_then(|one| one.last_probe_time.as_ref());
    if before.is_some_and(|before| now.0.duration_since(before.0).abs() < INTERVAL) {
        return;
    }
    let status = match left(report.progress.as_ref()) {
        Left::Never => conditions::FALSE,
        Left::Seconds(_) | Left::Unknown => conditions::TRUE,
    };
    let value = ConditionValue {
        status,
        reason: "",
        message: &message,
    };
    conditions::set(list, kind.clone(), &value, now);
    for one in list.iter_mut().filter(|one| one.type_ == kind) {
        one.last_probe_time = Some(now.clone());
    }
}

/// The time that the rest of the copy takes.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    Unknown,
    Seconds(u64),
    /// The guest writes at least as fast as it is copied.
    Never,
}

fn left(progress: Option<&MigrationProgress>) -> Left {
    let known = progress.and_then(|progress| Some((progress.remaining_bytes?, progress.rate?)));
    let Some((remaining, rate)) = known.filter(|(_, rate)| *rate > 0) else {
        return Left::Unknown;
    };
    let dirty = progress.and_then(|progress| progress.dirty_rate);
    match rate.saturating_sub(dirty.unwrap_or(0)) {
        0 => Left::Never,
        net => Left::Seconds(remaining.div_ceil(net)),
    }
}

/// It begins with two numbers of MiB, which `virtctl migrate --watch` reads.
fn message(progress: &MigrationProgress) -> Option<String> {
    let (total, remaining) = (progress.total_bytes?, progress.remaining_bytes?);
    let given = |bytes: Option<u64>, before: &str, after: &str| {
        bytes.map_or_else(String::new, |bytes| {
            format!("{before}{} MiB{after}", mib(bytes))
        })
    };
    let copied = given(progress.processed_bytes, ", ", " were copied");
    let rate = given(progress.rate, "; ", " a second are copied");
    let dirty_rate = given(progress.dirty_rate, ", the guest writes ", " a second");
    let left = match left(Some(progress)) {
        Left::Unknown => String::new(),
        Left::Seconds(seconds) => format!("; about {seconds} s are left"),
        Left::Never => "; it does not end like this".to_owned(),
    };
    let (remaining, total) = (mib(remaining), mib(total));
    Some(format!(
        "{remaining} of {total} MiB remain{copied}{rate}{dirty_rate}{left}"
    ))
}

/// With one decimal.
fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / MIB;
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kubevirt_api::conditions::Condition as _;

    use super::*;

    fn at(seconds: i64) -> Time {
        Time(Timestamp::from_second(1_700_000_000 + seconds).unwrap())
    }

    fn report(stage: Stage, remaining_mib: u64, rate: u64, dirty_rate: u64) -> MigrationReport {
        MigrationReport {
            id: "m".to_owned(),
            stage,
            progress: Some(MigrationProgress {
                total_bytes: Some(96 * MIB),
                remaining_bytes: Some(remaining_mib * MIB),
                processed_bytes: Some(15 * MIB + MIB / 2),
                rate: Some(rate * MIB),
                dirty_rate: Some(dirty_rate * MIB),
                ..MigrationProgress::default()
            }),
            can_switch: false,
            needs_no_switch: false,
            paused: false,
        }
    }

    fn shown(list: &[VirtualMachineInstanceCondition]) -> Option<(&str, &str)> {
        let found = conditions::find(list, &Type::from(CONDITION))?;
        Some((found.status(), found.message()))
    }

    #[test]
    fn vmi_shows_the_copy_while_it_lasts_and_not_too_often() {
        let mut list = Vec::new();
        set(&mut list, None, &at(0));
        assert_eq!(list, []);
        set(&mut list, Some(&report(Stage::Copying, 81, 30, 3)), &at(0));
        let first = "81.0 of 96.0 MiB remain, 15.5 MiB were copied; 30.0 MiB a second are copied, \
                     the guest writes 3.0 MiB a second; about 3 s are left";
        assert_eq!(shown(&list), Some(("True", first)));
        set(&mut list, Some(&report(Stage::Copying, 60, 30, 3)), &at(4));
        assert_eq!(shown(&list), Some(("True", first)));
        set(&mut list, Some(&report(Stage::Copying, 60, 30, 30)), &at(5));
        let (status, message) = shown(&list).unwrap();
        assert_eq!(status, "False");
        assert!(
            message.ends_with("; it does not end like this"),
            "{message}"
        );
        set(
            &mut list,
            Some(&report(Stage::PostCopy, 30, 30, 0)),
            &at(10),
        );
        let (status, message) = shown(&list).unwrap();
        assert_eq!(status, "True");
        assert!(message.starts_with("30.0 of 96.0 MiB"), "{message}");
        set(&mut list, Some(&report(Stage::Done, 0, 0, 0)), &at(11));
        assert_eq!(list, []);
    }

    #[test]
    fn rest_of_the_time_is_known_once_there_is_a_rate() {
        let check = |remaining, rate, dirty_rate, expected| {
            let progress = MigrationProgress {
                remaining_bytes: remaining,
                rate,
                dirty_rate,
                ..MigrationProgress::default()
            };
            assert_eq!(left(Some(&progress)), expected, "{progress:?}");
        };
        check(None, Some(1), None, Left::Unknown);
        check(Some(10), Some(0), None, Left::Unknown);
        check(Some(10), Some(4), None, Left::Seconds(3));
        check(Some(10), Some(4), Some(2), Left::Seconds(5));
        check(Some(10), Some(4), Some(5), Left::Never);
    }
}
