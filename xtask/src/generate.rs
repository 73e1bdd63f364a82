//! `xtask generate`: files that are made from code and checked in.
//!
//! Today these are the definitions of our kinds under `deploy/crds`. What they say is decided in
//! `kubevirt-api`; this module only knows files.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Context, bail};
use kubevirt_api::crds::definition;

/// Writes every generated file and removes what no kind makes any more, or with `check` only says which ones are stale.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let directory = crds_directory();
    let mut stale = Vec::new();
    let mut wanted = BTreeSet::new();
    for (name, text) in definition::render().context("render the definitions")? {
        let file = format!("{name}.yaml");
        let path = directory.join(&file);
        wanted.insert(file.clone());
        if fs::read_to_string(&path).is_ok_and(|found| found == text) {
            continue;
        }
        if check {
            stale.push(format!("deploy/crds/{file}"));
        } else {
            fs::create_dir_all(&directory)
                .with_context(|| format!("create {}", directory.display()))?;
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
    }
    for entry in
        fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))?
    {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        if wanted.contains(&file) {
            continue;
        }
        if check {
            stale.push(format!("deploy/crds/{file} (belongs to no kind)"));
        } else {
            fs::remove_file(entry.path()).with_context(|| format!("remove {file}"))?;
        }
    }
    if !stale.is_empty() {
        bail!(
            "stale: {}; run `cargo xtask generate` and commit the result",
            stale.join(", ")
        );
    }
    Ok(())
}

fn crds_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds")
}
