//! Checks that the status in the API is right and newer than the kill.

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{
    environment::{ChaosEnvironment, Liveness},
    remark,
    targets::Killed,
};
use crate::{DEADLINE, TestNamespace};

const HEARTBEAT: &str = "kubevirt.io/heartbeat";
/// The namespace of node leases.
const LEASES: &str = "kube-node-lease";
/// The polling interval.
const INTERVAL: Duration = Duration::from_millis(100);
/// The time limit of a request, as a server killed while responding never finishes.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state that must survive every kill.
pub(super) struct Invariants<'a, G: ChaosEnvironment> {
    test: &'a TestNamespace<G>,
    nodes: Api<DynamicObject>,
    leases: Api<DynamicObject>,
    /// Identity and place of the VMIs and pods, by name.
    fixed: [Vec<Value>; 2],
    began: Instant,
}

/// The state just before a kill.
#[derive(Debug)]
pub(super) struct Mark {
    heartbeats: BTreeMap<String, Value>,
    leases: BTreeMap<String, Value>,
}

/// The durations of a recovery.
#[derive(Debug, Clone)]
pub(super) struct Recovery {
    /// Until the killed process was back, which is not always our work.
    pub(super) back: Duration,
    /// From then on until the status was right and stayed right.
    pub(super) right: Duration,
    /// The last problem.
    pub(super) last: String,
}

impl<'a, G: ChaosEnvironment> Invariants<'a, G> {
    pub(super) async fn of(test: &'a TestNamespace<G>) -> Self {
        let all = |group: &str, kind: &str| {
            let kind = GroupVersionKind::gvk(group, "v1", kind);
            (test.client.clone(), ApiResource::from_gvk(&kind))
        };
        let (client, nodes) = all("", "Node");
        let nodes = Api::all_with(client, &nodes);
        let (client, leases) = all("coordination.k8s.io", "Lease");
        let leases = Api::namespaced_with(client, LEASES, &leases);
        let vmis = list(&test.vmis()).await.expect("list VMIs");
        let pods = list(&test.pods()).await.expect("list pods");
        Self {
            test,
            nodes,
            leases,
            fixed: [
                vmis.iter().map(of_instance).collect(),
                pods.iter().map(of_pod).collect(),
            ],
            began: Instant::now(),
        }
    }

    /// The number of guests by node.
    pub(super) fn by_node(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for pod in &self.fixed[1] {
            let node = pod[1].as_str().unwrap_or_default().to_owned();
            *all.entry(node).or_default() += 1;
        }
        all
    }

    pub(super) async fn mark(&self) -> Result<Mark, String> {
        Ok(Mark {
            heartbeats: self.reports(Liveness::Heartbeat).await?,
            leases: self.reports(Liveness::Lease).await?,
        })
    }

    /// The latest liveness report of each node.
    async fn reports(&self, kind: Liveness) -> Result<BTreeMap<String, Value>, String> {
        let api = match kind {
            Liveness::Heartbeat => &self.nodes,
            Liveness::Lease => &self.leases,
        };
        let report = list(api).await?.into_iter().map(|mut node| {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let name = name.to_owned();
            let report = match kind {
                Liveness::Heartbeat => node["metadata"]["annotations"][HEARTBEAT].take(),
                Liveness::Lease => node["spec"]["renewTime"].take(),
            };
            (name, report)
        });
        Ok(report.collect())
    }

