//! The cache directory: finished artefacts under the hash of their inputs.
//!
//! **Invariants**: an artefact gets its final name only when it is complete; one task at a time uses
//! the cache, guarded by a lock that ends with its holder; older versions of an artefact are removed
//! when a new one is finished.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use image_store::Digest;

use crate::lock::{Lock, lock};

/// The modification time of every built file: 1 January 2026; any fixed time will do.
pub(crate) const EPOCH: u64 = 1_767_225_600;

/// The cache, locked for this process.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    _lock: Lock,
}

/// The cache directory, for tasks that manage their own part of it.
pub(crate) fn directory() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("ferrovirt"))
}

/// The inputs of an artefact.
#[derive(Debug, Default)]
pub(crate) struct Inputs(Vec<u8>);

impl Cache {
    pub(crate) fn open() -> Result<Self> {
        let root = directory()?;
        for directory in ["images", "work"] {
            let path = root.join(directory);
            fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        }
        let path = root.join("work/lock");
        let lock = lock(&path)?;
        let cache = Self { root, _lock: lock };
        cache.sweep()?;
        Ok(cache)
    }

    /// The directory of finished images.
    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// The directory of artefact `name` made of `inputs`; `build` fills an empty directory if it is
    /// missing.
    pub(crate) fn thing(
        &self,
        name: &str,
        inputs: &Inputs,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let work = self.root.join("work");
        let place = work.join(format!("{name}-{}", inputs.hash()));
        if place.exists() {
            return Ok(place);
        }
        let draft = work.join(format!(".draft-{name}"));
        fs::create_dir(&draft).with_context(|| format!("make {}", draft.display()))?;
        build(&draft)?;
        fs::rename(&draft, &place).with_context(|| format!("rename to {}", place.display()))?;
        for entry in fs::read_dir(&work)? {
            let entry = entry?;
            let is_older = entry.file_name().to_str().is_some_and(|other| {
                other
                    .rsplit_once('-')
                    .is_some_and(|(other, _)| other == name)
            });
            if is_older && entry.path() != place {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(place)
    }

    /// Removes drafts of killed tasks.
    fn sweep(&self) -> Result<()> {
        for entry in fs::read_dir(self.root.join("work"))? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".draft-") {
                fs::remove_dir_all(entry.path())
                    .with_context(|| format!("remove {}", entry.path().display()))?;
            }
        }
        Ok(())
    }
}

impl Inputs {
    /// A text: a version of the recipe, a name.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.add(text.as_bytes());
        self
    }

    /// A file's bytes, or those of all files directly in a directory, with their names.
    pub(crate) fn path(mut self, path: &Path) -> Result<Self> {
        if path.is_dir() {
            let mut children = fs::read_dir(path)?
                .map(|entry| Ok(entry?.path()))
                .collect::<Result<Vec<_>>>()?;
            children.sort();
            for child in children {
                self = self.path(&child)?;
            }
            return Ok(self);
        }
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        self.add(path.file_name().unwrap_or_default().as_encoded_bytes());
        self.add(&bytes);
        Ok(self)
    }

    /// A short hash of all inputs.
    pub(crate) fn hash(&self) -> String {
        Digest::of(&self.0).hex().chars().take(16).collect()
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0
            .extend_from_slice(format!("{}:", bytes.len()).as_bytes());
        self.0.extend_from_slice(bytes);
    }
}
