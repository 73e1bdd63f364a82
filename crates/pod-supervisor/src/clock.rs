//! Clocks, and RFC 3339 time stamps for logs.

use std::fmt::Write as _;

use rustix::time::{ClockId, Timespec, clock_gettime};

pub(crate) fn now() -> Timespec {
    clock_gettime(ClockId::Realtime)
}

pub(crate) fn now_ms() -> i64 {
    let now = now();
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

/// Monotonic milliseconds that include suspended time.
pub(crate) fn steady_ms() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

/// Appends `2026-11-21T04:00:05.123456789Z`.
pub(crate) fn append_rfc3339(text: &mut String, time: Timespec) {
    let (days, seconds) = (
        time.tv_sec.div_euclid(86_400),
        time.tv_sec.rem_euclid(86_400),
    );
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let nanos = time.tv_nsec;
    write!(
        text,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z"
    )
    .expect("writing to a string cannot fail");
}

/// Days since 1970 to year, month, day; counted in years that begin in March, so that the leap
/// day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    const FOUR_CENTURIES: i64 = 146_097;
    let since_march_of_year_0 = days + 719_468;
    let era = since_march_of_year_0.div_euclid(FOUR_CENTURIES);
    let day_of_era = since_march_of_year_0.rem_euclid(FOUR_CENTURIES);
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rendered_as_rfc_3339() {
        for (seconds, nanos, expected) in [
            (0, 0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, 5, "2000-02-29T00:00:00.000000005Z"),
            (1_795_233_605, 123_456_789, "2026-11-21T04:00:05.123456789Z"),
            (4_107_542_399, 999_999_999, "2100-02-28T23:59:59.999999999Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000000000Z"),
        ] {
            let mut text = String::new();
            append_rfc3339(
                &mut text,
                Timespec {
                    tv_sec: seconds,
                    tv_nsec: nanos,
                },
            );
            assert_eq!(text, expected);
        }
    }
}
