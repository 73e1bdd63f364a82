//! Files from the API, replaced atomically by one rename, as kubelets do.
//!
//! `<volume>/..data` is a link to the current directory; every name is a link through it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Component, Path},
};

use crate::Failure;

use super::FAILED;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mode: u32,
}

/// By path inside the volume.
pub(crate) type Files = BTreeMap<String, File>;

/// Makes `dir` hold exactly `files`. `version` must differ from call to call.
pub(crate) fn write(
    dir: &Path,
    files: &Files,
    group: Option<u32>,
    version: &str,
) -> io::Result<()> {
    let fresh = dir.join(format!("..{version}"));
    fs::create_dir_all(&fresh)?;
    for (path, file) in files {
        let target = fresh.join(path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&target, &file.bytes)?;
        let mut mode = file.mode;
        if group.is_some() {
            chown(&target, None, group)?;
            mode |= 0o440;
        }
        fs::set_permissions(&target, fs::Permissions::from_mode(mode))?;
    }
    let before = fs::read_link(dir.join("..data")).ok();
    let link = dir.join("..data_tmp");
    remove_if_exists(&link)?;
    symlink(format!("..{version}"), &link)?;
    fs::rename(link, dir.join("..data"))?;

    let names: BTreeSet<&str> = files
        .keys()
        .filter_map(|path| path.split('/').next())
        .collect();
    for name in &names {
        let link = dir.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(name), link)?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let known = name
            .to_str()
            .is_some_and(|n| n.starts_with("..") || names.contains(n));
        if !known {
            fs::remove_file(dir.join(name))?;
        }
    }
    match before {
        Some(old) if old != Path::new(&format!("..{version}")) => fs::remove_dir_all(dir.join(old)),
        _ => Ok(()),
    }
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Selects `items` of `data`, or all of it.
pub(crate) fn select<'a>(
    source: &str,
    data: BTreeMap<String, Vec<u8>>,
    items: Option<impl IntoIterator<Item = Item<'a>>>,
    settings: Select,
) -> Result<Files, Failure> {
    let Some(items) = items else {
        let mode = settings.default_mode;
        return Ok(data
            .into_iter()
            .map(|(key, bytes)| (key, File { bytes, mode }))
            .collect());
    };
    let mut files = Files::new();
    for item in items {
        check_path(item.path)?;
        match data.get(item.key) {
            Some(bytes) => {
                let mode = item.mode.map_or(settings.default_mode, mode);
                files.insert(
                    item.path.to_owned(),
                    File {
                        bytes: bytes.clone(),
                        mode,
                    },
                );
            }
            None if settings.missing == Missing::Ignored => {}
            None => {
                let message = format!("{source} has no key {:?}", item.key);
                return Err(Failure::new(FAILED, message));
            }
        }
    }
    Ok(files)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) key: &'a str,
    pub(crate) path: &'a str,
    pub(crate) mode: Option<i32>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Select {
    pub(crate) default_mode: u32,
    pub(crate) missing: Missing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Ignored,
    Fatal,
}

pub(crate) fn mode(wanted: i32) -> u32 {
    wanted.cast_unsigned() & 0o777
}

/// Refuses paths that leave the volume or clash with our own links.
pub(crate) fn check_path(path: &str) -> Result<(), Failure> {
    let plain = Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if path.is_empty() || !plain || path.starts_with("..") {
        return Err(Failure::new(
            FAILED,
            format!("{path:?} is not a path inside a volume"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File {
            bytes: text.into(),
            mode: 0o644,
        }
    }

    #[test]
    fn files_are_replaced_together() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        let first = [("a".to_owned(), file("1")), ("d/b".to_owned(), file("2"))].into();
        write(dir.path(), &first, Some(107), "1").unwrap();
        assert_eq!(
            (read("a"), read("d/b")),
            (Some("1".into()), Some("2".into()))
        );
        let second = [("a".to_owned(), file("3"))].into();
        write(dir.path(), &second, None, "2").unwrap();
        assert_eq!((read("a"), read("d/b")), (Some("3".into()), None));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        write(dir.path(), &second, None, "2").unwrap();
        assert_eq!(read("a"), Some("3".into()));
    }

    #[test]
    fn items_are_selected_and_checked() {
        let data = || [("k".to_owned(), b"v".to_vec())].into();
        let pick = |key, path, missing| {
            let select_with = Select {
                default_mode: 0o600,
                missing,
            };
            let mode = Some(0o400);
            select(
                "secret",
                data(),
                Some([Item { key, path, mode }]),
                select_with,
            )
        };
        let expected: Files = [(
            "p".to_owned(),
            File {
                bytes: b"v".into(),
                mode: 0o400,
            },
        )]
        .into();
        assert_eq!(pick("k", "p", Missing::Fatal).unwrap(), expected);
        assert_eq!(pick("x", "p", Missing::Ignored).unwrap(), Files::new());
        for (key, path) in [
            ("x", "p"),
            ("k", "../p"),
            ("k", "/p"),
            ("k", "..p"),
            ("k", ""),
        ] {
            assert_eq!(
                pick(key, path, Missing::Fatal).unwrap_err().reason,
                FAILED,
                "{path:?}"
            );
        }
    }
}
