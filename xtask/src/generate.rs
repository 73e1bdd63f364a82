//! `xtask generate`: files that are made from code and checked in.
//!
//! These are the definitions of our kinds under `deploy/crds` and `deploy/importer`, the manifest that installs all of it,
//! `deploy/ferrovirt.yaml`, the list of end-to-end tests, the reference of reasons in the troubleshooting
//! guide, the references of metrics and of the API server of a single host, and the schemas in the `OpenAPI` of
//! virt-api. Their content comes from
//! `kubevirt-api`, `installation`, `e2e`, `reasons`, `diagnosis`, `embedded-api` and the tables of metrics;
//! this module only knows files.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Context, bail};
use kubevirt_api::crds::{self, manifests};

use crate::{e2e_list, metrics_page, troubleshooting, workspace::root};

/// Writes every generated file and removes obsolete ones; with `check` only reports stale ones.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let directory = crds_directory();
    let mut stale = Vec::new();
    let mut wanted = BTreeSet::new();
    let definitions: Vec<_> = manifests::render()
        .context("render the definitions")?
        .into_iter()
        .collect();
    let manifest = manifest(definitions.iter().map(|(_, text)| text.as_ref()))?;
    let importer =
        manifests::render_importer().context("render the definitions of the importer")?;
    let importer = importer
        .into_iter()
        .map(|(name, text)| (format!("deploy/importer/{name}.yaml"), text));
    let pages = [
        ("deploy/ferrovirt.yaml", manifest),
        ("docs/e2e-tests.md", e2e_list::page()?),
        ("crates/virt-api/src/openapi/schemas.json", schemas()?),
        (troubleshooting::PAGE, troubleshooting::page()?),
        ("docs/reference/metrics.md", metrics_page::page()?),
        (
            "docs/reference/api-server.md",
            embedded_api::reference::page(),
        ),
    ];
    let pages = pages.map(|(name, text)| (name.to_owned(), text));
    for (name, text) in pages.into_iter().chain(importer) {
        let path = root().join(&name);
        if fs::read_to_string(&path).is_ok_and(|found| found == text) {
            continue;
        }
        if check {
            stale.push(name);
        } else {
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
    }
    for (name, text) in definitions {
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

/// Everything that `kubectl apply --server-side` installs.
fn manifest<'a>(definitions: impl Iterator<Item = &'a str>) -> anyhow::Result<String> {
    let mut all = String::from(
        "# Installs Ferrovirt: kubectl apply --server-side -f deploy/ferrovirt.yaml\n\
         # Made by `cargo xtask generate`.\n",
    );
    for definition in definitions {
        all.push_str("---\n");
        all.push_str(definition);
    }
    let names: Vec<&str> = crds::ALL.iter().map(|(name, _)| *name).collect();
    let objects = installation::objects(&installation::Settings::usual(), &names);
    for object in objects.context("put the installation together")? {
        all.push_str("---\n");
        all.push_str(&serde_saphyr::to_string(&object).context("write an object as YAML")?);
    }
    Ok(all)
}

/// Schemas of the bodies of subresources.
fn schemas() -> anyhow::Result<String> {
    let schemas = crds::subresources::schemas();
    let text = serde_json::to_string_pretty(&schemas).context("write the schemas of bodies")?;
    Ok(text + "\n")
}

fn crds_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds")
}
