//! Schedules in the form of crontab, in UTC.
//!
//! Five fields: minute, hour, day of the month, month, day of the week, each `*`, a number or name, a range, steps
//! (`*/5`, `10-40/15`), or a list of these; or one of `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly` and their
//! other names. If both days are restricted, a day that fits one of them counts, as in every cron.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// The longest text of a schedule.
const MOST_BYTES: usize = 256;
/// A schedule without a day in so many has none at all, as the 30th of February.
const MOST_DAYS: i32 = 366 * 9;
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const NAMED: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The minutes at which something happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Schedule {
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
    either_day: bool,
}

/// A text that is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScheduleError {
    #[error("it is longer than {MOST_BYTES} characters")]
    TooLong,
    #[error("it has {0} fields: give minute, hour, day, month and weekday, as in \"30 1 * * 1\"")]
    Fields(usize),
    #[error("{0} is not known: use @hourly, @daily, @weekly, @monthly or @yearly")]
    Name(String),
    #[error("{text:?} is not a {field}: {least} to {most}, *, a range, steps or a list of these")]
    Field {
        field: &'static str,
        text: String,
        least: u8,
        most: u8,
    },
}

/// A set of numbers below 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set(u64);

impl Set {
    fn has(self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| number < 64 && self.0 >> number & 1 == 1)
    }
}

/// A field of a schedule.
struct Field {
    name: &'static str,
    least: u8,
    most: u8,
    names: &'static [&'static str],
}

impl Field {
    fn parse(&self, text: &str) -> Result<Set, ScheduleError> {
        let mut set = 0;
        for item in text.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => (range, Some(step)),
                None => (item, None),
            };
            let step_by = match step {
                Some(step) => number(step).filter(|step| *step > 0),
                None => Some(1),
            };
            let bounds = match range.split_once('-') {
                _ if range == "*" => Some((self.least, self.most)),
                Some((from, to)) => self.value(from).zip(self.value(to)),
                // Steps from a number go to the end.
                None => self
                    .value(range)
                    .map(|from| (from, if step.is_some() { self.most } else { from })),
            };
            let found = bounds.zip(step_by).filter(|((from, to), _)| from <= to);
            let Some(((from, to), step)) = found else {
                return Err(ScheduleError::Field {
                    field: self.name,
                    text: item.to_owned(),
                    least: self.least,
                    most: self.most,
                });
            };
            for number in (from..=to).step_by(usize::from(step)) {
                set |= 1 << number;
            }
        }
        Ok(Set(set))
    }

    fn value(&self, text: &str) -> Option<u8> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let named = named.and_then(|at| u8::try_from(at).ok());
        let value = named.map(|at| at + self.least).or_else(|| number(text))?;
        (self.least..=self.most).contains(&value).then_some(value)
    }
}

/// Digits only, without a sign.
fn number(text: &str) -> Option<u8> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

