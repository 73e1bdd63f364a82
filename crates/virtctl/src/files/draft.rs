//! Files that appear under their name when they are complete.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{printer::Printer, random};

/// The start of the name of a file that is not complete.
const DRAFT: &str = ".virtctl-";

/// Where data may go.
pub(super) enum Destination {
    File(Goal),
    /// A device or a pipe, which cannot be replaced.
    Device,
}

/// A regular file that exists, or will.
#[derive(Debug, Clone)]
pub(super) struct Goal {
    pub(super) path: PathBuf,
    /// Of the file that is replaced.
    permissions: Option<Permissions>,
}

impl Destination {
    /// Follows links, so that the file behind a link is replaced and not the link.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let shown = path.display();
        let found = match fs::metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if path.file_name().is_none() {
                    bail!("{shown} has no file name");
                }
                return Ok(Self::File(Goal {
                    path: path.to_owned(),
                    permissions: None,
                }));
            }
            Err(error) => return Err(error).with_context(|| format!("write {shown}")),
        };
        if found.is_dir() {
            bail!("{shown} is a directory: name a file in it");
        }
        if !found.is_file() {
            return Ok(Self::Device);
        }
        if found.permissions().readonly() {
            bail!("{shown} is read-only: remove it, or name another file");
        }
        let path = fs::canonicalize(path).with_context(|| format!("write {shown}"))?;
        Ok(Self::File(Goal {
            path,
            permissions: Some(found.permissions()),
        }))
    }
}

impl Goal {
    /// Makes `file`, which is complete, durable and gives it the name of the goal.
    pub(super) fn replace(&self, draft: &Path, file: &File) -> io::Result<()> {
        if let Some(permissions) = &self.permissions {
            file.set_permissions(permissions.clone())?;
        }
        file.sync_all()?;
        fs::rename(draft, &self.path)?;
        sync_directory_of(&self.path)
    }
}

/// Makes a rename durable.
#[cfg(unix)]
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Directories cannot be synced.
#[cfg(not(unix))]
fn sync_directory_of(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Makes the files below a directory durable, but for those that may not be read.
fn sync_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_tree(&entry.path())?;
        } else if kind.is_file() {
            match File::open(entry.path()) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                file => sync(&file?)?,
            }
        }
    }
    Ok(())
}

#[cfg(unix)]
fn sync(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Only a file that is open for writing can be synced.
#[cfg(not(unix))]
fn sync(_file: &File) -> io::Result<()> {
    Ok(())
}

/// A name beside the goal. What has this name is removed on drop.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    goal: Goal,
    is_complete: bool,
}

impl Draft {
    /// `None` for a device or a pipe.
    pub(crate) fn beside(goal: &Path) -> Result<Option<Self>> {
        match Destination::of(goal)? {
            Destination::Device => Ok(None),
            Destination::File(goal) => Ok(Some(Self::of(goal))),
        }
    }

