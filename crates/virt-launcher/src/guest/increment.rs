//! The part of a backup that libvirt cannot do for raw disks: checkpoints, and copies of what has changed since one.
//!
//! QEMU does it by commands of its monitor. libvirt does not know these jobs; what an attempt has left in QEMU is
//! removed before the next one, and at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use disk_image::Blueprint;
use launcher_channel::Lineage;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::backup_chain;
use super::backup_files::{create_copy, is_copy};
use super::backup_run::{BackupError, BackupRun, Copied, Note, POLL, percent};
use super::block_jobs::Qemu;
use super::checkpoints::{self, Job, Node};

/// The prefix of the alias of a device that the user named.
const ALIAS: &str = "ua-";

/// What a backup copies.
#[derive(Debug)]
pub(super) struct Basis {
    pub(super) lineage: Lineage,
    /// Of the manifest of the parent.
    pub(super) parent_sha256: Option<String>,
    /// The disks by volume, if the backup leaves a checkpoint.
    nodes: BTreeMap<String, Node>,
}

impl BackupRun {
    pub(super) fn qemu(&self) -> Qemu {
        Qemu {
            connection: self.connection.clone(),
            domain: self.domain.clone(),
        }
    }

    async fn qmp(&self, name: &'static str, arguments: &Value) -> Result<Value, BackupError> {
        self.qemu().run(name, arguments).await
    }

    /// The disks of the backup as QEMU has them open.
    async fn nodes(&self) -> Result<BTreeMap<String, Node>, BackupError> {
        let mut all = checkpoints::nodes(self.qmp("query-block", &json!({})).await?)?;
        let node = |volume: &String| {
            let node = all.remove(&format!("{ALIAS}{volume}"));
            let node = node.ok_or_else(|| BackupError::Missing(volume.clone()))?;
            Ok((volume.clone(), node))
        };
        self.files.volumes.iter().map(node).collect()
    }

    /// Decides what is copied, and removes checkpoints that nothing builds on.
    pub(super) async fn basis(&self) -> Result<Basis, BackupError> {
        let mut basis = Basis {
            lineage: Lineage::default(),
            parent_sha256: None,
            nodes: BTreeMap::new(),
        };
        if !self.plan.leaves_checkpoint {
            return Ok(basis);
        }
        self.remove_checkpoints(|name| {
            self.plan.parent.as_deref() == Some(name)
                || self.plan.kept_checkpoints.iter().any(|kept| kept == name)
        })
        .await?;
        basis.nodes = self.nodes().await?;
        let Some(parent) = self.plan.parent.clone() else {
            return Ok(basis);
        };
        match self.check_parent(&parent, &basis.nodes).await? {
            Ok(sha256) => {
                basis.lineage.parent = Some(parent);
                basis.parent_sha256 = Some(sha256);
            }
            Err(why) => {
                tracing::info!(why, "the backup has all blocks");
                basis.lineage.note = Some(format!("all blocks are copied: {why}"));
            }
        }
        Ok(basis)
    }

    /// The digest of the parent's manifest; why the backup cannot build on it, as the inner error.
    async fn check_parent(
        &self,
        parent: &str,
        nodes: &BTreeMap<String, Node>,
    ) -> Result<Result<String, String>, BackupError> {
        let (name, guest_uid) = (parent.to_owned(), self.guest.uid.clone());
        let read = self.with_files(move |files| {
            Ok(backup_chain::read_chain(files.claim(), &name, &guest_uid))
        });
        Ok(match read.await? {
            Ok(found) => match checkpoints::check(nodes, &found.manifest) {
                Ok(()) => Ok(found.sha256),
                Err(gap) => Err(gap.to_string()),
            },
            Err(error) => Err(error.to_string()),
        })
    }

    /// Removes checkpoints of all disks of the guest.
    async fn remove_checkpoints(&self, is_kept: impl Fn(&str) -> bool) -> Result<(), BackupError> {
        let all = checkpoints::nodes(self.qmp("query-block", &json!({})).await?)?;
        for (node, checkpoint) in checkpoints::unused(&all, is_kept) {
            let bitmap = checkpoints::bitmap(node, checkpoint);
            self.qmp("block-dirty-bitmap-remove", &bitmap).await?;
        }
        Ok(())
    }

