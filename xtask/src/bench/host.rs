//! Builds a single host, brings it up in a directory of its own, and takes it down.
//!
//! **Invariant**: once `up` was tried, `reset` runs, also when measuring fails or is interrupted.

use std::{
    cell::Cell,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    printer::Printer,
    workspace::{cargo, metadata, root, run, run_quietly},
};

const PACKAGES: [&str; 3] = ["ferrovirt-bin", "pod-supervisor-bin", "virtctl-bin"];
/// Lines of the log shown with an error.
const LAST_LINES: usize = 10;

/// How a host is brought up.
#[derive(Debug, Args)]
pub(super) struct HostOptions {
    /// Addresses of pods; must not overlap with a network of this machine.
    #[arg(long, default_value = "10.254.253.0/24", value_name = "CIDR")]
    pod_cidr: String,
    /// Take the programs in this directory instead of building them.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Where to make the host's directory, with everything that it stores; the directory for temporary files
    /// without it.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// What the host logs, in the syntax of tracing's filters.
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Where to leave the host's log.
    #[arg(long, value_name = "FILE")]
    keep_log: Option<PathBuf>,
}

#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "host disks are a kind of volume")]
pub(super) struct Host {
    /// Where the programs are.
    pub(super) programs: PathBuf,
    pub(super) images: PathBuf,
    pub(super) state: PathBuf,
    /// Files here may be disks of guests.
    pub(super) host_disks: PathBuf,
    /// The address of this machine for its pods: the first one of theirs.
    pub(super) gateway: Ipv4Addr,
    /// How guests run here, as printed by `up`.
    pub(super) guests: String,
    down: Cell<bool>,
}

/// Brings a host up, measures, and takes it down whatever came of it.
pub(super) async fn on_host<T>(
    printer: &Printer,
    options: &HostOptions,
    images: &Path,
    measure: impl AsyncFnOnce(&Host) -> Result<T>,
) -> Result<T> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let host = Host::bring_up(printer, options, images)?;
    let outcome = tokio::select! {
        outcome = Box::pin(measure(&host)) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
    };
    if let Some(path) = &options.keep_log {
        host.copy_log(path)?;
    }
    let outcome = outcome.with_context(|| host.end_of_log());
    host.take_down()?;
    outcome
}

impl Host {
    fn bring_up(printer: &Printer, options: &HostOptions, images: &Path) -> Result<Self> {
        let programs = match &options.programs {
            Some(programs) => programs.clone(),
            None => build(printer)?,
        };
        let base = options.directory.clone().unwrap_or_else(std::env::temp_dir);
        let state = tempfile::Builder::new()
            .prefix("ferrovirt-bench-")
            .tempdir_in(base)
            .context("make a state directory")?
            .keep();
        // Beside the state directory, which is the host's alone.
        let host_disks = state.with_extension("disks");
        fs::create_dir(&host_disks).with_context(|| format!("make {}", host_disks.display()))?;
        let mut host = Self {
            programs,
            images: images.to_owned(),
            state,
            host_disks,
            gateway: gateway(&options.pod_cidr)?,
            guests: String::new(),
            down: Cell::new(false),
        };
        let mut up = Command::new(host.programs.join("ferrovirt"));
        up.args(["up", "--detach", "--listen", "127.0.0.1:0", "--pod-cidr"])
            .arg(&options.pod_cidr)
            .arg("--state-dir")
            .arg(&host.state)
            .arg("--images")
            .arg(&host.images)
            .arg("--host-disks")
            .arg(&host.host_disks);
        if let Some(filter) = &options.log {
            up.arg("--log").arg(filter);
        }
        printer.line("bringing up a host");
        let output = String::from_utf8(run_quietly(&mut up)?).context("read the output of up")?;
        let guests = output
            .lines()
            .find(|line| line.starts_with("Guests run by"));
        host.guests = guests.map_or_else(String::new, ToOwned::to_owned);
        Ok(host)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    pub(super) async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// The process of `ferrovirt up`.
    pub(super) fn process(&self) -> Result<u32> {
        let path = self.state.join("lock");
        let text = fs::read_to_string(&path).context("read who holds the state directory")?;
        text.trim()
            .parse()
            .context("understand who holds the state directory")
    }

    /// The directory of a volume's files.
    pub(super) fn files_of(&self, volume: &str) -> PathBuf {
        self.state.join("node/volumes").join(volume).join("data")
    }

    fn end_of_log(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let begin = lines.len().saturating_sub(LAST_LINES);
        let last = lines.get(begin..).unwrap_or_default().join("\n  ");
        format!("measure; the end of the host's log:\n  {last}\n")
    }

    fn copy_log(&self, to: &Path) -> Result<()> {
        fs::copy(self.log(), to)
            .map(drop)
            .with_context(|| format!("copy the log to {}", to.display()))
    }

    fn take_down(&self) -> Result<()> {
        self.down.set(true);
        run_quietly(
            Command::new(self.programs.join("ferrovirt"))
                .args(["reset", "--yes", "--state-dir"])
                .arg(&self.state),
        )?;
        fs::remove_dir_all(&self.host_disks)
            .with_context(|| format!("remove {}", self.host_disks.display()))?;
        match fs::remove_dir(&self.state) {
            Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
                Err(err).with_context(|| format!("remove {}", self.state.display()))
            }
            _ => Ok(()),
        }
    }

    fn log(&self) -> PathBuf {
        self.state.join("ferrovirt.log")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !self.down.get()
            && let Err(err) = self.take_down()
        {
            Printer::new().line(format_args!("{err:#}"));
        }
    }
}

fn gateway(pod_cidr: &str) -> Result<Ipv4Addr> {
    let wrong = || format!("{pod_cidr} does not begin with an IPv4 network");
    let (network, _) = pod_cidr.split_once('/').with_context(wrong)?;
    let network: Ipv4Addr = network.parse().with_context(wrong)?;
    Ok(Ipv4Addr::from_bits(network.to_bits().saturating_add(1)))
}

fn build(printer: &Printer) -> Result<PathBuf> {
    printer.line("building the programs (profile release)");
    let mut build = Command::new(cargo());
    build.args(["build", "--quiet", "--locked", "--profile", "release"]);
    for package in PACKAGES {
        build.args(["--package", package]);
    }
    run(build.current_dir(root()))?;
    Ok(metadata()?.target_directory.join("release"))
}

/// Where `xtask image` and `xtask guest` leave what they made.
pub(super) fn images() -> Result<PathBuf> {
    let images = crate::cache::Cache::open()?.images();
    for name in ["virt-launcher.oci", "guest-tiny.oci"] {
        anyhow::ensure!(
            images.join(name).exists(),
            "{name} is not in {}: run `cargo xtask image launcher` and `cargo xtask guest` first",
            images.display()
        );
    }
    Ok(images)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_is_the_first_address_of_pods() {
        for (cidr, expected) in [
            ("10.254.253.0/24", Some([10, 254, 253, 1])),
            ("10.244.0.0/24,fd00::/64", Some([10, 244, 0, 1])),
            ("fd00::/64", None),
            ("10.0.0.0", None),
        ] {
            assert_eq!(gateway(cidr).ok(), expected.map(Ipv4Addr::from), "{cidr}");
        }
    }
}
