//! Offers of disks: a client reads them as they are at one moment, while the guest goes on writing.
//!
//! libvirt has QEMU save what the guest overwrites to files of the claim, and listen at a socket beside them.
//!
//! **Invariant**: an offer is of one moment. The launcher records it before virt-handler learns of it, and one that was
//! interrupted has failed: it never begins again.

use std::io;
use std::path::Path;

use launcher_channel::{BACKUP_SOCKET, BackupStage};
use serde_json::json;

use super::backup_files::Files;
use super::backup_run::{BackupError, BackupRun, Copied, Freezer, Note, Start};
use super::backup_xml;
use super::qmp::QmpError;

impl BackupRun {
    /// Offers the disks until the backup is cancelled.
    pub(super) async fn offer(&self, freezer: Freezer) -> Result<BackupStage, BackupError> {
        self.end_earlier().await?;
        self.stop_listening().await?;
        self.with_files(Files::prepare).await?;
        let link = self.link.clone();
        self.with_files(move |files| point(&link, &files.directory))
            .await?;
        let socket = self.link.join(BACKUP_SOCKET);
        let xml = backup_xml::render_offer(&self.copies().await?, &socket)?;
        // What an earlier job has left would look like the end of this one.
        self.connection.take_ended_job(&self.domain).await?;
        self.begin(freezer, &Start::Full(xml)).await?;
        failpoints::after("virt-launcher/offer/begin");
        self.note(Note::Offered).await;
        match self.follow().await? {
            Copied::Whole if !self.cancel.is_cancelled() => {
                let message = "QEMU does not offer the disks any more".to_owned();
                Err(BackupError::Job(message))
            }
            Copied::Whole | Copied::Cancelled => Ok(BackupStage::Cancelled),
        }
    }

    /// A libvirtd that dies after it had QEMU listen, and before it has recorded its job, leaves a server that
    /// libvirtd never ends, and QEMU has only one.
    async fn stop_listening(&self) -> Result<(), BackupError> {
        match self.qemu().run("nbd-server-stop", &json!({})).await {
            // As a rule there is none.
            Err(BackupError::Qmp(QmpError::Refused { .. })) => Ok(()),
            done => done.map(drop),
        }
    }
}

/// Makes the link lead to the directory.
fn point(link: &Path, directory: &Path) -> io::Result<()> {
    match std::fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(directory, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_leads_to_the_last_directory() {
        let parent = tempfile::tempdir().unwrap();
        let link = parent.path().join("offer");
        for name in ["a", "b"] {
            let directory = parent.path().join(name);
            point(&link, &directory).unwrap();
            assert_eq!(std::fs::read_link(&link).unwrap(), directory);
        }
    }
}