impl Schedule {
    pub(super) fn parse(text: &str) -> Result<Self, ScheduleError> {
        if text.len() > MOST_BYTES {
            return Err(ScheduleError::TooLong);
        }
        let text = text.trim();
        let text = if text.starts_with('@') {
            let named = NAMED.iter().find(|(name, _)| *name == text);
            named
                .ok_or_else(|| ScheduleError::Name(text.to_owned()))?
                .1
        } else {
            text
        };
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(ScheduleError::Fields(fields.len()));
        };
        let field = |name, least, most, names| Field {
            name,
            least,
            most,
            names,
        };
        let Set(weekdays) = field("day of the week", 0, 7, &DAYS).parse(weekday)?;
        Ok(Self {
            minutes: field("minute", 0, 59, &[]).parse(minute)?,
            hours: field("hour", 0, 23, &[]).parse(hour)?,
            days: field("day of the month", 1, 31, &[]).parse(day)?,
            months: field("month", 1, 12, &MONTHS).parse(month)?,
            // Both 0 and 7 are Sunday.
            weekdays: Set((weekdays | weekdays >> 7) & 0x7f),
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
        })
    }

    /// The first minute after that time; `None` if there is none in the next years.
    pub(super) fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let from = TimeZone::UTC.to_datetime(time);
        let mut date = from.date();
        for _ in 0..MOST_DAYS {
            if self.has_date(date)
                && let Some(time) = self.first_time(date, from)
            {
                let found = date.to_datetime(time).to_zoned(TimeZone::UTC).ok()?;
                return Some(found.timestamp());
            }
            date = date.checked_add(Span::new().days(1)).ok()?;
        }
        None
    }

    fn has_date(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        let fits = if self.either_day {
            day || weekday
        } else {
            day && weekday
        };
        self.months.has(date.month()) && fits
    }

    /// The first time of that day which is later than `from`.
    fn first_time(&self, date: Date, from: DateTime) -> Option<Time> {
        let hours = (0..24).filter(|hour| self.hours.has(*hour));
        let mut times = hours.flat_map(|hour| {
            let minutes = (0..60).filter(|minute| self.minutes.has(*minute));
            minutes.filter_map(move |minute| Time::new(hour, minute, 0, 0).ok())
        });
        times.find(|time| date.to_datetime(*time) > from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_time_follows_from_the_fields() {
        // The 25th of November 2026 is a Wednesday.
        let now: Timestamp = "2026-11-25T12:34:56Z".parse().unwrap();
        for (text, expected) in [
            ("* * * * *", "2026-11-25T12:35:00Z"),
            ("*/15 * * * *", "2026-11-25T12:45:00Z"),
            ("34 12 * * *", "2026-11-26T12:34:00Z"),
            ("35 12 * * *", "2026-11-25T12:35:00Z"),
            ("0,30 13-14 * * *", "2026-11-25T13:00:00Z"),
            ("10-40/15 * * * *", "2026-11-25T12:40:00Z"),
            ("50/5 * * * *", "2026-11-25T12:50:00Z"),
            ("30 1 * * 1", "2026-11-30T01:30:00Z"),
            ("30 1 * * mon", "2026-11-30T01:30:00Z"),
            ("0 0 * * 7", "2026-11-29T00:00:00Z"),
            ("0 0 * * SUN", "2026-11-29T00:00:00Z"),
            ("0 0 * * 5-7", "2026-11-27T00:00:00Z"),
            ("0 0 1 * *", "2026-12-01T00:00:00Z"),
            ("0 0 31 * *", "2026-12-31T00:00:00Z"),
            ("0 0 1 Feb *", "2027-02-01T00:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
            // Either of the two days.
            ("0 0 13 * 5", "2026-11-27T00:00:00Z"),
            ("0 0 26 * 5", "2026-11-26T00:00:00Z"),
            ("@hourly", "2026-11-25T13:00:00Z"),
            ("@daily", "2026-11-26T00:00:00Z"),
            ("@midnight", "2026-11-26T00:00:00Z"),
            ("@weekly", "2026-11-29T00:00:00Z"),
            ("@monthly", "2026-12-01T00:00:00Z"),
            ("@yearly", "2027-01-01T00:00:00Z"),
            ("@annually", "2027-01-01T00:00:00Z"),
            (" 0  0\t* * * ", "2026-11-26T00:00:00Z"),
        ] {
            let schedule = Schedule::parse(text).unwrap();
            let found = schedule.next_after(now).map(|time| time.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
        let never = Schedule::parse("0 0 30 2 *").unwrap();
        assert_eq!(never.next_after(now), None);
        assert_eq!(never.next_after(Timestamp::MAX), None);
    }

    #[test]
    fn text_that_is_no_schedule_is_refused_with_the_field() {
        for (text, part) in [
            ("", "0 fields"),
            ("* * * *", "4 fields"),
            ("* * * * * *", "6 fields"),
            ("60 * * * *", "minute"),
            ("* 24 * * *", "hour"),
            ("* * 0 * *", "day of the month"),
            ("* * 32 * *", "day of the month"),
            ("* * * 13 *", "month"),
            ("* * * abc *", "month"),
            ("* * * * 8", "day of the week"),
            ("*/0 * * * *", "minute"),
            ("5-1 * * * *", "minute"),
            ("+5 * * * *", "minute"),
            ("1, * * * *", "minute"),
            ("-1 * * * *", "minute"),
            ("999 * * * *", "minute"),
            ("@reboot", "@reboot is not known"),
        ] {
            let error = Schedule::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let long = "1,".repeat(MOST_BYTES);
        assert_eq!(Schedule::parse(&long), Err(ScheduleError::TooLong));
    }

    proptest::proptest! {
        #[test]
        fn next_time_is_later_and_the_same_for_every_earlier_start(
            minute in 0..60u8, hour in 0..24u8, weekday in 0..8u8, seconds in 0..2_000_000_000i64,
        ) {
            let text = format!("{minute} {hour} * * {weekday}");
            let schedule = Schedule::parse(&text).unwrap();
            let start = Timestamp::from_second(seconds).unwrap();
            let next = schedule.next_after(start).unwrap();
            proptest::prop_assert!(next > start);
            proptest::prop_assert!(next.as_second() - seconds <= 7 * 86_400);
            let before = Timestamp::from_second(next.as_second() - 1).unwrap();
            proptest::prop_assert_eq!(schedule.next_after(before), Some(next));
        }

        #[test]
        fn no_text_is_too_much(text in ".{0,64}") {
            if let Ok(schedule) = Schedule::parse(&text) {
                let _next = schedule.next_after(Timestamp::UNIX_EPOCH);
            }
        }
    }
}
