//! `ferrovirt backup` and `ferrovirt restore`: copies of the database, with all objects.

use anyhow::{Context, Result, bail};

use crate::{
    cli, history,
    printer::Printer,
    state_dir::{Locked, StateDir},
};

/// Copies the database of a running or a stopped Ferrovirt.
pub(crate) fn backup(flags: &cli::Backup, printer: Printer) -> Result<()> {
    let state = StateDir::open(&flags.state.state_dir)?;
    let file = flags.file.display();
    let contents = embedded_api::back_up(&state.database(), &flags.file)
        .with_context(|| format!("back up {} to {file}", state.database().display()))?;
    printer.line(&format!(
        "Copied {} objects at revision {} to {file}. The file contains secrets; data of volumes is \
         not in it.",
        contents.objects, contents.revision
    ));
    Ok(())
}

/// Puts a copy in the place of the database; Ferrovirt must be stopped, guests may run.
pub(crate) fn restore(flags: &cli::Restore, printer: Printer) -> Result<()> {
    let state = StateDir::create(&flags.state.state_dir)?;
    let Locked::Ours(_lock) = state.lock()? else {
        bail!(
            "Ferrovirt is running in {}: end its process first (Ctrl+C, or `systemctl stop \
             ferrovirt`), guests keep running",
            state.root().display()
        );
    };
    let file = flags.file.display();
    let copy = embedded_api::inspect(&flags.file)
        .with_context(|| format!("read {file}"))?
        .with_context(|| format!("{file} does not exist or is empty"))?;
    history::check_restore(&copy, &history::on_host(&state)?)?;
    let before = embedded_api::restore(&flags.file, &state.database())
        .with_context(|| format!("restore {file}"))?;
    if let Some(before) = before {
        printer.line(&format!(
            "The database before is kept as {}.",
            before.display()
        ));
    }
    printer.line(&format!(
        "Restored {} objects. Start with `ferrovirt up`.",
        copy.objects
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use embedded_api::{Clock, Database, EmbeddedApi, ServiceSettings};

    use super::*;

    async fn database(state: &StateDir) {
        let settings = embedded_api::Settings {
            database: Database::File(state.database()),
            clock: Clock::Wall,
            front_proxy: None,
            kubelet: None,
            services: ServiceSettings::usual(),
        };
        EmbeddedApi::open(settings).await.unwrap();
    }

    #[tokio::test]
    async fn database_is_backed_up_and_restored() {
        let dir = tempfile::tempdir().unwrap();
        let flags = cli::StateDir {
            state_dir: dir.path().join("state"),
        };
        let state = StateDir::create(&flags.state_dir).unwrap();
        database(&state).await;
        let file = dir.path().join("copy.db");
        let take = cli::Backup {
            state: flags.clone(),
            file: file.clone(),
        };
        backup(&take, Printer).unwrap();
        let again = backup(&take, Printer).unwrap_err();
        assert!(format!("{again:#}").contains("exists"), "{again:#}");
        std::fs::write(state.database(), "lost").unwrap();
        let put = cli::Restore {
            state: flags.clone(),
            file: file.clone(),
        };
        let Locked::Ours(lock) = state.lock().unwrap() else {
            panic!("the lock is free")
        };
        let running = restore(&put, Printer).unwrap_err();
        assert!(running.to_string().contains("is running"), "{running}");
        drop(lock);
        restore(&put, Printer).unwrap();
        let restored = embedded_api::inspect(&state.database()).unwrap().unwrap();
        assert!(restored.objects > 10);
        // A pod that the copy does not know keeps it from being restored.
        std::fs::create_dir_all(state.node().join("pods/u-1")).unwrap();
        let refused = restore(&put, Printer).unwrap_err();
        assert!(refused.to_string().contains("ferrovirt down"), "{refused}");
    }
}