    fn of(goal: Goal) -> Self {
        let name = format!("{DRAFT}{}", random::suffix());
        Self {
            path: goal.path.with_file_name(name),
            goal,
            is_complete: false,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file or directory that was written under the draft's name the name of the goal.
    pub(crate) fn complete(mut self) -> Result<()> {
        let renamed = self.rename();
        self.is_complete = renamed.is_ok();
        renamed.with_context(|| format!("write {}", self.goal.path.display()))
    }

    fn rename(&self) -> io::Result<()> {
        if !self.path.symlink_metadata()?.is_dir() {
            let file = File::open(&self.path)?;
            return self.goal.replace(&self.path, &file);
        }
        sync_tree(&self.path)?;
        fs::rename(&self.path, &self.goal.path)?;
        sync_directory_of(&self.goal.path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        let is_directory = self
            .path
            .symlink_metadata()
            .is_ok_and(|found| found.is_dir());
        let removed = if is_directory {
            fs::remove_dir_all(&self.path)
        } else {
            fs::remove_file(&self.path)
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Printer.warn(&format!(
                "{} is incomplete and was not removed: {error}",
                self.path.display()
            )),
            _ => {}
        }
    }
}

/// A file that has its name when it is complete, and is removed if it never is.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    draft: Option<Draft>,
}

impl NewFile {
    pub(crate) fn create(goal: &Path) -> Result<Self> {
        let draft = Draft::beside(goal)?;
        let opened = match &draft {
            Some(draft) => File::create_new(&draft.path),
            None => OpenOptions::new().write(true).open(goal),
        };
        let file = opened.with_context(|| format!("write {}", goal.display()))?;
        Ok(Self { file, draft })
    }

    pub(crate) fn complete(self) -> Result<()> {
        let Self { file, draft } = self;
        // An open file cannot be renamed everywhere.
        drop(file);
        draft.map_or(Ok(()), Draft::complete)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a whole file.
pub(crate) fn write(goal: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = NewFile::create(goal)?;
    let written = file.write_all(bytes);
    written.with_context(|| format!("write {}", goal.display()))?;
    file.complete()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn file_has_its_name_only_when_it_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let goal = directory.path().join("picture.png");
        let mut file = NewFile::create(&goal).unwrap();
        file.write_all(b"new").unwrap();
        assert!(!goal.exists());
        assert_eq!(names(directory.path()).len(), 1);
        file.complete().unwrap();
        assert_eq!(fs::read(&goal).unwrap(), b"new");
        assert_eq!(names(directory.path()), ["picture.png"]);
    }

    #[test]
    fn incomplete_file_is_removed_and_the_old_one_stays() {
        let directory = tempfile::tempdir().unwrap();
        let goal = directory.path().join("disk.img");
        fs::write(&goal, "old").unwrap();
        let mut file = NewFile::create(&goal).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(fs::read(&goal).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["disk.img"]);
        write(&goal, b"new").unwrap();
        assert_eq!(fs::read(&goal).unwrap(), b"new");
    }

    #[test]
    fn draft_of_another_program_is_renamed_or_removed() {
        let directory = tempfile::tempdir().unwrap();
        let goal = directory.path().join("notes.txt");
        let draft = Draft::beside(&goal).unwrap().unwrap();
        fs::write(draft.path(), "copied").unwrap();
        draft.complete().unwrap();
        assert_eq!(fs::read(&goal).unwrap(), b"copied");
        let draft = Draft::beside(&goal).unwrap().unwrap();
        fs::write(draft.path(), "half").unwrap();
        drop(draft);
        let unwritten = Draft::beside(&goal).unwrap().unwrap();
        unwritten.complete().unwrap_err();
        assert_eq!(fs::read(&goal).unwrap(), b"copied");
        assert_eq!(names(directory.path()), ["notes.txt"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay_and_devices_are_written_directly() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let directory = tempfile::tempdir().unwrap();
        let (goal, link) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&goal, "old").unwrap();
        fs::set_permissions(&goal, Permissions::from_mode(0o640)).unwrap();
        symlink("a", &link).unwrap();
        write(&link, b"new").unwrap();
        assert_eq!(fs::read(&goal).unwrap(), b"new");
        let found = fs::metadata(&goal).unwrap().permissions().mode();
        assert_eq!(found & 0o777, 0o640);
        assert!(link.is_symlink());
        write(Path::new("/dev/null"), b"new").unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }

    #[test]
    fn goals_that_cannot_be_replaced_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let error = |path: &Path| format!("{:#}", write(path, b"new").unwrap_err());
        assert!(error(directory.path()).contains("is a directory: name a file in it"));
        let read_only = directory.path().join("old");
        fs::write(&read_only, "old").unwrap();
        let mut permissions = fs::metadata(&read_only).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&read_only, permissions).unwrap();
        assert!(error(&read_only).contains("old is read-only"));
        let missing = directory.path().join("missing/file");
        assert!(error(&missing).starts_with(&format!("write {}", missing.display())));
    }
}
