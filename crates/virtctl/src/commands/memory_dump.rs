//! `memory-dump`: the memory of a guest in a claim.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use quantity::Amount;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::vm_export::{self, Format, Way};
use crate::{
    connect::Cluster,
    failure::Usage,
    objects::{self, text},
    printer::Printer,
    signals,
    subresource::{path, put},
};

const MIB: u64 = 1 << 20;
/// A dump is larger than the memory.
const HEADER: u64 = 100 * MIB;
/// Of a file system, in thousandths, if CDI's configuration does not say.
const OVERHEAD: u64 = 55;
const POLL: Duration = Duration::from_secs(1);
/// How long a guest may take to write its memory.
const DUMPING: Duration = Duration::from_hours(2);

#[derive(Debug, Clone, Args)]
pub struct MemoryDump {
    /// get writes the memory to the claim, download saves the last dump, remove forgets the claim
    #[arg(value_enum)]
    pub action: Action,
    /// Name of the VM
    pub vm: String,
    /// Claim for the dump [default: that of the last dump]
    #[arg(long, value_name = "NAME")]
    pub claim_name: Option<String>,
    /// Make the claim, large enough
    #[arg(long, requires = "claim_name")]
    pub create_claim: bool,
    /// Storage class of that claim
    #[arg(long, value_name = "CLASS", requires = "create_claim")]
    pub storage_class: Option<String>,
    /// Access mode of that claim
    #[arg(long, value_name = "MODE", requires = "create_claim",
          value_parser = ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"])]
    pub access_mode: Option<String>,
    /// File for the download
    #[arg(long, value_name = "FILE", required_if_eq("action", "download"))]
    pub output: Option<PathBuf>,
    /// Format of the file [default: gzip]
    #[arg(long, value_enum, requires = "output")]
    pub format: Option<Format>,
    /// Download through the API server, without an address of the export server that this computer reaches
    #[arg(long, requires = "output")]
    pub port_forward: bool,
    /// Has no effect: --port-forward needs no local port
    #[arg(long, hide = true, requires = "port_forward")]
    pub local_port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Action {
    Get,
    Download,
    Remove,
}

impl MemoryDump {
    /// Whether the command downloads, and so waits for signals itself.
    pub(crate) fn downloads(&self) -> bool {
        self.output.is_some()
    }
}

pub(crate) async fn memory_dump(
    cluster: &Cluster,
    printer: Printer,
    flags: &MemoryDump,
) -> Result<()> {
    let vm = &flags.vm;
    match flags.action {
        Action::Get => {
            get(cluster, printer, flags).await?;
            printer.line(&format!("The memory of {vm} will be dumped"));
        }
        Action::Download => {}
        Action::Remove => {
            if flags.claim_name.is_some() || flags.output.is_some() {
                return Err(Usage::new("remove takes the name of the VM alone").into());
            }
            let path = path(cluster, "virtualmachines", vm, "removememorydump");
            put(cluster, &path, &json!({})).await?;
            printer.line(&format!("The claim of the dump of {vm} will be released"));
        }
    }
    match &flags.output {
        Some(file) => {
            let dumped = until_dumped(cluster, vm, DUMPING);
            let claim = signals::unless_interrupted(dumped).await?;
            let format = flags.format.unwrap_or(Format::Gzip);
            let way = if flags.port_forward {
                Way::Tunnel
            } else {
                Way::Address
            };
            vm_export::download_claim(cluster, printer, &claim, (file, format), way).await
        }
        None => Ok(()),
    }
}

async fn get(cluster: &Cluster, printer: Printer, flags: &MemoryDump) -> Result<()> {
    if let (Some(name), true) = (&flags.claim_name, flags.create_claim) {
        let namespace = &cluster.namespace;
        let existing = objects::CLAIM.named(namespace, name);
        if objects::find(cluster, &existing).await?.is_some() {
            bail!("claim {name} exists: leave out --create-claim to use it");
        }
        let vmi = objects::get(cluster, &objects::VMI.named(namespace, &flags.vm)).await?;
        let config = "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config";
        let config = objects::find_if_served(cluster, config)
            .await?
            .unwrap_or_default();
        let claim = claim(
            flags,
            name,
            size(&vmi, &config, flags.storage_class.as_deref()),
        );
        objects::create(cluster, &objects::CLAIM.all(namespace), &claim).await?;
        printer.note(&format!("Made claim {name}"));
    }
    let claim = flags.claim_name.as_deref().unwrap_or_default();
    let path = path(cluster, "virtualmachines", &flags.vm, "memorydump");
    put(cluster, &path, &json!({"claimName": claim, "phase": ""})).await
}

fn claim(flags: &MemoryDump, name: &str, mebibytes: u64) -> Value {
    let mode = flags.access_mode.as_deref().unwrap_or("ReadWriteOnce");
    let mut spec = json!({
        "accessModes": [mode],
        "resources": {"requests": {"storage": format!("{mebibytes}Mi")}},
    });
    if let Some(class) = &flags.storage_class {
        spec["storageClassName"] = class.as_str().into();
    }
    let labels = json!({"cdi.kubevirt.io/applyStorageProfile": "true"});
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    })
}

