//! Files from the API, replaced atomically by one rename, as kubelets do.
//!
//! `<volume>/..data` is a link to the current directory; every name is a link through it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
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

/// Makes `dir` hold exactly `files`, and changes nothing if it does. `version` must differ from call to
/// call.
pub(crate) fn write(
    dir: &Path,
    files: &Files,
    group: Option<u32>,
    version: &str,
) -> io::Result<()> {
    if is_current(dir, files, group)? {
        return Ok(());
    }
    let fresh = dir.join(format!("..{version}"));
    fs::create_dir_all(&fresh)?;
    for (path, file) in files {
        let target = fresh.join(path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&target, &file.bytes)?;
        if group.is_some() {
            chown(&target, None, group)?;
        }
        let mode = fs::Permissions::from_mode(written_mode(file, group));
        fs::set_permissions(&target, mode)?;
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

/// A volume of a group is readable by the group.
fn written_mode(file: &File, group: Option<u32>) -> u32 {
    match group {
        Some(_) => file.mode | 0o440,
        None => file.mode,
    }
}

/// Whether `dir` holds exactly `files`.
fn is_current(dir: &Path, files: &Files, group: Option<u32>) -> io::Result<bool> {
    let data = dir.join("..data");
    if !data.exists() {
        return Ok(false);
    }
    let mut found = 0;
    let mut pending = vec![data.clone()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.is_dir() {
                pending.push(path);
                continue;
            }
            let name = path.strip_prefix(&data).ok().and_then(Path::to_str);
            let Some(wanted) = name.and_then(|name| files.get(name)) else {
                return Ok(false);
            };
            let same = metadata.mode() & 0o777 == written_mode(wanted, group)
                && group.is_none_or(|group| metadata.gid() == group)
                && fs::read(&path)? == wanted.bytes;
            if !same {
                return Ok(false);
            }
            found += 1;
        }
    }
    let linked = files.keys().all(|path| dir.join(path).exists());
    Ok(found == files.len() && linked)
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
    fn unchanged_files_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let current = || fs::read_link(dir.path().join("..data")).unwrap();
        let files: Files = [("a".to_owned(), file("1")), ("d/b".to_owned(), file("2"))].into();
        write(dir.path(), &files, Some(107), "1").unwrap();
        write(dir.path(), &files, Some(107), "2").unwrap();
        assert_eq!(current(), Path::new("..1"));
        let mut other = files.clone();
        other.get_mut("d/b").unwrap().bytes = b"3".to_vec();
        let mut stricter = files.clone();
        stricter.get_mut("a").unwrap().mode = 0o400;
        let mut more = files.clone();
        more.insert("c".to_owned(), file(""));
        let fewer: Files = [("a".to_owned(), file("1"))].into();
        for (version, changed) in ["2", "3", "4", "5"]
            .into_iter()
            .zip([other, stricter, more, fewer])
        {
            write(dir.path(), &changed, Some(107), version).unwrap();
            assert_eq!(current(), Path::new(&format!("..{version}")));
        }
        write(dir.path(), &files, None, "6").unwrap();
        write(dir.path(), &files, Some(108), "7").unwrap();
        assert_eq!(current(), Path::new("..7"));
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
