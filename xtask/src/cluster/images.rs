//! The few images that a cluster needs before anything else, and the way of any image onto the nodes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use image_store::{Compression, Content, Entry, ImageConfig, LayoutWriter, Owner};

use super::{
    node,
    place::{NodeNumber, Place},
};
use crate::cache::{Cache, EPOCH};

const BUSYBOX: &str = "/usr/bin/busybox";
/// Pods of tests run it: a shell and small network tools.
const BUSYBOX_IMAGE: &str = "docker.io/ferrovirt/busybox:devel";
pub(super) const DNS_IMAGE: &str = "docker.io/ferrovirt/coredns:devel";

/// An OCI layout and the name it gets.
#[derive(Debug, Clone)]
pub(super) struct Image {
    pub(super) name: String,
    pub(super) layout: PathBuf,
}

/// Makes the cluster's own images.
pub(super) fn own(place: &Place) -> Result<Vec<Image>> {
    let pause = ImageConfig {
        entrypoint: ["/bin/busybox", "sleep", "2147483647"]
            .map(str::to_owned)
            .to_vec(),
        user: "65535:65535".to_owned(),
        ..ImageConfig::default()
    };
    let busybox = ImageConfig {
        entrypoint: Vec::new(),
        env: vec!["PATH=/bin".to_owned()],
        ..ImageConfig::default()
    };
    let dns = ImageConfig {
        entrypoint: vec!["/coredns".to_owned()],
        ..ImageConfig::default()
    };
    let coredns = fs::canonicalize(place.bin("coredns")).context("find coredns")?;
    Ok(vec![
        image(
            place,
            node::PAUSE_IMAGE,
            vec![file("bin/busybox", BUSYBOX.into())],
            &pause,
        )?,
        image(place, BUSYBOX_IMAGE, applets()?, &busybox)?,
        image(place, DNS_IMAGE, vec![file("coredns", coredns)], &dns)?,
    ])
}

/// An image of the cache directory (`virt-launcher`, `guest-tiny`, …), or a layout by its path.
pub(super) fn find(name: &str) -> Result<Image> {
    let path = Path::new(name);
    let layout = if path.is_dir() {
        path.to_owned()
    } else {
        Cache::open()?.images().join(format!("{name}.oci"))
    };
    ensure!(
        layout.join("index.json").exists(),
        "{} is not an OCI layout; build images with: cargo xtask image launcher, cargo xtask guest",
        layout.display()
    );
    let index: serde_json::Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let reference = index
        .pointer("/manifests/0/annotations/org.opencontainers.image.ref.name")
        .and_then(serde_json::Value::as_str)
        .with_context(|| format!("the image in {} has no name", layout.display()))?;
    Ok(Image {
        name: full_name(reference),
        layout,
    })
}

/// Puts an image into a node's store.
pub(super) fn load(place: &Place, on: NodeNumber, image: &Image) -> Result<()> {
    node::wait_for_containerd(place, on)?;
    forget(place, on, image)?;
    let mut tar = Command::new("tar")
        .args(["--create", "--file=-", "--directory"])
        .arg(&image.layout)
        .arg(".")
        .stdout(Stdio::piped())
        .spawn()
        .context("run tar")?;
    let archive = tar.stdout.take().context("read from tar")?;
    let output = node::inside(place, on)?
        .args([
            "ctr",
            "images",
            "import",
            "--local",
            "--index-name",
            &image.name,
            "-",
        ])
        .stdin(archive)
        .output()
        .context("run ctr")?;
    let packed = tar.wait().context("wait for tar")?;
    if !packed.success() || !output.status.success() {
        bail!(
            "load {} on {}: {}",
            image.name,
            on.name(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// Removes the name of an image that was loaded before. When only the image behind a name changes, the
/// container runtime does not record the new image's id, and no pod can mount it. Containers keep their
/// files.
fn forget(place: &Place, on: NodeNumber, image: &Image) -> Result<()> {
    let output = node::inside(place, on)?
        .args(["ctr", "images", "remove", &image.name])
        .output()
        .context("run ctr")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() || text.contains("not found"),
        "remove the old {} from {}: {}",
        image.name,
        on.name(),
        text.trim()
    );
    Ok(())
}

/// As the container runtime spells it.
fn full_name(reference: &str) -> String {
    let (first, rest) = reference.split_once('/').unwrap_or(("", reference));
    let is_host = first.contains(['.', ':']) || first == "localhost";
    match (is_host, first) {
        (true, _) => reference.to_owned(),
        (false, "") => format!("docker.io/library/{rest}"),
        (false, _) => format!("docker.io/{reference}"),
    }
}

fn image(place: &Place, name: &str, entries: Vec<Entry>, config: &ImageConfig) -> Result<Image> {
    let short = name.rsplit('/').next().unwrap_or(name);
    let layout = place.at(format!("{}.oci", short.replace(':', "-")));
    let mut writer = LayoutWriter::create(&layout, EPOCH)?;
    writer.add_entries(entries, Compression::Zstd(1))?;
    writer.finish(name, config)?;
    Ok(Image {
        name: name.to_owned(),
        layout,
    })
}

fn file(path: &str, from: PathBuf) -> Entry {
    Entry {
        path: path.to_owned(),
        mode: 0o755,
        owner: Owner::ROOT,
        content: Content::File(from),
    }
}

/// A link to busybox for each of its commands.
fn applets() -> Result<Vec<Entry>> {
    let output = Command::new(BUSYBOX)
        .arg("--list")
        .output()
        .with_context(|| format!("run {BUSYBOX}"))?;
    let names = String::from_utf8(output.stdout).context("read busybox's list")?;
    let mut entries = vec![file("bin/busybox", BUSYBOX.into())];
    for name in names.lines().filter(|name| *name != "busybox") {
        entries.push(Entry {
            path: format!("bin/{name}"),
            mode: 0o755,
            owner: Owner::ROOT,
            content: Content::Symlink("busybox".to_owned()),
        });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::full_name;

    #[test]
    fn names_are_spelt_as_the_runtime_does() {
        for (short, full) in [
            ("ferrovirt/guest:devel", "docker.io/ferrovirt/guest:devel"),
            ("busybox:1", "docker.io/library/busybox:1"),
            ("localhost/guest:1", "localhost/guest:1"),
            ("registry:5000/guest:1", "registry:5000/guest:1"),
        ] {
            assert_eq!(full_name(short), full);
        }
    }
}