    /// Removes the checkpoint of this backup.
    pub(super) async fn remove_own_checkpoint(&self) -> Result<(), BackupError> {
        if !self.plan.leaves_checkpoint {
            return Ok(());
        }
        let own = self.files.name();
        self.remove_checkpoints(|name| name != own).await
    }

    /// Makes the checkpoint of a full backup, just before the copy begins: blocks that change in between are copied
    /// by the next increment once more. Without a checkpoint, the next backup is full.
    pub(super) async fn mark(&self, basis: &mut Basis) -> Result<(), BackupError> {
        if !self.plan.leaves_checkpoint {
            return Ok(());
        }
        let marks = checkpoints::mark(&basis.nodes, &self.files.name());
        match self.qmp("transaction", &marks).await {
            Ok(_) => basis.lineage.has_checkpoint = true,
            Err(BackupError::Qmp(error)) => {
                let why = format!("the next backup will copy all blocks: {error}");
                tracing::warn!(why, "a backup has no checkpoint");
                basis.lineage.note = Some(why);
            }
            Err(error) => return Err(error),
        }
        failpoints::after("virt-launcher/increment/mark");
        Ok(())
    }

    /// Creates the files of an increment, and has QEMU open them; returns the transaction that begins it.
    pub(super) async fn prepare_increment(
        &self,
        basis: &mut Basis,
        parent: &str,
        directory: &Arc<File>,
    ) -> Result<Value, BackupError> {
        for (number, (volume, node)) in basis.nodes.iter().enumerate() {
            let blueprint = Blueprint::empty(node.capacity)?;
            let (held, name) = (Arc::clone(directory), volume.clone());
            let file = self
                .with_files(move |_| create_copy(&held, &name, &blueprint))
                .await?;
            let path = self.files.path(volume);
            let path = path.to_string_lossy();
            self.qmp("blockdev-add", &checkpoints::target(number, &path))
                .await?;
            // QEMU has opened it by its name.
            let (held, name) = (Arc::clone(directory), volume.clone());
            let is_copy = self.with_files(move |_| is_copy(&held, &name, &file));
            if !is_copy.await? || !self.is_own_target(number).await? {
                return Err(BackupError::Replaced(volume.clone()));
            }
        }
        failpoints::after("virt-launcher/increment/targets");
        basis.lineage.has_checkpoint = true;
        let own = self.files.name();
        Ok(checkpoints::increment(&basis.nodes, parent, &own))
    }

    /// Whether QEMU writes to the new file alone, whatever its header said when QEMU read it.
    async fn is_own_target(&self, number: usize) -> Result<bool, BackupError> {
        let nodes = self.qemu().named_nodes().await?;
        Ok(checkpoints::is_alone(&nodes, number))
    }

    pub(super) async fn begin_increment(&self, transaction: &Value) -> Result<(), BackupError> {
        self.qmp("transaction", transaction).await?;
        Ok(())
    }

    /// Follows the jobs until all have ended, and has QEMU close the files.
    pub(super) async fn follow_increment(&self) -> Result<Copied, BackupError> {
        let mut reported = 0;
        loop {
            let jobs = match self.qemu().jobs().await {
                // QEMU waits for its storage, and copies on after that.
                Err(BackupError::Libvirt(libvirt::Error::TimedOut { .. }))
                    if !self.cancel.is_cancelled() =>
                {
                    sleep(POLL).await;
                    continue;
                }
                jobs => jobs?,
            };
            if self.cancel.is_cancelled() {
                self.qemu().end_jobs().await?;
                return Ok(Copied::Cancelled);
            }
            if jobs.len() != self.files.volumes.len() {
                return Err(BackupError::Job("a job of QEMU has disappeared".to_owned()));
            }
            if let Some(why) = jobs.iter().find_map(|job| job.error.clone()) {
                return Err(BackupError::Job(why));
            }
            if jobs.iter().all(Job::has_ended) {
                break;
            }
            let sum = |size: fn(&Job) -> u64| jobs.iter().map(size).fold(0, u64::saturating_add);
            let (processed, total) = (
                sum(|job| job.current_progress),
                sum(|job| job.total_progress),
            );
            if let Some(percent) = percent(processed, total, reported) {
                reported = percent;
                self.note(Note::Percent(percent)).await;
            }
            tokio::select! {
                () = self.cancel.cancelled() => {}
                () = sleep(POLL) => {}
            }
        }
        self.qemu().end_jobs().await?;
        failpoints::after("virt-launcher/increment/close");
        Ok(Copied::Whole)
    }
}
