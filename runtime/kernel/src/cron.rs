//! Schedules: cron patterns of five fields, in UTC.
//!
//! Parses patterns and computes the next time. Knows no clock: the time is an argument.

use std::fmt;

use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp as Moment;
use jiff::tz::TimeZone;

use crate::id::Timestamp;

/// Maximum length of a pattern, in bytes.
const TEXT_MAX: usize = 200;

/// Recurring times.
#[derive(Clone)]
pub struct Cron(croner::Cron);

impl Cron {
    /// Parses minute, hour, day of the month, month, day of the week; or `@hourly`, `@daily`, `@weekly`, `@monthly`,
    /// `@yearly`. Fails for a malformed pattern, or one without any time, with a message for people.
    pub fn parse(pattern: &str) -> Result<Self, String> {
        if pattern.len() > TEXT_MAX {
            return Err(format!("a pattern has at most {TEXT_MAX} characters"));
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = Self(parser.parse(pattern).map_err(|error| error.to_string())?);
        // The calendar repeats after four hundred years, so any pattern with a time has one within them.
        match cron.next(Timestamp(0)) {
            Some(_) => Ok(cron),
            None => Err("there is no such day".to_owned()),
        }
    }

    /// Returns the first time after this one; `None` beyond the end of the calendar.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = Moment::from_millisecond(after.0).ok()?.to_zoned(TimeZone::UTC);
        let next = self.0.find_next_occurrence(&after, false).ok()?;
        Some(Timestamp(next.timestamp().as_millisecond()))
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

#[cfg(test)]
mod tests;
