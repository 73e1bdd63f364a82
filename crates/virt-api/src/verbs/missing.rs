//! Verbs of `KubeVirt` that are not built: each answers what `KubeVirt` answers while the feature is off or
//! the VMI does not use it, and otherwise 501 with what to use instead.

use axum::{
    extract::{Path, Request, State},
    routing::{MethodFilter, MethodRouter, on},
};
use cluster_config::ClusterConfig;
use kube::Api;
use kubevirt_api::VirtualMachineInstance;
use serde::Deserialize;

use super::{
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
};
use crate::{
    caller::{self, User},
    refusal::Refusal,
    settings::Shared,
};

/// A verb that is not built.
#[derive(Debug)]
pub(super) struct Missing {
    check: Check,
    /// What to use instead, as a sentence.
    instead: &'static str,
}

/// Pure: does `KubeVirt` refuse the verb, too?
#[derive(Debug)]
enum Check {
    None,
    Cluster(fn(&ClusterConfig) -> Result<(), Refusal>),
    Vmi(fn(&VirtualMachineInstance) -> Result<(), Refusal>),
}

const BACKUPS: Missing = Missing {
    check: Check::None,
    instead: "Freeze the guest with the verb freeze, copy its volumes, and thaw it with unfreeze",
};
const SEV: Missing = Missing {
    check: Check::Cluster(sev),
    instead: "Let the guest attest itself from inside",
};
const PROFILES: Missing = Missing {
    check: Check::None,
    instead: "Read the components' durations and counts at /metrics",
};

const SEV_READ: &[u16] = &[400, 500];

pub(super) const BACKUP: Entry = Entry {
    level: Level::Component,
    ..update(
        Object::Vmi,
        "backup",
        Contract::new(Answer::Done, &[409, 500]).with_body("BackupOptions"),
        &BACKUPS,
    )
};
pub(super) const REDEFINE_CHECKPOINT: Entry = Entry {
    level: Level::Component,
    ..update(
        Object::Vmi,
        "redefine-checkpoint",
        Contract::new(Answer::Done, &[409, 500]).with_body("BackupCheckpoint"),
        &Missing {
            check: Check::Vmi(tracks_blocks),
            ..BACKUPS
        },
    )
};
pub(super) const VSOCK: Entry = Entry {
    level: Level::Component,
    ..get(
        Object::Vmi,
        "vsock",
        Contract::new(Answer::Websocket, &[400])
            .with_query(&[("port", "integer"), ("tls", "boolean")]),
        &Missing {
            check: Check::Vmi(has_vsock),
            instead: "Forward a port of the guest with the verb portforward",
        },
    )
};
pub(super) const SEV_CERTIFICATES: Entry = view(
    "sev/fetchcertchain",
    Contract::new(Answer::Object("SEVPlatformInfo"), SEV_READ),
    &SEV,
);
pub(super) const SEV_MEASUREMENT: Entry = view(
    "sev/querylaunchmeasurement",
    Contract::new(Answer::Object("SEVMeasurementInfo"), SEV_READ),
    &SEV,
);
pub(super) const SEV_SESSION: Entry = update(
    Object::Vmi,
    "sev/setupsession",
    Contract::new(Answer::Accepted, &[400, 409]).with_body("SEVSessionOptions"),
    &SEV,
);
pub(super) const SEV_SECRET: Entry = update(
    Object::Vmi,
    "sev/injectlaunchsecret",
    Contract::new(Answer::Done, &[400, 409]).with_body("SEVSecretOptions"),
    &SEV,
);
pub(super) const START_PROFILER: Entry = profiler("start-cluster-profiler", Answer::Done);
pub(super) const STOP_PROFILER: Entry = profiler("stop-cluster-profiler", Answer::Done);
pub(super) const DUMP_PROFILER: Entry = profiler(
    "dump-cluster-profiler",
    Answer::Object("ClusterProfilerResults"),
);

const fn update(
    object: Object,
    name: &'static str,
    contract: Contract,
    missing: &'static Missing,
) -> Entry {
    Entry {
        object,
        name,
        verb: Verb::Update,
        level: Level::Edit,
        contract,
        handler: Handler::Missing(missing),
    }
}

const fn get(
    object: Object,
    name: &'static str,
    contract: Contract,
    missing: &'static Missing,
) -> Entry {
    Entry {
        verb: Verb::Get,
        ..update(object, name, contract, missing)
    }
}

const fn view(name: &'static str, contract: Contract, missing: &'static Missing) -> Entry {
    Entry {
        level: Level::View,
        ..get(Object::Vmi, name, contract, missing)
    }
}

const fn profiler(name: &'static str, answer: Answer) -> Entry {
    let contract = Contract::new(answer, &[]).with_body("ClusterProfilerRequest");
    Entry {
        level: Level::Everyone,
        ..get(Object::Cluster, name, contract, &PROFILES)
    }
}

