//! Waits for the end of a backup or a restore.

use std::{fmt, time::Duration};

use anyhow::{Result, bail};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    cli::{Kind, Limit},
    state::{State, done, state},
};
use crate::{
    away::is_lost,
    cli::ObjectOutput,
    connect::Cluster,
    objects::{self, text},
    printer::Printer,
};

const INTERVAL: Duration = Duration::from_secs(1);
/// A server that restarts answers again within this time.
const AWAY: Duration = Duration::from_mins(1);

/// What is waited for.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    kind: Kind,
    name: String,
    /// Another object of the name does not stand in for it. The first one that is found, if none is given.
    uid: Option<String>,
}

impl Subject {
    pub(super) fn of(kind: Kind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            uid: None,
        }
    }

    pub(super) fn with_uid(self, uid: Option<String>) -> Self {
        Self { uid, ..self }
    }

    fn path(&self, namespace: &str) -> String {
        match self.kind {
            Kind::Backup => objects::BACKUP.named(namespace, &self.name),
            Kind::Restore => objects::BACKUP_RESTORE.named(namespace, &self.name),
        }
    }

    /// The command that lists all of the kind.
    fn list(&self) -> &'static str {
        match self.kind {
            Kind::Backup => "virtctl backup list",
            Kind::Restore => "kubectl get vmbackuprestore",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Backup => "backup",
            Kind::Restore => "restore",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// Returns when it has ended, or when a client can read its disks. Fails if it has failed, is gone, or takes too long.
/// With a format, the object is printed at its end, and nothing else.
pub(super) async fn wait(
    cluster: &Cluster,
    printer: Printer,
    subject: &Subject,
    (limit, output): (&Limit, Option<ObjectOutput>),
) -> Result<()> {
    let path = subject.path(&cluster.namespace);
    let begin = Instant::now();
    let mut answered = begin;
    let mut uid = subject.uid.clone();
    let mut shown = String::new();
    let mut has_bar = false;
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        let object = match objects::find(cluster, &path).await {
            Ok(object) => object,
            // The first answer is needed at once.
            Err(error) if uid.is_some() && may_answer_again(&error, answered.elapsed()) => {
                if limit.timeout.is_some_and(|limit| begin.elapsed() >= limit) {
                    return Err(error);
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        answered = Instant::now();
        let Some(object) = object.filter(|one| is_same(one, uid.as_deref())) else {
            if uid.is_none() {
                let (namespace, list) = (&cluster.namespace, subject.list());
                bail!("{subject} does not exist in namespace {namespace}: `{list}` lists all");
            }
            bail!("{subject} was deleted");
        };
        uid = text(&object, "/metadata/uid").map(str::to_owned);
        let state = state(&object);
        if let (State::Progressing(_), Some((done, all))) = (&state, done(&object)) {
            printer.progress("Restoring", done, all);
            has_bar = true;
        }
        let line = line(&state);
        let is_over = matches!(
            state,
            State::Offered(_) | State::Complete(_) | State::Failed(_)
        );
        if line != shown || is_over {
            if std::mem::take(&mut has_bar) {
                printer.end_of_progress();
            }
            if let Some(output) = output.filter(|_| is_over) {
                printer.object(output, &object)?;
            } else if output.is_none() && !matches!(state, State::Failed(_)) {
                printer.line(&line);
            }
            shown = line;
        }
        match state {
            State::Offered(_) | State::Complete(_) => return Ok(()),
            State::Failed(message) => bail!("{subject} has failed: {message}"),
            State::Pending(_) | State::Progressing(_) => {}
        }
        if limit.timeout.is_some_and(|limit| begin.elapsed() >= limit) {
            if has_bar {
                printer.end_of_progress();
            }
            bail!("{subject} has not ended in time, and goes on: {shown}");
        }
    }
}

/// Whether the server did not answer at all, which is not for long.
fn may_answer_again(error: &anyhow::Error, away: Duration) -> bool {
    is_lost(error) && away < AWAY
}

fn is_same(object: &Value, uid: Option<&str>) -> bool {
    uid.is_none() || text(object, "/metadata/uid") == uid
}

fn line(state: &State) -> String {
    match state.message() {
        "" => state.word().to_owned(),
        message => format!("{}: {message}", state.word()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subresource::plain;

    #[test]
    fn server_that_is_away_for_a_moment_ends_no_wait() {
        let away = plain(kube::Error::LinesCodecMaxLineLengthExceeded);
        assert!(may_answer_again(&away, Duration::ZERO));
        assert!(!may_answer_again(&away, AWAY));
        let refused = anyhow::anyhow!("the server refuses");
        assert!(!may_answer_again(&refused, Duration::ZERO));
    }
}
