//! The files of an image as a tree of directories.
//!
//! **Invariant**: directories are listed breadth first and by name, as the path table requires; a name
//! is unique in its directory.

use std::collections::BTreeMap;

use crate::SeedError;

/// Longest name in UTF-16 units that Joliet guarantees.
const MAX_NAME: usize = 64;
/// Deepest path, counted in names, that ISO 9660 allows (the root is the first of eight levels).
const MAX_DEPTH: usize = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    /// Index into the files of the tree.
    File(usize),
    /// Index into [`Tree::directories`].
    Directory(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) parent: usize,
    pub(crate) entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) directories: Vec<Directory>,
}

impl Tree {
    pub(crate) fn of<'a>(paths: impl Iterator<Item = &'a str>) -> Result<Self, SeedError> {
        let mut tree = Self {
            directories: vec![Directory::default()],
        };
        for (file, path) in paths.enumerate() {
            tree.insert(file, path)?;
        }
        Ok(tree.breadth_first())
    }

    fn insert(&mut self, file: usize, path: &str) -> Result<(), SeedError> {
        let names: Vec<&str> = path.split('/').collect();
        if names.len() > MAX_DEPTH || !names.iter().all(|name| is_valid(name)) {
            return Err(SeedError::Name {
                path: path.to_owned(),
            });
        }
        let taken = || SeedError::Duplicate {
            path: path.to_owned(),
        };
        let (name, parents) = names.split_last().expect("split gives at least one part");
        let mut at = 0;
        for parent in parents {
            at = match self.directories[at].entries.get(*parent) {
                Some(Entry::Directory(found)) => *found,
                Some(Entry::File(_)) => return Err(taken()),
                None => self.add_directory(at, parent),
            };
        }
        match self.directories[at]
            .entries
            .insert((*name).to_owned(), Entry::File(file))
        {
            None => Ok(()),
            Some(_) => Err(taken()),
        }
    }

    fn add_directory(&mut self, parent: usize, name: &str) -> usize {
        let made = self.directories.len();
        self.directories.push(Directory {
            parent,
            entries: BTreeMap::new(),
        });
        self.directories[parent]
            .entries
            .insert(name.to_owned(), Entry::Directory(made));
        made
    }

    fn breadth_first(mut self) -> Self {
        let mut sorted = vec![Directory {
            parent: 0,
            entries: std::mem::take(&mut self.directories[0].entries),
        }];
        let mut at = 0;
        while at < sorted.len() {
            let mut entries = std::mem::take(&mut sorted[at].entries);
            for entry in entries.values_mut() {
                if let Entry::Directory(old) = entry {
                    let moved = std::mem::take(&mut self.directories[*old].entries);
                    *entry = Entry::Directory(sorted.len());
                    sorted.push(Directory {
                        parent: at,
                        entries: moved,
                    });
                }
            }
            sorted[at].entries = entries;
            at += 1;
        }
        Self {
            directories: sorted,
        }
    }
}

fn is_valid(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name != ".."
        && name.encode_utf16().count() <= MAX_NAME
        && !name
            .chars()
            .any(|c| c.is_control() || "*:;?\\".contains(c) || c > '\u{ffff}')
}
