//! The kernel of a guest and the modules of its first file system, from unpacked packages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Ends a group of modules in a list.
const SEPARATOR: &str = "--";

/// A line of the loading order.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: String,
    /// A separator has none.
    pub(super) file: Option<PathBuf>,
}

/// The kernel image.
pub(super) fn kernel_of(tree: &Path) -> Result<Vec<u8>> {
    let boot = tree.join("boot");
    for entry in fs::read_dir(&boot)? {
        let entry = entry?;
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(b"vmlinuz-")
        {
            return Ok(fs::read(entry.path())?);
        }
    }
    anyhow::bail!("the packages bring no kernel")
}

/// The directory with the modules of all kernels in a tree.
pub(super) fn modules_of(tree: &Path) -> Result<PathBuf> {
    let places = [tree.join("lib/modules"), tree.join("usr/lib/modules")];
    let found = places.into_iter().find(|path| path.is_dir());
    found.context("the kernel has no modules")
}

/// The modules of a list with those that they need, in loading order; a module the kernel has built in is left
/// out, and the separator stays.
pub(super) fn modules(list: &Path, tree: &Path) -> Result<Vec<Module>> {
    let mut files = BTreeMap::new();
    find_modules(&modules_of(tree)?, &mut files)?;
    let mut ordered = Vec::new();
    for name in fs::read_to_string(list)
        .with_context(|| format!("read {}", list.display()))?
        .lines()
        .map(str::trim)
    {
        if name.is_empty() || name.starts_with('#') {
            continue;
        }
        if name == SEPARATOR {
            ordered.push(Module {
                name: name.to_owned(),
                file: None,
            });
        } else {
            add_with_needs(name, &files, &mut ordered)?;
        }
    }
    Ok(ordered)
}

fn find_modules(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_modules(&entry.path(), files)?;
        } else if let Some(name) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.strip_suffix(".ko"))
        {
            files.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

fn add_with_needs(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    ordered: &mut Vec<Module>,
) -> Result<()> {
    let Some(path) = files.get(name) else {
        return Ok(());
    };
    if ordered.iter().any(|known| known.name == name) {
        return Ok(());
    }
    for need in needs_of(&fs::read(path)?) {
        add_with_needs(&need.replace('-', "_"), files, ordered)?;
    }
    ordered.push(Module {
        name: name.to_owned(),
        file: Some(path.clone()),
    });
    Ok(())
}

/// A module lists its dependencies in a section of zero-terminated `key=value` strings.
fn needs_of(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = module.get(start + KEY.len()..).unwrap_or_default();
    let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value)
        .split(',')
        .filter(|need| !need.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::needs_of;

    #[test]
    fn a_module_names_its_needs() {
        assert_eq!(
            needs_of(b"x\0license=GPL\0depends=a,b-c\0name=d\0"),
            ["a", "b-c"]
        );
        assert!(needs_of(b"x\0depends=\0name=d\0").is_empty());
        assert!(needs_of(b"").is_empty());
    }
}
