//! How long starts take: VMs and empty pods, from sending the create request until the watch shows
//! phase Running.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::{
    figures::{Figure, median, milliseconds},
    sightings::{Kind, Sighting, Sightings, all_gone, reached},
};

pub(super) const LAUNCHER_IMAGE: &str = "ferrovirt/virt-launcher:devel";
const GUEST_IMAGE: &str = "ferrovirt/guest-tiny:devel";

/// The started object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// A pod of the launcher's image that only waits. As every pod that does not ask for less, it has
    /// a token to talk to the API server with.
    Pod,
    /// The same without that token, and so without any volume.
    BarePod,
    Vm,
}

/// One start.
#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) name: String,
    pub(super) sent: Instant,
    pub(super) answered: Instant,
    pub(super) running: Instant,
}

impl Start {
    pub(super) fn took(&self) -> f64 {
        milliseconds(self.running.duration_since(self.sent))
    }
}

/// Starts one, notes when it runs.
pub(super) async fn start(
    client: &Client,
    sightings: &Sightings,
    subject: Subject,
    name: String,
) -> Result<Start> {
    let object = serde_json::from_value(subject.manifest(&name)).context("write a manifest")?;
    let sent = Instant::now();
    subject
        .api(client)
        .create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("create {name}"))?;
    let answered = Instant::now();
    let running = sightings
        .find(&format!("{name} to run"), |seen| {
            reached(seen, (subject.kind(), &name), "Running")
        })
        .await?;
    Ok(Start {
        name,
        sent,
        answered,
        running,
    })
}

/// Starts that many at once, waits until all run.
pub(super) async fn start_all(
    client: &Client,
    sightings: &Sightings,
    subject: Subject,
    names: Vec<String>,
) -> Result<Vec<Start>> {
    try_join_all(
        names
            .into_iter()
            .map(|name| start(client, sightings, subject, name)),
    )
    .await
}

/// Deletes them, waits until nothing of them is left.
pub(super) async fn remove(
    client: &Client,
    sightings: &Sightings,
    subject: Subject,
    starts: &[Start],
) -> Result<()> {
    for start in starts {
        subject
            .api(client)
            .delete(&start.name, &DeleteParams::background().grace_period(0))
            .await
            .with_context(|| format!("delete {}", start.name))?;
    }
    for start in starts {
        let what = format!("{} to go", start.name);
        sightings
            .find(&what, |seen| all_gone(seen, &start.name).then_some(()))
            .await?;
    }
    Ok(())
}

impl Subject {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::BarePod => "bare-pod",
            Self::Vm => "vm",
        }
    }

    /// Where its phase is seen.
    fn kind(self) -> Kind {
        match self {
            Self::Pod | Self::BarePod => Kind::Pod,
            Self::Vm => Kind::Vmi,
        }
    }

    fn api(self, client: &Client) -> Api<DynamicObject> {
        let gvk = match self {
            Self::Pod | Self::BarePod => GroupVersionKind::gvk("", "v1", "Pod"),
            Self::Vm => GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachine"),
        };
        Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&gvk))
    }

    fn manifest(self, name: &str) -> Value {
        match self {
            Self::Pod => pod(name, true),
            Self::BarePod => pod(name, false),
            Self::Vm => vm(name),
        }
    }
}

fn pod(name: &str, has_token: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": has_token,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "compute", "image": LAUNCHER_IMAGE, "imagePullPolicy": "IfNotPresent",
                "command": ["/usr/bin/sleep", "infinity"],
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    })
}

/// As `examples/vm-tiny.yaml`.
fn vm(name: &str) -> Value {
    let disk = |name: &str| json!({"name": name, "disk": {"bus": "virtio"}});
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {
            "runStrategy": "Always",
            "template": {"spec": {
                "terminationGracePeriodSeconds": 0,
                "domain": {
                    "memory": {"guest": "128Mi"},
                    "devices": {
                        "disks": [disk("root"), disk("seed")],
                        "interfaces": [{"name": "default", "masquerade": {}}],
                        "rng": {},
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [
                    {"name": "root", "containerDisk": {
                        "image": GUEST_IMAGE, "imagePullPolicy": "IfNotPresent",
                    }},
                    {"name": "seed", "cloudInitNoCloud": {
                        "userData": "#!/bin/sh\necho \"hello from cloud-init\"\n",
                    }},
                ],
            }},
        },
    })
}

/// What a start passes through, in this order, if the client sees it.
const MILESTONES: [&str; 8] = [
    "answered",
    "vmi",
    "pod",
    "bound",
    "pod-running",
    "scheduling",
    "scheduled",
    "running",
];

/// At which time after the create request each milestone was seen: medians over the starts.
pub(super) fn milestones(
    label: &str,
    starts: &[Start],
    seen: &dyn Fn(&str) -> Vec<Sighting>,
) -> Vec<Figure> {
    let histories: Vec<_> = starts
        .iter()
        .map(|start| (start, seen(&start.name)))
        .collect();
    let figure = |milestone: &str| {
        let times: Vec<f64> = histories
            .iter()
            .filter_map(|(start, history)| {
                let at = passed(start, history, milestone)?;
                let after = at
                    .checked_duration_since(start.sent)
                    .unwrap_or(Duration::ZERO);
                Some(milliseconds(after))
            })
            .collect();
        let name = format!("{label}.{milestone}");
        Some(Figure::new(name, median(&times)?, "ms"))
    };
    MILESTONES.into_iter().filter_map(figure).collect()
}

fn passed(start: &Start, history: &[Sighting], milestone: &str) -> Option<Instant> {
    let name = start.name.as_str();
    let first = |wanted: &dyn Fn(&Sighting) -> bool| {
        history.iter().find(|one| wanted(one)).map(|one| one.at)
    };
    match milestone {
        "answered" => Some(start.answered),
        "vmi" => first(&|one| one.kind == Kind::Vmi),
        "pod" => first(&|one| one.kind == Kind::Pod),
        "bound" => first(&|one| one.kind == Kind::Pod && one.is_bound),
        "pod-running" => reached(history, (Kind::Pod, name), "Running"),
        "scheduling" => reached(history, (Kind::Vmi, name), "Scheduling"),
        "scheduled" => reached(history, (Kind::Vmi, name), "Scheduled"),
        "running" => Some(start.running),
        _ => None,
    }
}
