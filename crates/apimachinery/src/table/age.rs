//! Durations as `kubectl` prints them: at most two units, the second only for small values.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Formats a number of seconds.
pub fn human_duration(seconds: i64) -> String {
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two_units(s, MINUTES, SECONDS),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two_units(s, HOURS, MINUTES),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two_units(s, DAYS, HOURS),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two_units(s, YEARS, DAYS),
        s => format!("{}y", s / YEAR),
    }
}

#[derive(Debug, Clone, Copy)]
struct Unit {
    seconds: i64,
    suffix: char,
}

const fn unit(seconds: i64, suffix: char) -> Unit {
    Unit { seconds, suffix }
}

const SECONDS: Unit = unit(1, 's');
const MINUTES: Unit = unit(MINUTE, 'm');
const HOURS: Unit = unit(HOUR, 'h');
const DAYS: Unit = unit(DAY, 'd');
const YEARS: Unit = unit(YEAR, 'y');

fn two_units(seconds: i64, large: Unit, small: Unit) -> String {
    let (whole, rest) = (
        seconds / large.seconds,
        seconds % large.seconds / small.seconds,
    );
    if rest == 0 {
        format!("{whole}{}", large.suffix)
    } else {
        format!("{whole}{}{rest}{}", large.suffix, small.suffix)
    }
}

/// The time since `time`; `<unknown>` for none.
pub fn age(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(
        || "<unknown>".to_owned(),
        |time| {
            let millis = now.as_millisecond().saturating_sub(time.as_millisecond());
            human_duration(millis.div_euclid(1000))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_match_kubectl() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }
}
