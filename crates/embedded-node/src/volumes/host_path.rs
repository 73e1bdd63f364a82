//! Prepares `hostPath` volumes and checks their type.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

use crate::Failure;

use super::FAILED;

pub(crate) fn prepare(source: &HostPathVolumeSource) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(&source.path);
    let wanted = source.type_.as_deref().unwrap_or_default();
    let failed = |error: std::io::Error| {
        Failure::of(
            FAILED,
            &format!("prepare hostPath {}", path.display()),
            &error,
        )
    };
    match wanted {
        "DirectoryOrCreate" if !path.exists() => {
            fs::create_dir_all(&path).map_err(failed)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        }
        "FileOrCreate" if !path.exists() => fs::write(&path, "").map_err(failed)?,
        _ => {}
    }
    check(&path, wanted)?;
    Ok(path)
}

fn check(path: &Path, wanted: &str) -> Result<(), Failure> {
    let found = fs::metadata(path).map(|metadata| metadata.file_type());
    let has_type = |test: fn(&fs::FileType) -> bool| found.as_ref().is_ok_and(test);
    let (fits, expected) = match wanted {
        "" => (true, ""),
        "Directory" | "DirectoryOrCreate" => (has_type(fs::FileType::is_dir), "a directory"),
        "File" | "FileOrCreate" => (has_type(fs::FileType::is_file), "a file"),
        "Socket" => (has_type(fs::FileType::is_socket), "a socket"),
        "CharDevice" => (has_type(fs::FileType::is_char_device), "a character device"),
        "BlockDevice" => (has_type(fs::FileType::is_block_device), "a block device"),
        other => {
            return Err(Failure::new(
                FAILED,
                format!("hostPath type {other:?} is unknown"),
            ));
        }
    };
    if fits {
        return Ok(());
    }
    let message = format!(
        "hostPath type check failed: {} is not {expected}",
        path.display()
    );
    Err(Failure::new(FAILED, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_is_checked_or_created() {
        let dir = tempfile::tempdir().unwrap();
        let source = |name: &str, kind: &str| HostPathVolumeSource {
            path: dir.path().join(name).to_str().unwrap().into(),
            type_: Some(kind.into()),
        };
        for (name, kind, valid) in [
            ("absent", "", true),
            ("absent", "Directory", false),
            ("new/dir", "DirectoryOrCreate", true),
            ("new/dir", "Directory", true),
            ("new/dir", "File", false),
            ("new/file", "FileOrCreate", true),
            ("new/file", "Socket", false),
            ("../../dev/null", "CharDevice", true),
            ("absent", "Door", false),
        ] {
            assert_eq!(prepare(&source(name, kind)).is_ok(), valid, "{name} {kind}");
        }
    }
}
