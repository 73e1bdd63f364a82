//! A libvirtd that is asked once and thrown away.

use std::error::Error;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use libvirt::{Connection, DomainCapabilitiesQuery};
use tokio_util::task::TaskTracker;

use super::capabilities;
use crate::hypervisor::Link;
use crate::monitor;
use crate::settings::Paths;

/// A cold probe of QEMU takes half a second on an idle machine.
const LIMIT: Duration = Duration::from_secs(12);
const END_LIMIT: Duration = Duration::from_secs(2);

/// What it said, and what it left.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) capabilities: String,
    pub(super) domain_capabilities: String,
    /// Features that guests can have, by name; empty where libvirt cannot tell.
    pub(super) cpu_features: Vec<String>,
    pub(super) libvirt_version: u64,
    pub(super) qemu_version: u64,
    pub(super) cache: Cache,
}

/// libvirtd's cache of what QEMU can do.
#[derive(Debug)]
pub(super) struct Cache {
    /// A hash of QEMU's path.
    pub(super) file_name: String,
    pub(super) content: String,
}

/// Starts one with all its files under `work`, asks it, and ends it.
pub(super) async fn ask(work: &Path, virt_type: &str) -> Result<Asked, Box<dyn Error>> {
    let paths = Paths::under(work);
    monitor::write_config(&paths.libvirt_config())?;
    let socket = paths.libvirt_socket();
    std::fs::create_dir_all(socket.parent().ok_or("the socket has no directory")?)?;
    std::fs::create_dir_all(paths.capability_cache())?;
    let listener = UnixListener::bind(&socket)?;
    let command = monitor::libvirtd_command(&monitor::own_program()?, &paths, listener.into());
    let mut libvirtd = tokio::process::Command::from(command)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let asked = tokio::time::timeout(LIMIT, converse(&paths, virt_type)).await;
    libvirtd.start_kill()?;
    if tokio::time::timeout(END_LIMIT, libvirtd.wait())
        .await
        .is_err()
    {
        tracing::warn!("libvirtd does not end");
    }
    asked.map_err(|_| format!("libvirtd did not answer within {LIMIT:?}"))?
}

async fn converse(paths: &Paths, virt_type: &str) -> Result<Asked, Box<dyn Error>> {
    let tasks = TaskTracker::new();
    let Link { connection, .. } = Link::open(&paths.libvirt_socket(), &tasks).await?;
    let query = DomainCapabilitiesQuery {
        arch: Some("x86_64"),
        machine: Some("q35"),
        virt_type: Some(virt_type),
        emulator: None,
    };
    let domain_capabilities = connection.domain_capabilities(query).await?;
    let asked = Asked {
        cpu_features: cpu_features(&connection, query, &domain_capabilities).await,
        domain_capabilities,
        capabilities: connection.capabilities().await?,
        libvirt_version: connection.lib_version().await?,
        qemu_version: connection.hypervisor_version().await?,
        cache: read_cache(&paths.capability_cache())?,
    };
    connection.close().await?;
    Ok(asked)
}

async fn cpu_features(
    connection: &Connection,
    query: DomainCapabilitiesQuery<'_>,
    domain_capabilities: &str,
) -> Vec<String> {
    let Some(cpu) = capabilities::host_model_cpu(domain_capabilities) else {
        return Vec::new();
    };
    match connection.expanded_cpu(query, &cpu).await {
        Ok(expanded) => capabilities::features(&expanded),
        Err(err) => {
            tracing::warn!(%err, "the features of the processor are not known");
            Vec::new()
        }
    }
}

/// libvirtd looked at one QEMU per architecture of this image; the guest's is the one that knows
/// the machine type.
fn read_cache(dir: &Path) -> Result<Cache, Box<dyn Error>> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let content = std::fs::read_to_string(&path)?;
        if content.contains("<arch>x86_64</arch>") && content.contains("pc-q35-") {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            return Ok(Cache {
                file_name: name.to_owned(),
                content,
            });
        }
    }
    Err("libvirtd has left no cache of capabilities".into())
}
