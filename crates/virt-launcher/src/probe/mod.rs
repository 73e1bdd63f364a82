//! `probe-node`: what guests can have on this node, found out once and kept as files.
//!
//! Run in a throw-away pod of the launcher image, it leaves `node.json` and, if libvirtd's cache
//! of capabilities is good for the pods of guests, `capabilities.xml`. That cache holds times of
//! files in the image, so it is good for this unpacked image on this node and nowhere else.
//!
//! Every step has a limit; all together take at most about twenty seconds.

mod capabilities;
mod kvm;
mod libvirtd;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::Serialize;

use self::capabilities::{cpu_models, host_model, machine_types};
use self::kvm::Kvm;
use crate::{file, monitor};

/// How the probe is asked for.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) output: PathBuf,
    /// Reference of the image this runs in, for the record.
    pub(crate) image: Option<String>,
    /// Why the pod was given no `/dev/kvm`, if whoever started it knows better.
    pub(crate) kvm_reason: Option<String>,
}

/// The content of `node.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    kvm: bool,
    kvm_reason: String,
    machine_types: Vec<String>,
    /// Models a guest can have here.
    cpu_models: Vec<String>,
    host_model: Option<String>,
    /// Features a guest can have here, by name.
    cpu_features: Vec<String>,
    host_model_required_features: Vec<String>,
    cpu_vendor: Option<String>,
    hyperv: Vec<String>,
    tsc: Option<capabilities::Tsc>,
    libvirt_version: String,
    qemu_version: String,
    launcher_image: Option<String>,
    /// The name under which libvirtd looks for `capabilities.xml`; none if that was not made.
    capabilities_cache_file: Option<String>,
    /// There is a `/dev/kvm` that runs no guests. Guests will not get it, and libvirtd's cache
    /// depends on it: a second probe in a pod without that device makes the cache.
    repeat_without_kvm: bool,
}

/// Runs the probe. As process 1 it does so in a child, because somebody must reap what libvirtd
/// leaves behind: libvirtd waits for its probes to vanish.
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
    let work = Work::make(
        settings
            .output
            .join(format!(".probe-{}", std::process::id())),
    )?;
    let kvm = kvm::probe(&work.0).await;
    tracing::info!(?kvm, "probed KVM");
    let asked = libvirtd::ask(&work.0, kvm.virt_type()).await?;
    let repeat_without_kvm = matches!(kvm, Kvm::Broken { .. });
    let cache = if repeat_without_kvm {
        None
    } else {
        Some(asked.cache)
    };
    let reason = match (&kvm, &settings.kvm_reason) {
        (Kvm::Absent { .. }, Some(reason)) => reason.clone(),
        _ => kvm.reason(),
    };
    let node = Node {
        kvm: matches!(kvm, Kvm::Usable),
        kvm_reason: reason,
        machine_types: machine_types(&asked.capabilities),
        cpu_models: cpu_models(&asked.domain_capabilities),
        host_model: host_model(&asked.domain_capabilities),
        host_model_required_features: capabilities::required_features(&asked.domain_capabilities),
        cpu_vendor: capabilities::cpu_vendor(&asked.domain_capabilities),
        hyperv: capabilities::hyperv(&asked.domain_capabilities),
        tsc: capabilities::tsc(&asked.capabilities),
        cpu_features: asked.cpu_features,
        libvirt_version: version(asked.libvirt_version),
        qemu_version: version(asked.qemu_version),
        launcher_image: settings.image.clone(),
        capabilities_cache_file: cache.as_ref().map(|cache| cache.file_name.clone()),
        repeat_without_kvm,
    };
    // The description comes last: who sees it may rely on the rest.
    let content = settings.output.join("capabilities.xml");
    match cache {
        Some(cache) => file::replace(&content, capabilities::slim(&cache.content).as_bytes())?,
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

/// A directory that goes when the probe does.
struct Work(PathBuf);

impl Work {
    fn make(path: PathBuf) -> std::io::Result<Self> {
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
    if let Err(err) = std::fs::remove_dir_all(dir) {
        tracing::warn!(%err, dir = %dir.display(), "cannot be removed");
    }
}
