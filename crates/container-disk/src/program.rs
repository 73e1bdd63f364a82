//! The program: what it is told, and how it says why it could not.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{CopyError, FindError, copy, find};

/// How it ends when there is nothing in the image that could be copied; trying again is in vain.
pub const IMAGE_AT_FAULT: u8 = 3;

const USAGE: &str = "usage: container-disk --to DIRECTORY [FILE...]";
/// Where a kubelet reads what a container has to say at its end.
const LAST_WORDS: &str = "/dev/termination-log";

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{USAGE}")]
    Usage,
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Copy(#[from] CopyError),
}

/// Copies the named files of the image that it runs in, or the only one, each to its own path below
/// the directory.
pub fn main() -> ExitCode {
    let told = std::env::args_os().skip(1).collect();
    match run(Path::new("/"), told) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let words = failure.to_string();
            // Whatever cannot be said in one place can in the other.
            for said in [
                fs::write(LAST_WORDS, &words),
                writeln!(io::stderr(), "container-disk: {words}"),
            ] {
                drop(said);
            }
            match failure {
                Failure::Find(_) => ExitCode::from(IMAGE_AT_FAULT),
                Failure::Usage | Failure::Copy(_) => ExitCode::FAILURE,
            }
        }
    }
}

fn run(root: &Path, told: Vec<OsString>) -> Result<(), Failure> {
    let mut told = told.into_iter();
    if told.next().is_none_or(|flag| flag != "--to") {
        return Err(Failure::Usage);
    }
    let to = PathBuf::from(told.next().ok_or(Failure::Usage)?);
    let mut files: Vec<Option<String>> = Vec::new();
    for file in told {
        files.push(Some(file.into_string().map_err(|_| Failure::Usage)?));
    }
    if files.is_empty() {
        files.push(None);
    }
    for file in files {
        let found = find(root, file.as_deref())?;
        copy(&found.file, &to.join(&found.inside))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_in(files: &[&str], told: &[&str]) -> (tempfile::TempDir, Result<(), Failure>) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let to = place.path().join("to");
        let told = told.iter().map(|word| match *word {
            "TO" => to.clone().into_os_string(),
            word => OsString::from(word),
        });
        let told = told.collect();
        let outcome = run(&root, told);
        (place, outcome)
    }

    #[test]
    fn files_keep_their_paths() {
        let files = ["disk/a.img", "boot/vmlinuz", "boot/initrd"];
        let cases: [(&[&str], &[&str]); 3] = [
            (&["--to", "TO"], &["disk/a.img"]),
            (&["--to", "TO", "/boot/initrd"], &["boot/initrd"]),
            (
                &["--to", "TO", "/boot/vmlinuz", "/boot/initrd"],
                &["boot/vmlinuz", "boot/initrd"],
            ),
        ];
        for (told, expected) in cases {
            let (place, outcome) = run_in(&files, told);
            outcome.unwrap();
            for file in expected {
                let copy = fs::read_to_string(place.path().join("to").join(file));
                assert_eq!(copy.unwrap(), *file, "{told:?}");
            }
        }
    }

    #[test]
    fn it_says_what_it_lacks() {
        let cases: [(&[&str], &str); 4] = [
            (&[], USAGE),
            (&["--from", "x"], USAGE),
            (&["--to"], USAGE),
            (
                &["--to", "TO", "/gone"],
                "use /gone of the image: there is no such file",
            ),
        ];
        for (told, expected) in cases {
            let (place, outcome) = run_in(&["disk/a.img"], told);
            assert_eq!(outcome.unwrap_err().to_string(), expected);
            assert!(!place.path().join("to").exists());
        }
    }
}
