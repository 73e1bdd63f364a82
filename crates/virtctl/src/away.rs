//! Patience with an API server that does not answer, for commands that follow something.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, error::Elapsed, sleep, timeout};

use crate::{printer::Printer, subresource::Unavailable};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For one answer: a connection to a machine that has lost its power says nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// Then the command ends.
const LIMIT: Duration = Duration::from_mins(10);

/// For how long the server has not answered.
#[derive(Debug, Default)]
pub(crate) struct Away {
    since: Option<Instant>,
    pause: Duration,
}

/// The answer to a question, or an error that [`Away::pause`] takes if there is none in time.
pub(crate) async fn answer<T>(asked: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(PATIENCE, asked).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(elapsed).context("call the API server: no answer within 30 s"),
    }
}

/// Whether this is not the answer of an API server that works.
pub(crate) fn is_lost(error: &anyhow::Error) -> bool {
    error.is::<kube::Error>() || error.is::<Unavailable>() || error.is::<Elapsed>()
}

impl Away {
    /// Pauses, longer each time, if the server did not answer; another error, and one that lasts, is returned.
    pub(crate) async fn pause(&mut self, printer: Printer, error: anyhow::Error) -> Result<()> {
        if !is_lost(&error) {
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
    async fn server_that_says_nothing_or_is_not_ready_is_asked_again() {
        let silent = answer(std::future::pending::<Result<()>>()).await;
        let silent = silent.unwrap_err();
        assert!(silent.to_string().contains("30 s"), "{silent}");
        Away::default().pause(Printer, silent).await.unwrap();
        for (code, is_repeated) in [
            (429, true),
            (502, true),
            (503, true),
            (504, true),
            (403, false),
        ] {
            let status = kube::core::Status::failure("wait", "").with_code(code);
            let error = plain(kube::Error::Api(status.boxed()));
            assert_eq!(error.to_string(), "wait");
            let paused = Away::default().pause(Printer, error).await;
            assert_eq!(paused.is_ok(), is_repeated, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answer_of_the_server_is_no_lost_connection() {
        let refused = anyhow::anyhow!("the server refuses");
        let error = Away::default().pause(Printer, refused).await.unwrap_err();
        assert_eq!(error.to_string(), "the server refuses");
    }
}
