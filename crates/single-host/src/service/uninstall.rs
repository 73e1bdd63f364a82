//! `ferrovirt uninstall`: stops the service and all guests, and removes the units.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::{
    systemd,
    unit::{self, GUESTS, MARK, MODULES_FILE, SERVICE, UNITS},
};
use crate::{cli, down, printer::Printer};

pub(crate) fn uninstall(flags: &cli::Uninstall, printer: Printer) -> Result<()> {
    let root = flags.root.as_deref().unwrap_or(Path::new("/"));
    let installed = installed(root)?;
    if installed.is_empty() {
        printer.line("The service is not installed.");
    }
    if flags.root.is_some() {
        ensure!(
            !flags.delete_data,
            "--delete-data with --root: delete the directory yourself, as no guest can run there"
        );
        return remove(&installed);
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "removing a service needs root: run it with sudo"
    );
    if !installed.is_empty() {
        systemd::check()?;
        systemd::control(&["disable", "--quiet", SERVICE, GUESTS])?;
        // The guests stop below, with progress and without the time limits of a unit.
        systemd::control(&["stop", SERVICE, GUESTS])?;
    }
    let state = cli::StateDir {
        state_dir: state_dir(&installed).unwrap_or_else(|| flags.state.state_dir.clone()),
    };
    if flags.delete_data {
        down::reset(&cli::Reset { state, yes: true }, printer)?;
    } else {
        let flags = cli::Down {
            state,
            grace_period: None,
            for_shutdown: false,
        };
        down::down(&flags, printer)?;
    }
    if !installed.is_empty() {
        remove(&installed)?;
        systemd::control(&["daemon-reload"])?;
        printer.line("The service is removed.");
    }
    Ok(())
}

/// The files that `install` wrote, and their links.
fn installed(root: &Path) -> Result<Vec<PathBuf>> {
    let units = root.join(UNITS);
    let files = [
        units.join(SERVICE),
        units.join(GUESTS),
        root.join(MODULES_FILE),
    ];
    let mut found = Vec::new();
    for path in files {
        match fs::read_to_string(&path) {
            Ok(text) => {
                ensure!(
                    text.starts_with(MARK),
                    "{} was not written by `ferrovirt install`: remove it yourself",
                    path.display(),
                );
                found.push(path);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        }
    }
    let links = unit::links().map(|(link, _)| root.join(link));
    found.extend(links.filter(|link| link.is_symlink()));
    Ok(found)
}

/// The state directory that the service used.
fn state_dir(installed: &[PathBuf]) -> Option<PathBuf> {
    let mut texts = installed
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts.find_map(|text| unit::state_dir(&text))
}

fn remove(files: &[PathBuf]) -> Result<()> {
    for path in files {
        match fs::remove_file(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.with_context(|| format!("remove {}", path.display()))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_files_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let flags = cli::Uninstall {
            state: cli::StateDir {
                state_dir: "/unused".into(),
            },
            delete_data: false,
            root: Some(root.path().to_owned()),
        };
        uninstall(&flags, Printer).unwrap();

        let units = root.path().join(UNITS);
        fs::create_dir_all(units.join("ferrovirt.service.d")).unwrap();
        let own = units.join("ferrovirt.service.d/override.conf");
        fs::write(&own, "[Service]\n").unwrap();
        fs::write(units.join(SERVICE), format!("{MARK}\n")).unwrap();
        fs::write(units.join(GUESTS), "[Unit]\n").unwrap();
        let error = uninstall(&flags, Printer).unwrap_err().to_string();
        assert!(error.contains("remove it yourself"), "{error}");
        assert!(units.join(SERVICE).exists(), "nothing is half done");

        fs::write(units.join(GUESTS), format!("{MARK}\n")).unwrap();
        uninstall(&flags, Printer).unwrap();
        assert!(!units.join(SERVICE).exists() && !units.join(GUESTS).exists());
        assert!(own.exists());
    }
}
