//! What `--image` names.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    str::FromStr,
};

/// Ends of names of disk images.
const FILE_ENDS: [&str; 7] = ["qcow2", "img", "raw", "iso", "vmdk", "vhd", "vhdx"];

/// What `--image` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A container image with a disk.
    Container(String),
    /// A disk image on a web server.
    Web(String),
    /// A file of this computer.
    File(PathBuf),
}

impl FromStr for Image {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let path = Path::new(text);
        let end = path.extension().and_then(|end| end.to_str());
        let end = end.map(str::to_ascii_lowercase);
        let is_path = path.is_absolute()
            || text.starts_with("./")
            || text.starts_with("../")
            || end.is_some_and(|end| FILE_ENDS.contains(&end.as_str()));
        let text = text.to_owned();
        Ok(
            if text.starts_with("http://") || text.starts_with("https://") {
                Self::Web(text)
            } else if let Some(image) = text.strip_prefix("docker://") {
                Self::Container(image.to_owned())
            } else if is_path {
                Self::File(text.into())
            } else {
                Self::Container(text)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_a_container_image_an_address_or_a_file() {
        let container = |text: &str| Image::Container(text.to_owned());
        let file = |text: &str| Image::File(text.into());
        for (text, expected) in [
            ("debian", container("debian")),
            (
                "quay.io/containerdisks/debian:13",
                container("quay.io/containerdisks/debian:13"),
            ),
            ("docker://quay.io/a/b", container("quay.io/a/b")),
            (
                "registry:5000/a.b/disk",
                container("registry:5000/a.b/disk"),
            ),
            (
                "https://example.org/a.qcow2",
                Image::Web("https://example.org/a.qcow2".to_owned()),
            ),
            (
                "http://example.org/a?b=c,d",
                Image::Web("http://example.org/a?b=c,d".to_owned()),
            ),
            ("debian.QCOW2", file("debian.QCOW2")),
            ("./debian", file("./debian")),
            ("/images/debian", file("/images/debian")),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }
}