    /// Waits until the status is right; the error is the last problem.
    pub(super) async fn right_again(
        &self,
        killed: &Killed,
        mark: &Mark,
    ) -> Result<Recovery, String> {
        while !self.is_back(killed).await {
            if killed.at.elapsed() > DEADLINE {
                return Err(format!("no new {} process", killed.target));
            }
            tokio::time::sleep(INTERVAL).await;
        }
        let back = killed.at.elapsed();
        let since = Instant::now();
        // Change every VM, so that a stale status does not look right.
        let number = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0);
        let mut is_recovered = killed.target.is_of_guest();
        let mut last = "nothing".to_owned();
        let mut right = None;
        loop {
            let seen = if is_recovered {
                let seen = timeout(PATIENCE, self.check(killed, mark)).await;
                seen.unwrap_or_else(|_elapsed| Err("no answer".to_owned()))
            } else {
                let changed = timeout(PATIENCE, self.change_all(number)).await;
                let changed = changed.unwrap_or_else(|_elapsed| Err("no answer".to_owned()));
                is_recovered = changed.is_ok();
                changed.and_then(|()| Err("only just changed".to_owned()))
            };
            let now = since.elapsed();
            match (seen, right) {
                (Ok(()), None) => right = Some(now),
                (Ok(()), Some(_)) => {}
                (Err(why), _) if now > DEADLINE => return Err(why),
                (Err(why), _) => (last, right) = (why, None),
            }
            match right {
                Some(right) if now >= right + G::STABLE_FOR => {
                    return Ok(Recovery { back, right, last });
                }
                Some(_) => tokio::time::sleep(INTERVAL * 4).await,
                None => tokio::time::sleep(INTERVAL).await,
            }
        }
    }

    /// Whether the killed process runs again and serves the API, if that is its job.
    async fn is_back(&self, killed: &Killed) -> bool {
        if !killed.is_back(&*self.test.environment) {
            return false;
        }
        if !killed.target.serves_api() {
            return true;
        }
        let ask = http::Request::get("/readyz").body(Vec::new());
        let ask = self.test.client.request_text(ask.expect("a request"));
        timeout(PATIENCE, ask)
            .await
            .is_ok_and(|report| report.is_ok())
    }

    async fn change_all(&self, number: u64) -> Result<(), String> {
        let vms = self.test.vms();
        for vm in list(&vms).await? {
            let name = vm["metadata"]["name"].as_str().unwrap_or_default();
            let patch = Patch::Merge(remark(number));
            let patched = vms.patch(name, &PatchParams::default(), &patch).await;
            patched.map_err(|err| format!("change {name}: {err}"))?;
        }
        Ok(())
    }

    async fn check(&self, killed: &Killed, mark: &Mark) -> Result<(), String> {
        if let Some((kind, node)) = killed.target.liveness() {
            let before = match kind {
                Liveness::Heartbeat => &mark.heartbeats,
                Liveness::Lease => &mark.leases,
            };
            let mut now = self.reports(kind).await?.into_iter();
            let is_new = now.any(|(name, report)| {
                node.is_none_or(|node| node == name) && before.get(&name) != Some(&report)
            });
            ensure(is_new, || format!("no {kind:?} from {}", killed.target))?;
        }
        for node in &list(&self.nodes).await? {
            ensure(holds(&node["status"], "Ready"), || {
                format!(
                    "node {}: {}",
                    node["metadata"]["name"], node["status"]["conditions"]
                )
            })?;
        }
        let vms = list(&self.test.vms()).await?;
        for vm in &vms {
            vm_is_right(vm)?;
        }
        let vmis = list(&self.test.vmis()).await?;
        for vmi in &vmis {
            vmi_is_right(vmi)?;
        }
        let pods = list(&self.test.pods()).await?;
        for pod in &pods {
            pod_is_right(pod)?;
        }
        let vmis: Vec<Value> = vmis.iter().map(of_instance).collect();
        let pods: Vec<Value> = pods.iter().map(of_pod).collect();
        for (what, (now, before)) in ["instances", "pods"]
            .iter()
            .zip([vmis, pods].iter().zip(&self.fixed))
        {
            ensure(now == before, || {
                format!("the {what} changed: {now:?} instead of {before:?}")
            })?;
        }
        ensure(vms.len() == self.fixed[0].len(), || {
            "a machine is missing".to_owned()
        })
    }
}

/// The identity, node and pod of a VMI, which never change.
fn of_instance(vmi: &Value) -> Value {
    let status = &vmi["status"];
    json!([
        vmi["metadata"]["uid"],
        status["nodeName"],
        status["activePods"]
    ])
}

/// The identity and node of a pod, which never change.
fn of_pod(pod: &Value) -> Value {
    json!([pod["metadata"]["uid"], pod["spec"]["nodeName"]])
}

fn vm_is_right(vm: &Value) -> Result<(), String> {
    let status = &vm["status"];
    let ensure_vm = |holds: bool, what: &str| {
        ensure(holds, || {
            format!("{} {what}: {status}", vm["metadata"]["name"])
        })
    };
    ensure_vm(
        status["printableStatus"] == "Running",
        "does not show Running",
    )?;
    ensure_vm(status["ready"] == true, "is not ready")?;
    ensure_vm(
        status["desiredGeneration"] == vm["metadata"]["generation"],
        "is stale",
    )
}

fn vmi_is_right(vmi: &Value) -> Result<(), String> {
    let status = &vmi["status"];
    let is_ready = holds(status, "Ready");
    ensure(status["phase"] == "Running" && is_ready, || {
        format!("VMI {}: {status}", vmi["metadata"]["name"])
    })
}

fn pod_is_right(pod: &Value) -> Result<(), String> {
    let status = &pod["status"];
    let never_again = |one: &Value| one["restartCount"] == 0 && one["ready"] == true;
    let mut containers = status["containerStatuses"].as_array().into_iter().flatten();
    let is_right = status["phase"] == "Running" && containers.all(never_again);
    ensure(is_right && holds(status, "Ready"), || {
        format!("pod {}: {status}", pod["metadata"]["name"])
    })
}

fn holds(status: &Value, kind: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == "True")
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

async fn list(api: &Api<DynamicObject>) -> Result<Vec<Value>, String> {
    let listed = timeout(PATIENCE, api.list(&ListParams::default())).await;
    let listed = listed.map_err(|_elapsed| "no answer".to_owned())?;
    let all = listed.map_err(|err| err.to_string())?.items;
    let all = all
        .into_iter()
        .map(|one| serde_json::to_value(one).unwrap_or_default());
    Ok(all.collect())
}