/// The size of the claim, in MiB.
fn size(vmi: &Value, config: &Value, class: Option<&str>) -> u64 {
    let domain = "/spec/domain";
    let memory = ["memory/guest", "resources/requests/memory"]
        .iter()
        .find_map(|field| {
            let text = text(vmi, &format!("{domain}/{field}"))?;
            Amount::parse_text(text).ok()
        });
    let memory = memory.unwrap_or(Amount::ZERO).units();
    let overheads = &config["status"]["filesystemOverhead"];
    let of_class = class.and_then(|class| overheads["storageClass"][class].as_str());
    let overhead = of_class.or(overheads["global"].as_str());
    let overhead = overhead.and_then(|text| Amount::parse_text(text).ok());
    let overhead = overhead.map_or(OVERHEAD, Amount::millis);
    let data = memory.saturating_add(HEADER);
    let all = data.saturating_add(data.saturating_mul(overhead).div_ceil(1000));
    all.div_ceil(MIB)
}

/// Waits until the dump is complete; returns its claim.
pub(super) async fn until_dumped(cluster: &Cluster, vm: &str, limit: Duration) -> Result<String> {
    let path = objects::VM.named(&cluster.namespace, vm);
    let deadline = Instant::now() + limit;
    loop {
        let object = objects::get(cluster, &path).await?;
        let Some(request) = object.pointer("/status/memoryDumpRequest") else {
            bail!("VM {vm} has no memory dump: make one with `virtctl memory-dump get {vm}`");
        };
        match (text(request, "/phase"), text(request, "/claimName")) {
            (Some("Completed"), Some(claim)) => return Ok(claim.to_owned()),
            (Some("Failed"), _) => {
                let message = text(request, "/message").unwrap_or("no reason is given");
                bail!(
                    "the memory dump of {vm} failed: {message}; make another one with \
                     `virtctl memory-dump get {vm}`"
                );
            }
            (phase, _) if Instant::now() >= deadline => {
                bail!(
                    "the memory dump of {vm} is not complete after {} minutes (phase {}): see \
                     `kubectl describe vm {vm}`",
                    limit.as_secs() / 60,
                    phase.unwrap_or("none"),
                );
            }
            _ => sleep(POLL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_has_room_for_memory_header_and_file_system() {
        let vmi = |memory| json!({"spec": {"domain": {"memory": {"guest": memory}}}});
        let config = json!({"status": {"filesystemOverhead": {
            "global": "0.06", "storageClass": {"fast": "0.1"},
        }}});
        let none = Value::Null;
        // 100 MiB and 5.5 %, as the original has it.
        assert_eq!(size(&json!({}), &none, None), 106);
        assert_eq!(size(&vmi("1Gi"), &none, None), 1186);
        assert_eq!(size(&vmi("100Mi"), &config, None), 212);
        assert_eq!(size(&vmi("100Mi"), &config, Some("slow")), 212);
        assert_eq!(size(&vmi("100Mi"), &config, Some("fast")), 220);
    }
}
