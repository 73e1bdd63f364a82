//! Finds the disk in an image.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;

use crate::beneath;

/// The directory of the disk in an image.
const DISK_DIRECTORY: &str = "disk";
/// File names that a message lists at most.
const MAX_NAMES: usize = 3;

/// A file in an image.
#[derive(Debug)]
pub struct Found {
    /// Relative to the root of the image.
    pub inside: PathBuf,
    pub file: File,
}

/// Why a file was not found. Images do not change, so a retry cannot succeed.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{reason}")]
    NoDisk { reason: String },
    #[error("use /{path} of the image: {reason}", path = path.display(), reason = explain(source))]
    Unusable { path: PathBuf, source: io::Error },
    #[error("use /{path} of the image: it is not a regular file", path = path.display())]
    NotAFile { path: PathBuf },
}

/// Finds the file with the given path, or the only file of the image.
pub fn find(root: &Path, named: Option<&str>) -> Result<Found, FindError> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |source| FindError::Unusable { path, source }
    };
    let directory = beneath::directory(root).map_err(unusable(Path::new("")))?;
    let inside = match named {
        Some(path) => PathBuf::from(path.trim_start_matches('/')),
        None => only_file(&directory)?,
    };
    let opened = beneath::read_own(&directory, &inside).map_err(unusable(&inside))?;
    let file = File::from(opened);
    let metadata = file.metadata().map_err(unusable(&inside))?;
    if metadata.is_file() {
        Ok(Found { inside, file })
    } else {
        Err(FindError::NotAFile { path: inside })
    }
}

/// The single file in `disk/`, else the single file at the root.
fn only_file(root: &File) -> Result<PathBuf, FindError> {
    let in_disk = files_in(root, DISK_DIRECTORY)?;
    let (directory, files) = match in_disk {
        Some(files) if !files.is_empty() => (DISK_DIRECTORY, files),
        _ => (".", files_in(root, ".")?.unwrap_or_default()),
    };
    match files.as_slice() {
        [only] if directory == DISK_DIRECTORY => Ok(Path::new(directory).join(only)),
        [only] => Ok(only.clone()),
        [] => Err(FindError::NoDisk {
            reason: "there is no file in /disk of the image, where a container disk has its one \
                     file"
                .to_owned(),
        }),
        many => {
            let shown: Vec<_> = many
                .iter()
                .take(MAX_NAMES)
                .map(|name| name.display().to_string())
                .collect();
            let more = if many.len() > shown.len() {
                ", …"
            } else {
                ""
            };
            Err(FindError::NoDisk {
                reason: format!(
                    "/{} of the image has {} files ({}{more}): specify the path of the disk",
                    directory.trim_start_matches('.'),
                    many.len(),
                    shown.join(", "),
                ),
            })
        }
    }
}

/// The sorted files of a directory; `None` if it does not exist.
fn files_in(root: &File, path: &str) -> Result<Option<Vec<PathBuf>>, FindError> {
    let unusable = |source: io::Error| FindError::Unusable {
        path: path.into(),
        source,
    };
    let directory = match beneath::own_directory(root, Path::new(path)) {
        Ok(directory) => directory,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(unusable(error)),
            };
        }
    };
    let mut files = names_of_files(&directory).map_err(|errno| unusable(errno.into()))?;
    // Container engines leave files such as `.dockerenv` at the root.
    files.retain(|name| {
        path == DISK_DIRECTORY || !name.as_os_str().as_encoded_bytes().starts_with(b".")
    });
    files.sort();
    Ok(Some(files))
}

fn names_of_files(directory: &OwnedFd) -> Result<Vec<PathBuf>, Errno> {
    let mut files = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let stat = statat(
            directory.as_fd(),
            entry.file_name(),
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            let name = entry.file_name().to_bytes();
            files.push(PathBuf::from(OsStr::from_bytes(name)));
        }
    }
    Ok(files)
}

