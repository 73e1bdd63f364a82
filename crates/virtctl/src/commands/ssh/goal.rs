//! The one local file or directory that a call of `scp` writes.

use std::path::{Path, PathBuf};

use super::{cli::Scp, location::Location};

/// What is written, if it is one whose name is known beforehand: not with several files, nor if the guest's shell may
/// change the name, nor if a directory is merged into one that exists.
pub(super) fn goal(flags: &Scp) -> Option<PathBuf> {
    let (Location::Remote { path, .. }, Location::Local(to)) = (&flags.source, &flags.destination)
    else {
        return None;
    };
    let to = Path::new(if to.is_empty() { "." } else { to });
    if flags.recursive {
        let is_new = |path: &PathBuf| path.symlink_metadata().is_err();
        return if to.is_dir() {
            named(path, to).filter(is_new)
        } else {
            Some(to.to_owned()).filter(is_new)
        };
    }
    let names_directory = to.as_os_str().to_string_lossy().ends_with(['/', '\\']);
    if !names_directory && !to.is_dir() {
        return Some(to.to_owned());
    }
    named(path, to).filter(|_| to.is_dir())
}

/// A place in a directory with the name that a path in the guest ends with.
fn named(path: &str, directory: &Path) -> Option<PathBuf> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_plain = |c: char| c.is_alphanumeric() || "._-+=@,".contains(c);
    let is_name = !["", ".", ".."].contains(&name) && name.chars().all(is_plain);
    is_name.then(|| directory.join(name))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn goal_of(arguments: &str) -> Option<PathBuf> {
        let words = "virtctl scp".split(' ').chain(arguments.split(' '));
        match Cli::try_parse_from(words).unwrap().command {
            Command::Scp(flags) => goal(&flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_file_or_new_directory_has_a_known_name() {
        for (arguments, expected) in [
            ("vm/a:/etc/hosts new.txt", Some("new.txt")),
            ("vm/a:*.txt new.txt", Some("new.txt")),
            ("vm/a:/etc/hosts src", Some("src/hosts")),
            ("vm/a:hosts src/", Some("src/hosts")),
            ("vm/a:hosts .", Some("./hosts")),
            ("vm/a:*.txt src", None),
            ("vm/a:$HOME/ src", None),
            ("vm/a:.. src", None),
            ("vm/a:hosts missing/", None),
            ("vm/a:/etc new -r", Some("new")),
            ("vm/a:/etc missing/ -r", Some("missing/")),
            ("vm/a:/etc src -r", Some("src/etc")),
            ("vm/a:/home/me/files src -r", None),
            ("vm/a:/etc/ src -r", None),
            ("vm/a:* src -r", None),
            ("vm/a:/etc Cargo.toml -r", None),
            ("new.txt vm/a:new.txt", None),
        ] {
            assert_eq!(
                goal_of(arguments),
                expected.map(PathBuf::from),
                "{arguments}"
            );
        }
    }
}