fn sev(config: &ClusterConfig) -> Result<(), Refusal> {
    const GATE: &str = "WorkloadEncryptionSEV";
    if config.has_gate(GATE) {
        return Ok(());
    }
    let message = format!("'{GATE}' feature gate is not enabled");
    Err(Refusal::bad_request(message))
}

fn has_vsock(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    let status = vmi.status.as_ref();
    match status.and_then(|status| status.vsock_cid) {
        Some(_) => Ok(()),
        None => Err(Refusal::bad_request("VSOCK is not attached.").because(
            "spec.domain.devices.autoattachVSOCK",
            "the guest has no VSOCK device",
        )),
    }
}

fn tracks_blocks(_: &VirtualMachineInstance) -> Result<(), Refusal> {
    Err(Refusal::conflict("ChangedBlockTracking is not enabled"))
}

/// The parameters of the path, as far as it has them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Place {
    namespace: String,
    name: String,
}

impl Missing {
    /// What to use instead, as a sentence without its end.
    pub(super) fn instead(&self) -> &'static str {
        self.instead
    }

    pub(super) fn route(&'static self, entry: &'static Entry) -> MethodRouter<Shared> {
        let filter = match entry.verb {
            Verb::Get => MethodFilter::GET,
            Verb::Update => MethodFilter::PUT,
        };
        let answer =
            move |State(shared): State<Shared>, Path(place): Path<Place>, request: Request| {
                let user = caller::user(&shared, &request);
                async move {
                    match self.answer(entry, &shared, user, &place).await {
                        Ok(refusal) | Err(refusal) => refusal,
                    }
                }
            };
        on(filter, answer)
    }

    async fn answer(
        &self,
        entry: &Entry,
        shared: &Shared,
        user: Result<User, Refusal>,
        Place { namespace, name }: &Place,
    ) -> Result<Refusal, Refusal> {
        if entry.level != Level::Everyone {
            let access = caller::Access {
                namespace,
                name,
                resource: entry.object.plural(),
                subresource: entry.name,
                verb: entry.verb.name(),
            };
            caller::authorize(shared, user?, &access).await?;
        }
        match self.check {
            Check::None => {}
            Check::Cluster(check) => check(&shared.cluster.now())?,
            Check::Vmi(check) => {
                let vmis: Api<VirtualMachineInstance> =
                    Api::namespaced(shared.client.clone(), namespace);
                let vmi = vmis.get_opt(name).await?;
                let vmi = vmi.ok_or_else(|| Refusal::not_found(entry.object.singular(), name))?;
                check(&vmi).map_err(|refusal| refusal.about(entry.object.singular(), name))?;
            }
        }
        Ok(self.refusal(entry))
    }

    fn refusal(&self, entry: &Entry) -> Refusal {
        Refusal::not_implemented(format!(
            "Ferrovirt does not implement {} yet. {}.",
            entry.resource(),
            self.instead
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::verbs::ALL;

    #[test]
    fn every_missing_verb_says_what_to_use_instead() {
        let mut count = 0;
        for entry in ALL {
            let Handler::Missing(missing) = entry.handler else {
                continue;
            };
            count += 1;
            let refusal = missing.refusal(entry);
            assert_eq!(refusal.code, 501);
            let message = &refusal.message;
            assert!(message.contains(&entry.resource()), "{message}");
            let instead = missing.instead;
            assert!(instead.len() > 20 && !instead.ends_with('.'), "{instead}");
        }
        assert!(count > 0);
    }

    #[test]
    fn a_feature_that_is_off_is_refused_as_by_kubevirt() {
        let on = |on: &[&str], off: &[&str]| {
            ClusterConfig::from_kubevirt(
                &serde_json::from_value(json!({"developerConfiguration": {
                    "featureGates": on, "disabledFeatureGates": off,
                }}))
                .unwrap(),
            )
        };
        let off = on(&[], &["WorkloadEncryptionSEV"]);
        sev(&on(&[], &[])).unwrap();
        assert_eq!(
            sev(&off).unwrap_err().message,
            "'WorkloadEncryptionSEV' feature gate is not enabled"
        );
    }

    #[test]
    fn a_vmi_that_does_not_use_the_feature_is_refused_as_by_kubevirt() {
        let vmi = |value| serde_json::from_value::<VirtualMachineInstance>(value).unwrap();
        let plain = vmi(json!({"spec": {"domain": {"devices": {}}}}));
        let refusal = has_vsock(&plain).unwrap_err();
        assert_eq!(
            (refusal.code.as_u16(), &*refusal.message),
            (400, "VSOCK is not attached.")
        );
        assert_eq!(tracks_blocks(&plain).unwrap_err().code, 409);
        let with = vmi(json!({
            "status": {"VSOCKCID": 3},
        }));
        has_vsock(&with).unwrap();
    }
}