/// Explains an error to the author of an image.
fn explain(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => "there is no such file".to_owned(),
        Some(Errno::NOTDIR) => "a parent directory is a file".to_owned(),
        Some(Errno::LOOP) => "symbolic links are not followed".to_owned(),
        Some(Errno::XDEV) => "it leads out of the image".to_owned(),
        Some(Errno::ACCESS) => "user 107 has no permission to read it".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Image(tempfile::TempDir);

    impl Image {
        fn with(files: &[&str]) -> Self {
            let image = Self(tempfile::tempdir().unwrap());
            fs::create_dir(image.path("root")).unwrap();
            for file in files {
                let path = image.path("root").join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "x").unwrap();
            }
            image
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn find(&self, named: Option<&str>) -> Result<PathBuf, String> {
            let found = find(&self.path("root"), named);
            found
                .map(|found| found.inside)
                .map_err(|error| error.to_string())
        }
    }

    #[test]
    fn single_file_is_the_disk() {
        let cases: [(&[&str], &str); 4] = [
            (&["disk/any.img"], "disk/any.img"),
            (&["disk/.hidden"], "disk/.hidden"),
            // An image may have other files beside the disk.
            (&["disk/any.img", "notes", "etc/passwd"], "disk/any.img"),
            (&[".dockerenv", "bare.img"], "bare.img"),
        ];
        for (files, expected) in cases {
            let found = Image::with(files).find(None);
            assert_eq!(found.as_deref(), Ok(Path::new(expected)), "{files:?}");
        }
    }

    #[test]
    fn image_without_a_disk_is_explained() {
        let cases: [(&[&str], &str); 4] = [
            (&[], "there is no file in /disk of the image"),
            (&["etc/passwd"], "there is no file in /disk of the image"),
            (
                &["disk/b", "disk/a"],
                "/disk of the image has 2 files (a, b)",
            ),
            (
                &["disk/1", "disk/2", "disk/3", "disk/4"],
                "has 4 files (1, 2, 3, …)",
            ),
        ];
        for (files, expected) in cases {
            let error = Image::with(files).find(None).unwrap_err();
            assert!(error.contains(expected), "{files:?}: {error}");
        }
    }

    #[test]
    fn named_file_may_be_anywhere_in_the_image() {
        let image = Image::with(&["disk/a", "disk/b", "boot/vmlinuz"]);
        for (named, expected) in [
            ("/disk/b", Ok("disk/b")),
            ("boot/vmlinuz", Ok("boot/vmlinuz")),
            (
                "/disk/c",
                Err("use /disk/c of the image: there is no such file"),
            ),
            (
                "/disk/a/b",
                Err("use /disk/a/b of the image: a parent directory is a file"),
            ),
            (
                "/disk",
                Err("use /disk of the image: it is not a regular file"),
            ),
            (
                "../outside",
                Err("use /../outside of the image: it leads out of the image"),
            ),
            (
                "disk/../../outside",
                Err("use /disk/../../outside of the image: it leads out of the image"),
            ),
        ] {
            let found = image.find(Some(named));
            let expected = expected.map(PathBuf::from).map_err(str::to_owned);
            assert_eq!(found, expected, "{named}");
        }
    }

    /// The classes of CVE-2022-1798 and CVE-2020-14316: a path of a manifest, or a link in an image, that
    /// leads to files of the host.
    #[test]
    fn links_are_not_followed_even_within_the_image() {
        let image = Image::with(&["disk/real"]);
        fs::write(image.path("outside"), "secret").unwrap();
        symlink(image.path("outside"), image.path("root/disk/link")).unwrap();
        symlink("disk", image.path("root/directory")).unwrap();
        // A link does not count as a file.
        assert_eq!(image.find(None), Ok("disk/real".into()));
        for named in ["disk/link", "directory/real"] {
            let error = image.find(Some(named)).unwrap_err();
            assert!(
                error.ends_with("symbolic links are not followed"),
                "{error}"
            );
        }
        let linked = Image::with(&["real/disk.img"]);
        symlink("real", linked.path("root/disk")).unwrap();
        let error = linked.find(None).unwrap_err();
        assert_eq!(
            error,
            "use /disk of the image: symbolic links are not followed"
        );
    }

    #[test]
    fn mounts_are_not_part_of_the_image() {
        let error = find(Path::new("/"), Some("/proc/self/environ")).unwrap_err();
        let expected = "use /proc/self/environ of the image: it leads out of the image";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn pipe_is_refused_without_blocking() {
        let image = Image::with(&[]);
        let path = image.path("root/pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).unwrap();
        let error = image.find(Some("pipe")).unwrap_err();
        assert_eq!(error, "use /pipe of the image: it is not a regular file");
    }
}
