//! Probes the capabilities of this host by running a guest, once for each launcher image and boot of the host.
//!
//! A temporary pod of the launcher image runs `virt-launcher probe-node`. Its results are copied to a directory
//! that only root can write, named after the image, the boot and the mode.

use std::{
    os::unix::fs::{DirBuilderExt, chown},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use embedded_node::Images;
use image_store::{Credentials, PullPolicy};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, LogParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::json;
use virt_handler::Capabilities;

use super::{components::Host, node::Parts};
use crate::printer::Printer;

const NAMESPACE: &str = "kubevirt";
const POD: &str = "node-probe";
/// The probe takes at most two minutes; the image is unpacked before.
const PROBE_TIMEOUT: Duration = Duration::from_mins(5);

/// The results of an earlier probe, if they are still valid.
pub(super) async fn known(host: &Host<'_>, parts: &Parts) -> Result<Option<Capabilities>> {
    let dir = directory(host, parts).await?;
    if !dir.join("node.json").exists() {
        return Ok(None);
    }
    Ok(Some(Capabilities::load(&dir)?))
}

pub(super) async fn probe(
    host: &Host<'_>,
    parts: &Parts,
    printer: Printer,
) -> Result<Capabilities> {
    let dir = directory(host, parts).await?;
    let work = host.state.capabilities().join("probe");
    remove(&work)?;
    create(&work)?;
    // The probe runs as the guests' user and needs a writable directory.
    let user = kubevirt_api::RUNTIME_USER;
    chown(&work, Some(user), Some(user)).context("give the probe its directory")?;

    let mut device = Device::Kvm;
    if host.flags.emulation {
        device = Device::None("--emulation is set".to_owned());
    } else if !Path::new("/dev/kvm").exists() {
        device = Device::None("the host has no /dev/kvm".to_owned());
    }
    Box::pin(run(host, &work, &device, printer)).await?;
    let found = read(&work)?;
    if found["repeatWithoutKvm"] == true {
        let reason = found["kvmReason"].as_str().unwrap_or_default().to_owned();
        Box::pin(run(host, &work, &Device::None(reason), printer)).await?;
    }
    remove(&dir)?;
    let part = dir.with_extension("part");
    remove(&part)?;
    create(&part)?;
    for name in ["capabilities.xml", "node.json"] {
        let from = work.join(name);
        if from.exists() {
            std::fs::copy(&from, part.join(name)).with_context(|| format!("store {name}"))?;
        }
    }
    std::fs::rename(&part, &dir).context("store the results of the probe")?;
    remove(&work)?;
    Ok(Capabilities::load(&dir)?)
}

/// Whether the probe gets `/dev/kvm`, or the reason why not.
enum Device {
    Kvm,
    None(String),
}

/// The directory for this image, this boot and this mode.
async fn directory(host: &Host<'_>, parts: &Parts) -> Result<PathBuf> {
    let reference = &host.flags.launcher_image;
    let policy = PullPolicy::IfNotPresent;
    let images: &dyn Images = &parts.images;
    let image = images
        .ensure(reference, policy, &Credentials::default())
        .await;
    let image = image.with_context(|| {
        format!(
            "find the launcher image {reference}: set --images to the directory that has it, or \
             --launcher-image to another image"
        )
    })?;
    let boot =
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read the boot id")?;
    let mode = if host.flags.emulation {
        "emulation"
    } else {
        "any"
    };
    let digest = image.digest.to_string().replace(':', "-");
    let name: String = digest.chars().take(19).collect();
    Ok(host
        .state
        .capabilities()
        .join(format!("{name}-{}-{mode}", boot.trim())))
}

async fn run(host: &Host<'_>, work: &Path, device: &Device, printer: Printer) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(host.client("ferrovirt-up"), NAMESPACE);
    let gone = |uid: String| {
        let api = api.clone();
        async move {
            let deleted = kube::runtime::conditions::is_deleted(&uid);
            tokio::time::timeout(PROBE_TIMEOUT, await_condition(api, POD, deleted)).await
        }
    };
    let remove_pod = async || -> Result<()> {
        if let Some(pod) = api.get_opt(POD).await? {
            let uid = pod.metadata.uid.unwrap_or_default();
            api.delete(POD, &DeleteParams::default().grace_period(0))
                .await?;
            gone(uid)
                .await
                .context("wait for the end of an earlier probe")??;
        }
        Ok(())
    };
    Box::pin(remove_pod())
        .await
        .context("remove an earlier probe")?;
    let pod = pod(host, work, device).context("render the probe's pod")?;
    api.create(&PostParams::default(), &pod)
        .await
        .context("start the probe")?;
    let ended = |pod: Option<&Pod>| {
        let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let waited = tokio::time::timeout(PROBE_TIMEOUT, async {
        let is_told = |pod: Option<&Pod>| ended(pod) || pod.and_then(obstacle).is_some();
        let pod = await_condition(api.clone(), POD, is_told).await?;
        if let Some(obstacle) = pod.as_ref().and_then(obstacle) {
            printer.line(&format!("Waiting: {obstacle}"));
        }
        await_condition(api.clone(), POD, ended).await
    })
    .await;
    let pod = match waited {
        Ok(pod) => pod.context("watch the probe")?,
        Err(_elapsed) => api.get_opt(POD).await?,
    };
    if let Some(obstacle) = pod.as_ref().and_then(obstacle) {
        bail!("the probe of this host could not start: {obstacle}");
    }
    let status = pod.and_then(|pod| pod.status).unwrap_or_default();
    if status.phase.as_deref() != Some("Succeeded") {
        let log = api
            .logs(
                POD,
                &LogParams {
                    tail_lines: Some(10),
                    ..LogParams::default()
                },
            )
            .await;
        let state = serde_json::to_string(&status.container_statuses).unwrap_or_default();
        bail!(
            "the probe of this host failed (phase {}, {state}): {}",
            status.phase.as_deref().unwrap_or("unknown"),
            log.unwrap_or_else(|error| format!("no log: {error}")),
        );
    }
    Box::pin(remove_pod()).await.context("remove the probe")
}

/// Why the pod is on no node yet, such as a full disk.
fn obstacle(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let mut conditions = conditions.iter();
    let scheduled = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False")?;
    scheduled.message.as_deref()
}

fn pod(host: &Host<'_>, work: &Path, device: &Device) -> Result<Pod> {
    let mut command = vec![
        "/usr/bin/virt-launcher",
        "probe-node",
        "--output",
        "/probe",
        "--image",
    ];
    command.push(&host.flags.launcher_image);
    let mut limits = json!({"devices.kubevirt.io/kvm": "1"});
    if let Device::None(reason) = device {
        command.extend(["--kvm-reason", reason]);
        limits = json!({});
    }
    let private = "/var/run/kubevirt-private";
    Ok(serde_json::from_value(json!({
        "metadata": {"name": POD, "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "securityContext": {
                "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true, "fsGroup": 107,
            },
            "containers": [{
                "name": "probe",
                "image": host.flags.launcher_image,
                "imagePullPolicy": "IfNotPresent",
                "command": command,
                "env": [
                    {"name": "XDG_CACHE_HOME", "value": private},
                    {"name": "XDG_CONFIG_HOME", "value": private},
                    {"name": "XDG_RUNTIME_DIR", "value": "/var/run"},
                ],
                "resources": {"limits": limits},
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "output", "mountPath": "/probe"},
                    {"name": "private", "mountPath": private},
                    {"name": "runtime", "mountPath": "/var/run/libvirt"},
                ],
            }],
            "volumes": [
                {"name": "output", "hostPath": {"path": work, "type": "Directory"}},
                {"name": "private", "emptyDir": {}},
                {"name": "runtime", "emptyDir": {}},
            ],
        },
    }))?)
}

fn read(dir: &Path) -> Result<serde_json::Value> {
    let path = dir.join("node.json");
    let bytes = std::fs::read(&path).context("read the results of the probe")?;
    serde_json::from_slice(&bytes).context("parse the results of the probe")
}

fn create(dir: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("create {}", dir.display()))
}

fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_that_fits_nowhere_says_why() {
        let check = |status: &str, expected: Option<&str>| {
            let condition =
                json!({"type": "PodScheduled", "status": status, "message": "the disk is full"});
            let pod = json!({"metadata": {}, "status": {"conditions": [condition]}});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            assert_eq!(obstacle(&pod), expected, "{status}");
        };
        check("False", Some("the disk is full"));
        check("True", None);
        assert_eq!(obstacle(&Pod::default()), None);
    }
}
