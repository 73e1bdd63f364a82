//! Valid and malicious images for tests.
use std::path::{Path, PathBuf};

use error_chain::error_chain;
use image_store::{
    Compression, Content, Credentials, Digest, Entry, Image, ImageConfig, ImageError, ImageStore,
    Layer, LayoutWriter, Owner, PullPolicy,
};
use tempfile::TempDir;

pub(crate) const NAME: &str = "ferrovirt/test:1";

/// Temporary directories of a store and of layouts.
pub(crate) struct Fixture {
    pub(crate) directory: TempDir,
    pub(crate) store: ImageStore,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("layouts")).unwrap();
        let store = ImageStore::open(directory.path().join("store")).unwrap();
        store
            .add_layouts(directory.path().join("layouts"))
            .await
            .unwrap();
        Self { directory, store }
    }

    pub(crate) fn layout(&self, name: &str) -> PathBuf {
        self.directory.path().join("layouts").join(name)
    }

    pub(crate) fn store_path(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    pub(crate) async fn ensure(&self, name: &str) -> Result<Image, ImageError> {
        self.store
            .ensure(name, PullPolicy::IfNotPresent, &Credentials::anonymous())
            .await
    }

    /// Publishes layers of raw tar streams as the image [`NAME`] and unpacks it.
    pub(crate) async fn unpack(&self, layers: Vec<Vec<u8>>) -> Result<Image, ImageError> {
        let mut writer = LayoutWriter::create(self.layout("raw.oci"), 0).unwrap();
        for bytes in layers {
            let blob = self.directory.path().join("blob");
            std::fs::write(&blob, &bytes).unwrap();
            let digest = Digest::of(&bytes);
            writer
                .add_layer(
                    &blob,
                    Layer {
                        diff_id: digest.clone(),
                        digest,
                        size: bytes.len() as u64,
                        media_type: "application/vnd.oci.image.layer.v1.tar".to_owned(),
                    },
                )
                .unwrap();
            std::fs::remove_file(&blob).unwrap();
        }
        writer.finish(NAME, &ImageConfig::default()).unwrap();
        self.ensure(NAME).await
    }

    /// Checks that no trees and no work in progress are left.
    pub(crate) fn assert_no_leftovers(&self) {
        let count = |name: &str| {
            std::fs::read_dir(self.store_path().join(name))
                .unwrap()
                .count()
        };
        assert_eq!((count("tmp"), count("trees")), (0, 0));
    }
}

/// A tar stream made entry by entry.
pub(crate) struct Tar(tar::Builder<Vec<u8>>);

impl Tar {
    pub(crate) fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    pub(crate) fn file(self, path: &str, content: &str) -> Self {
        self.entry(path, tar::EntryType::Regular, None, content)
    }

    pub(crate) fn directory(self, path: &str) -> Self {
        self.entry(path, tar::EntryType::Directory, None, "")
    }

    pub(crate) fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(path, tar::EntryType::Symlink, Some(target), "")
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(path, tar::EntryType::Link, Some(target), "")
    }

    /// Writes the header directly, as the library refuses to write malicious paths.
    pub(crate) fn entry(
        mut self,
        path: &str,
        kind: tar::EntryType,
        link: Option<&str>,
        content: &str,
    ) -> Self {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        if let Some(link) = link {
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        }
        header.set_entry_type(kind);
        header.set_mode(if kind == tar::EntryType::Directory {
            0o755
        } else {
            0o640
        });
        header.set_uid(107);
        header.set_gid(36);
        header.set_mtime(1000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.append(&header, content.as_bytes()).unwrap();
        self
    }

    pub(crate) fn extended(mut self, attributes: &[(&str, &[u8])]) -> Self {
        self.0
            .append_pax_extensions(attributes.iter().copied())
            .unwrap();
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// Writes a layout with one small file in it.
pub(crate) fn write_layout(path: &Path, name: &str, content: &str) -> Digest {
    let mut writer = LayoutWriter::create(path, 7).unwrap();
    writer
        .add_entries(vec![entry("hello", content)], Compression::Gzip)
        .unwrap();
    let config = ImageConfig {
        entrypoint: vec!["/hello".to_owned()],
        env: vec!["A=b".to_owned()],
        user: "107:36".to_owned(),
        ..ImageConfig::default()
    };
    writer.finish(name, &config).unwrap()
}

pub(crate) fn entry(path: &str, content: &str) -> Entry {
    Entry {
        path: path.to_owned(),
        mode: 0o644,
        owner: Owner { uid: 1, gid: 2 },
        content: Content::Bytes(content.as_bytes().to_vec()),
    }
}

pub(crate) fn read(image: &Image, path: &str) -> String {
    std::fs::read_to_string(image.root.join(path)).unwrap()
}

pub(crate) fn reason<T: std::fmt::Debug>(result: Result<T, ImageError>) -> String {
    let error = result.unwrap_err();
    format!("{}: {}", error.reason(), error_chain(&error))
}
