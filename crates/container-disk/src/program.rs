//! The program: its arguments, and how it reports failures.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::{CopyError, FindError, copy, find};

/// The exit code when the image has no disk to copy; a retry cannot succeed.
pub const IMAGE_AT_FAULT: u8 = 3;

const USAGE: &str = "usage: container-disk --to DIRECTORY [FILE...]";
/// The container's termination message, which the kubelet reads.
const TERMINATION_LOG: &str = "/dev/termination-log";

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{USAGE}")]
    Usage,
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Copy(#[from] CopyError),
}

/// Copies the named files of the image that it runs in, or the only one, each to the same path
/// below the target directory.
pub fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1).collect();
    match run(Path::new("/"), arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let message = failure.to_string();
            // Two outputs, either of which may fail.
            for written in [
                fs::write(TERMINATION_LOG, &message),
                writeln!(io::stderr(), "container-disk: {message}"),
            ] {
                drop(written);
            }
            match failure {
                Failure::Find(_) => ExitCode::from(IMAGE_AT_FAULT),
                Failure::Usage | Failure::Copy(_) => ExitCode::FAILURE,
            }
        }
    }
}

fn run(root: &Path, arguments: Vec<OsString>) -> Result<(), Failure> {
    let mut arguments = arguments.into_iter();
    if arguments.next().is_none_or(|flag| flag != "--to") {
        return Err(Failure::Usage);
    }
    let to = PathBuf::from(arguments.next().ok_or(Failure::Usage)?);
    let mut files: Vec<Option<String>> = Vec::new();
    for file in arguments {
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

    fn run_in(files: &[&str], arguments: &[&str]) -> (tempfile::TempDir, Result<(), Failure>) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let to = dir.path().join("to");
        let arguments = arguments.iter().map(|argument| match *argument {
            "TO" => to.clone().into_os_string(),
            argument => OsString::from(argument),
        });
        let outcome = run(&root, arguments.collect());
        (dir, outcome)
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
        for (arguments, expected) in cases {
            let (dir, outcome) = run_in(&files, arguments);
            outcome.unwrap();
            for file in expected {
                let copy = fs::read_to_string(dir.path().join("to").join(file));
                assert_eq!(copy.unwrap(), *file, "{arguments:?}");
            }
        }
    }

    #[test]
    fn failures_are_explained() {
        let cases: [(&[&str], &str); 4] = [
            (&[], USAGE),
            (&["--from", "x"], USAGE),
            (&["--to"], USAGE),
            (
                &["--to", "TO", "/gone"],
                "use /gone of the image: there is no such file",
            ),
        ];
        for (arguments, expected) in cases {
            let (dir, outcome) = run_in(&["disk/a.img"], arguments);
            assert_eq!(outcome.unwrap_err().to_string(), expected);
            assert!(!dir.path().join("to").exists());
        }
    }
}
