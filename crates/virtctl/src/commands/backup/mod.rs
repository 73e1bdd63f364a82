//! `backup`: backups of running VMs to claims, and the way back.
//!
//! The commands make and read objects; controllers do the rest, so a command that is ended while it waits ends nothing
//! else.
//!
//! **Invariant**: what is said about a backup or a restore is what its conditions say.

mod cli;
mod list;
mod object;
mod state;
mod wait;

use anyhow::Result;

pub(crate) use cli::{Action, Backup};

use crate::{
    connect::Cluster,
    failure::Usage,
    objects::{self, Kind, text},
    printer::Printer,
};
use cli::{Create, Restore, Target, Track};
use object::Disk;
use wait::Subject;

pub(crate) async fn backup(cluster: &Cluster, printer: Printer, flags: &Backup) -> Result<()> {
    match &flags.action {
        Action::Create(flags) => create(cluster, printer, flags).await,
        Action::Track(flags) => track(cluster, printer, flags).await,
        Action::List(flags) => list::list(cluster, printer, flags).await,
        Action::Restore(flags) => restore(cluster, printer, flags).await,
        Action::Wait(flags) => {
            let subject = Subject::of(flags.kind, &flags.name);
            wait::wait(cluster, printer, &subject, (&flags.limit, None)).await
        }
    }
}

async fn create(cluster: &Cluster, printer: Printer, flags: &Create) -> Result<()> {
    let subject = Subject::of(cli::Kind::Backup, &flags.name);
    let object = object::backup(flags);
    let follow = Follow {
        subject,
        kind: objects::BACKUP,
        note: format!("Backup {} was made", flags.name),
        flags: &flags.follow,
    };
    make(cluster, printer, &object, follow).await
}

async fn track(cluster: &Cluster, printer: Printer, flags: &Track) -> Result<()> {
    let path = objects::BACKUP_TRACKER.all(&cluster.namespace);
    let made = objects::create(cluster, &path, &object::tracker(&flags.name, &flags.vm)).await?;
    if let Some(output) = flags.made.output {
        return printer.object(output, &made);
    }
    printer.line(&format!(
        "Tracker {} was made: its first backup is full, and later ones have what has changed",
        flags.name
    ));
    Ok(())
}

async fn restore(cluster: &Cluster, printer: Printer, flags: &Restore) -> Result<()> {
    let disks = disks(cluster, flags).await?;
    let object = object::restore(flags, &disks)?;
    let follow = Follow {
        subject: Subject::of(cli::Kind::Restore, &flags.name),
        kind: objects::BACKUP_RESTORE,
        note: format!("Restore {} was made", flags.name),
        flags: &flags.follow,
    };
    make(cluster, printer, &object, follow).await
}

/// The disks to restore, by the flags or by the volumes of a VM whose claims are overwritten.
async fn disks(cluster: &Cluster, flags: &Restore) -> Result<Vec<Disk>> {
    let Target {
        volumes,
        overwrite,
        overwrite_vm,
    } = &flags.target;
    let Some(name) = overwrite_vm else {
        let disks = volumes.iter().map(|one| one.0.clone()).collect();
        return object::checked(disks, *overwrite);
    };
    let vm = objects::get(cluster, &objects::VM.named(&cluster.namespace, name)).await?;
    let included = match &flags.source.backup {
        Some(backup) => {
            let path = objects::BACKUP.named(&cluster.namespace, backup);
            Some(state::included(&objects::get(cluster, &path).await?))
        }
        None => None,
    };
    let disks = object::disks_of(&vm, included.as_deref());
    if disks.is_empty() {
        return Err(Usage::new(format!(
            "--overwrite-vm {name}: no claim of the VM is known to have a disk in the backup: name them by \
             --volume VOLUME=CLAIM and --overwrite"
        ))
        .into());
    }
    Ok(disks)
}

/// An object that was made, and what the flags want to know of it.
struct Follow<'a> {
    subject: Subject,
    kind: Kind,
    note: String,
    flags: &'a cli::Follow,
}

async fn make(
    cluster: &Cluster,
    printer: Printer,
    object: &serde_json::Value,
    follow: Follow<'_>,
) -> Result<()> {
    let flags = follow.flags;
    let path = follow.kind.all(&cluster.namespace);
    let made = objects::create(cluster, &path, object).await?;
    if flags.wait {
        if flags.output.is_none() {
            printer.line(&follow.note);
        }
        let uid = text(&made, "/metadata/uid").map(str::to_owned);
        let subject = follow.subject.with_uid(uid);
        return wait::wait(cluster, printer, &subject, (&flags.limit, flags.output)).await;
    }
    match flags.output {
        Some(output) => printer.object(output, &made),
        None => {
            printer.line(&format!(
                "{}: `virtctl backup wait {}` waits for its end",
                follow.note, follow.subject
            ));
            Ok(())
        }
    }
}
