//! Patience with an API server that does not answer, for commands that follow something.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep};

use crate::printer::Printer;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Then the command ends.
const LIMIT: Duration = Duration::from_mins(10);

/// For how long the server has not answered.
#[derive(Debug, Default)]
pub(crate) struct Away {
    since: Option<Instant>,
    pause: Duration,
}

impl Away {
    /// Pauses, longer each time, if the server did not answer; another error, and one that lasts, is returned.
    pub(crate) async fn pause(&mut self, printer: Printer, error: anyhow::Error) -> Result<()> {
        if !error.is::<kube::Error>() {
            return Err(error);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= LIMIT {
            return Err(error).context("the API server has not answered for ten minutes");
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        let seconds = self.pause.as_secs();
        printer.warn(&format!("{error:#}; trying again in {seconds} s"));
        sleep(self.pause).await;
        Ok(())
    }

    /// The server has answered.
    pub(crate) fn is_over(&mut self, printer: Printer) {
        if self.since.is_some() {
            printer.note("The API server answers again.");
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subresource::plain;

    fn lost() -> anyhow::Error {
        plain(kube::Error::LinesCodecMaxLineLengthExceeded)
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_the_command_ends_at_last() {
        let mut away = Away::default();
        let mut pauses = Vec::new();
        loop {
            let begin = Instant::now();
            if let Err(error) = away.pause(Printer, lost()).await {
                assert!(error.to_string().contains("ten minutes"), "{error}");
                break;
            }
            pauses.push(begin.elapsed().as_secs());
        }
        assert_eq!(pauses[..6], [1, 2, 4, 8, 16, 30]);
        assert!(pauses.iter().sum::<u64>() >= LIMIT.as_secs());
        away.is_over(Printer);
        let begin = Instant::now();
        away.pause(Printer, lost()).await.unwrap();
        assert_eq!(begin.elapsed(), FIRST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn answer_of_the_server_is_no_lost_connection() {
        let refused = anyhow::anyhow!("the server refuses");
        let error = Away::default().pause(Printer, refused).await.unwrap_err();
        assert_eq!(error.to_string(), "the server refuses");
    }
}
