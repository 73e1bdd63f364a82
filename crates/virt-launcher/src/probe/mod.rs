//! `probe-node`: finds out once what guests can use on this node, and writes it to files.
//!
//! In a temporary pod of the launcher image, it writes `node.json` and, if libvirtd's cache of
//! capabilities is valid for the pods of guests, `capabilities.xml`. That cache holds modification
//! times of files in the image, so it is valid only for this unpacked image on this node.
//!
//! Every step has a limit and is repeated once with a longer one: it takes a second on an idle node, and at
//! most two minutes on an overloaded one.

mod attempts;
mod capabilities;
mod kvm;
mod libvirtd;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::Serialize;

use self::kvm::Kvm;
use crate::{file, monitor};

/// The probe's flags.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) output: PathBuf,
    /// Reference of the image this runs in, for the record.
    pub(crate) image: Option<String>,
    /// Why the pod has no `/dev/kvm`, if the node that started it knows.
    pub(crate) kvm_reason: Option<String>,
}

/// The content of `node.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    kvm: bool,
    kvm_reason: String,
    machine_types: Vec<String>,
    /// CPU models that guests can have here.
    cpu_models: Vec<String>,
    host_model: Option<String>,
    /// CPU features that guests can have here, by name.
    cpu_features: Vec<String>,
    host_model_required_features: Vec<String>,
    cpu_vendor: Option<String>,
    hyperv: Vec<String>,
    tsc: Option<capabilities::Tsc>,
    libvirt_version: String,
    qemu_version: String,
    launcher_image: Option<String>,
    /// The name under which libvirtd looks for `capabilities.xml`, if that was written.
    capabilities_cache_file: Option<String>,
    /// `/dev/kvm` exists but runs no guests. Guests will not get it, and libvirtd's cache depends
    /// on it: a second probe in a pod without that device writes the cache.
    repeat_without_kvm: bool,
}

/// Runs the probe. Process 1 runs it in a child and reaps orphans, because libvirtd waits until its
/// own probes of QEMU are gone.
pub(crate) fn run(
    settings: &Settings,
    arguments: &[std::ffi::OsString],
) -> Result<ExitCode, Box<dyn Error>> {
    if std::process::id() == 1 {
        let mut command = Command::new(monitor::own_program()?);
        command.arg("probe-node").args(arguments);
        return Ok(monitor::reap_until_end_of(command)?);
    }
    crate::signals::unblock()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(probe(settings))?;
    Ok(ExitCode::SUCCESS)
}

async fn probe(settings: &Settings) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(&settings.output)?;
    let work = Work::create(
        settings
            .output
            .join(format!(".probe-{}", std::process::id())),
    )?;
    let kvm = kvm::probe(&work.0).await;
    tracing::info!(?kvm, "probed KVM");
    let findings = libvirtd::query(&work.0, kvm.virt_type()).await?;
    let repeat_without_kvm = matches!(kvm, Kvm::Broken { .. });
    let cache = if repeat_without_kvm {
        None
    } else {
        Some(findings.cache)
    };
    let reason = match (&kvm, &settings.kvm_reason) {
        (Kvm::Absent { .. }, Some(reason)) => reason.clone(),
        _ => kvm.reason(),
    };
    let host_model = findings.domain.host_model.unwrap_or_default();
    let node = Node {
        kvm: matches!(kvm, Kvm::Usable),
        kvm_reason: reason,
        machine_types: findings.host.machine_types,
        cpu_models: findings.domain.cpu_models,
        host_model: host_model.name,
        host_model_required_features: host_model.required_features,
        cpu_vendor: host_model.vendor,
        hyperv: findings.domain.hyperv,
        tsc: findings.host.tsc,
        cpu_features: findings.cpu_features,
        libvirt_version: version(findings.libvirt_version),
        qemu_version: version(findings.qemu_version),
        launcher_image: settings.image.clone(),
        capabilities_cache_file: cache.as_ref().map(|cache| cache.file_name.clone()),
        repeat_without_kvm,
    };
    // `node.json` comes last: once it exists, the rest is complete.
    let content = settings.output.join("capabilities.xml");
    match cache {
        Some(cache) => file::replace(
            &content,
            capabilities::without_slow_flag(&cache.content).as_bytes(),
        )?,
        None if content.exists() => std::fs::remove_file(&content)?,
        None => {}
    }
    file::replace(
        &settings.output.join("node.json"),
        &serde_json::to_vec_pretty(&node)?,
    )?;
    Ok(())
}

fn version(number: u64) -> String {
    format!(
        "{}.{}.{}",
        number / 1_000_000,
        number / 1_000 % 1_000,
        number % 1_000
    )
}

/// A directory that is removed when the probe ends.
struct Work(PathBuf);

impl Work {
    fn create(path: PathBuf) -> std::io::Result<Self> {
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(dir: &Path) {
    if let Err(error) = std::fs::remove_dir_all(dir) {
        tracing::warn!(%error, dir = %dir.display(), "failed to remove a directory");
    }
}
