//! Which file of an image is the disk.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;

use crate::beneath;

/// Where a container disk keeps its file.
const DISK_DIRECTORY: &str = "disk";
/// Names in a message; of more files than that it says how many.
const MOST_NAMES: usize = 3;

/// A file of an image.
#[derive(Debug)]
pub struct Found {
    /// Below the root of the image.
    pub inside: PathBuf,
    pub file: File,
}

/// Why an image has no such file. The image does not change, so looking again would not help.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{why}")]
    NoDisk { why: String },
    #[error("use /{path} of the image: {why}", path = path.display(), why = why(source))]
    Unusable { path: PathBuf, source: io::Error },
    #[error("use /{path} of the image: it is no file", path = path.display())]
    NotAFile { path: PathBuf },
}

/// Finds the file of that path, or the only one of an image that says nothing.
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

/// The single file in `disk/`, else the single one at the root.
fn only_file(root: &File) -> Result<PathBuf, FindError> {
    let in_disk = files_in(root, DISK_DIRECTORY)?;
    let (place, files) = match in_disk {
        Some(files) if !files.is_empty() => (DISK_DIRECTORY, files),
        _ => (".", files_in(root, ".")?.unwrap_or_default()),
    };
    match files.as_slice() {
        [only] if place == DISK_DIRECTORY => Ok(Path::new(place).join(only)),
        [only] => Ok(only.clone()),
        [] => Err(FindError::NoDisk {
            why: "there is no file in /disk of the image, which is where a container disk holds \
                  its one file"
                .to_owned(),
        }),
        many => {
            let shown: Vec<_> = many
                .iter()
                .take(MOST_NAMES)
                .map(|name| name.display().to_string())
                .collect();
            let more = if many.len() > shown.len() {
                ", …"
            } else {
                ""
            };
            Err(FindError::NoDisk {
                why: format!(
                    "/{} of the image holds {} files ({}{more}), and none is named: give the path \
                     of the disk",
                    place.trim_start_matches('.'),
                    many.len(),
                    shown.join(", "),
                ),
            })
        }
    }
}

/// Files of a directory, in order of their names; none where there is no such directory.
fn files_in(root: &File, place: &str) -> Result<Option<Vec<PathBuf>>, FindError> {
    let unusable = |source: io::Error| FindError::Unusable {
        path: place.into(),
        source,
    };
    let directory = match beneath::own_directory(root, Path::new(place)) {
        Ok(directory) => directory,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(unusable(error)),
            };
        }
    };
    let mut files = names_of_files(&directory).map_err(|errno| unusable(errno.into()))?;
    // Container engines leave marks of theirs at the root.
    files.retain(|name| {
        place == DISK_DIRECTORY || !name.as_os_str().as_encoded_bytes().starts_with(b".")
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

/// In words of somebody who made an image.
fn why(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => "there is no such file".to_owned(),
        Some(Errno::NOTDIR) => "it lies below a file".to_owned(),
        Some(Errno::LOOP) => "symbolic links are not followed".to_owned(),
        Some(Errno::XDEV) => "it leads out of the image".to_owned(),
        Some(Errno::ACCESS) => "user 107 may not read it".to_owned(),
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
    fn the_one_file_is_the_disk() {
        let cases: [(&[&str], &str); 4] = [
            (&["disk/any.img"], "disk/any.img"),
            (&["disk/.hidden"], "disk/.hidden"),
            // An image may hold more than a disk.
            (&["disk/any.img", "notes", "etc/passwd"], "disk/any.img"),
            (&[".dockerenv", "bare.img"], "bare.img"),
        ];
        for (files, expected) in cases {
            let found = Image::with(files).find(None);
            assert_eq!(found.as_deref(), Ok(Path::new(expected)), "{files:?}");
        }
    }

    #[test]
    fn an_image_without_one_says_so() {
        let cases: [(&[&str], &str); 4] = [
            (&[], "there is no file in /disk of the image"),
            (&["etc/passwd"], "there is no file in /disk of the image"),
            (
                &["disk/b", "disk/a"],
                "/disk of the image holds 2 files (a, b)",
            ),
            (
                &["disk/1", "disk/2", "disk/3", "disk/4"],
                "holds 4 files (1, 2, 3, …)",
            ),
        ];
        for (files, expected) in cases {
            let error = Image::with(files).find(None).unwrap_err();
            assert!(error.contains(expected), "{files:?}: {error}");
        }
    }

    #[test]
    fn a_named_file_is_taken_wherever_it_lies_in_the_image() {
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
                Err("use /disk/a/b of the image: it lies below a file"),
            ),
            ("/disk", Err("use /disk of the image: it is no file")),
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

    #[test]
    fn links_are_not_followed_even_within_the_image() {
        let image = Image::with(&["disk/real"]);
        fs::write(image.path("outside"), "secret").unwrap();
        symlink(image.path("outside"), image.path("root/disk/link")).unwrap();
        symlink("disk", image.path("root/directory")).unwrap();
        // A link is no file, so it is not one too many either.
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
    fn what_is_mounted_into_an_image_is_no_part_of_it() {
        let error = find(Path::new("/"), Some("/proc/self/environ")).unwrap_err();
        let expected = "use /proc/self/environ of the image: it leads out of the image";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_pipe_is_no_disk_and_nobody_waits_for_it() {
        let image = Image::with(&[]);
        let path = image.path("root/pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).unwrap();
        let error = image.find(Some("pipe")).unwrap_err();
        assert_eq!(error, "use /pipe of the image: it is no file");
    }
}
