//! The jobs of increments in QEMU, which libvirt does not know: looking at them, and ending them.

use libvirt::{Connection, Domain};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::backup_run::{BackupError, CANCEL_LIMIT, POLL};
use super::checkpoints::{self, Job};
use super::qmp;

/// QEMU's monitor.
#[derive(Debug, Clone)]
pub(super) struct Qemu {
    pub(super) connection: Connection,
    pub(super) domain: Domain,
}

impl Qemu {
    pub(super) async fn run(
        &self,
        name: &'static str,
        arguments: &Value,
    ) -> Result<Value, BackupError> {
        let command = qmp::command(name, arguments);
        let answer = self.connection.monitor(&self.domain, &command).await?;
        Ok(qmp::result(name, &answer)?)
    }

    pub(super) async fn jobs(&self) -> Result<Vec<Job>, BackupError> {
        Ok(checkpoints::jobs(
            self.run("query-jobs", &json!({})).await?,
        )?)
    }

    pub(super) async fn named_nodes(&self) -> Result<Value, BackupError> {
        self.run("query-named-block-nodes", &json!({"flat": true}))
            .await
    }

    /// Ends all jobs of increments, also those of an earlier launcher, and has QEMU close their files.
    pub(super) async fn end_jobs(&self) -> Result<(), BackupError> {
        let deadline = Instant::now() + CANCEL_LIMIT;
        loop {
            let jobs = self.jobs().await?;
            if jobs.is_empty() {
                return self.close_files(deadline).await;
            }
            if Instant::now() >= deadline {
                return Err(BackupError::Earlier);
            }
            for job in jobs {
                let name = if job.has_ended() {
                    "job-dismiss"
                } else {
                    "job-cancel"
                };
                match self.run(name, &json!({"id": job.id})).await {
                    // It has changed its state meanwhile.
                    Err(BackupError::Qmp(error)) => tracing::info!(%error, "a job goes on"),
                    done => drop(done?),
                }
            }
            sleep(POLL).await;
        }
    }

    /// A file may be in use for a moment after its job has ended.
    async fn close_files(&self, deadline: Instant) -> Result<(), BackupError> {
        loop {
            let mut left = None;
            for node in checkpoints::targets(&self.named_nodes().await?) {
                let arguments = json!({"node-name": node});
                match self.run("blockdev-del", &arguments).await {
                    Err(BackupError::Qmp(source)) => left = Some(source),
                    done => drop(done?),
                }
            }
            match left {
                None => return Ok(()),
                Some(why) if Instant::now() >= deadline => return Err(BackupError::Open(why)),
                Some(error) => tracing::info!(%error, "QEMU still uses the file of a copy"),
            }
            sleep(POLL).await;
        }
    }
}
