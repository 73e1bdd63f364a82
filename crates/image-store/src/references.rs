//! The digests to which references from registries were last resolved.
//!
//! Stored in one JSON file that is replaced atomically. Losing the file only costs requests to
//! registries, as trees are named by their content.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use crate::digest::Digest;
use crate::error::StoreError;

#[derive(Debug)]
pub(crate) struct References {
    path: PathBuf,
    by_name: BTreeMap<String, Digest>,
}

impl References {
    pub(crate) fn load(path: PathBuf) -> Result<Self, StoreError> {
        let by_name = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| StoreError::Parse {
                path: path.clone(),
                source,
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => return Err(StoreError::io("read", path, source)),
        };
        Ok(Self { path, by_name })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Digest> {
        self.by_name.get(name)
    }

    pub(crate) fn all(&self) -> BTreeMap<String, Digest> {
        self.by_name.clone()
    }

    pub(crate) fn record(&mut self, name: &str, digest: &Digest) -> Result<(), StoreError> {
        if self.by_name.get(name) == Some(digest) {
            return Ok(());
        }
        self.by_name.insert(name.to_owned(), digest.clone());
        self.save()
    }

    pub(crate) fn remove(&mut self, removed: &[Digest]) -> Result<(), StoreError> {
        let before = self.by_name.len();
        self.by_name.retain(|_, digest| !removed.contains(digest));
        if self.by_name.len() == before {
            Ok(())
        } else {
            self.save()
        }
    }

    fn save(&self) -> Result<(), StoreError> {
        let bytes =
            serde_json::to_vec_pretty(&self.by_name).map_err(|source| StoreError::Parse {
                path: self.path.clone(),
                source,
            })?;
        durable_file::replace(&self.path, &bytes, 0o644)
            .map_err(|source| StoreError::io("write", self.path.clone(), source))
    }
}
