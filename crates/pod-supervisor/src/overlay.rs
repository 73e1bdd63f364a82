//! The root of a container: an overlay of an unpacked image and a writable layer.

use std::{
    ffi::CString,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, mount};

#[derive(Debug, thiserror::Error)]
pub(crate) enum OverlayError {
    #[error("mount an overlay: this kernel has no overlay file system (CONFIG_OVERLAY_FS)")]
    NoOverlay,
    #[error("image directory {} is missing: pull the image again", lower.display())]
    NoImage { lower: PathBuf },
    #[error("mount image {} as an overlay", lower.display())]
    Mount {
        lower: PathBuf,
        #[source]
        source: io::Error,
    },
}

pub(crate) fn mount_overlay(
    lower: &Path,
    upper: &Path,
    work: &Path,
    target: &Path,
    flags: MountFlags,
) -> Result<(), OverlayError> {
    if !lower.is_dir() {
        return Err(OverlayError::NoImage {
            lower: lower.to_owned(),
        });
    }
    let mut data = Vec::new();
    for (key, path) in [
        ("lowerdir=", lower),
        (",upperdir=", upper),
        (",workdir=", work),
    ] {
        data.extend_from_slice(key.as_bytes());
        append_escaped(&mut data, path);
    }
    let data = CString::new(data).expect("paths have no zero byte");
    mount("overlay", target, "overlay", flags, data.as_c_str()).map_err(|error| match error {
        rustix::io::Errno::NODEV => OverlayError::NoOverlay,
        error => OverlayError::Mount {
            lower: lower.to_owned(),
            source: error.into(),
        },
    })
}

/// Escapes the separators of options (commas) and layers (colons).
fn append_escaped(data: &mut Vec<u8>, path: &Path) {
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b',' | b':' | b'\\') {
            data.push(b'\\');
        }
        data.push(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_in_paths_are_escaped() {
        let mut data = Vec::new();
        append_escaped(&mut data, Path::new("/a:b,c\\d"));
        assert_eq!(data, b"/a\\:b\\,c\\\\d");
    }
}
