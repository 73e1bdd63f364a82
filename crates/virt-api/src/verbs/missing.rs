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
    body,
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
    pub(super) checks: Checks,
    /// What to use instead, as a sentence.
    pub(super) instead: &'static str,
}

type Check<T> = fn(&T) -> Result<(), Refusal>;

/// Pure: does `KubeVirt` refuse the verb, too? The checks are made in this order.
#[derive(Debug)]
pub(super) struct Checks {
    pub(super) cluster: Option<Check<ClusterConfig>>,
    pub(super) body: Option<Check<[u8]>>,
    pub(super) vmi: Option<Check<VirtualMachineInstance>>,
}

pub(super) const NO_CHECKS: Checks = Checks {
    cluster: None,
    body: None,
    vmi: None,
};

const BACKUPS: Missing = Missing {
    checks: NO_CHECKS,
    instead: "Create a VirtualMachineBackup",
};

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
            checks: Checks {
                vmi: Some(tracks_blocks),
                ..NO_CHECKS
            },
            ..BACKUPS
        },
    )
};

pub(super) const fn update(
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

pub(super) const fn get(
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
            Verb::Create => MethodFilter::POST,
        };
        let answer =
            move |State(shared): State<Shared>, Path(place): Path<Place>, request: Request| {
                let user = caller::user(&shared, &request);
                async move {
                    match self.answer(entry, &shared, (user, request), &place).await {
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
        (user, request): (Result<User, Refusal>, Request),
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
        if let Some(check) = self.checks.cluster {
            check(&shared.cluster.now())?;
        }
        if let Some(check) = self.checks.body {
            check(&body::bytes(request).await?)?;
        }
        if let Some(check) = self.checks.vmi {
            let vmis: Api<VirtualMachineInstance> =
                Api::namespaced(shared.client.clone(), namespace);
            let vmi = vmis.get_opt(name).await?;
            let vmi = vmi.ok_or_else(|| Refusal::not_found(entry.object.singular(), name))?;
            let checked = check(&vmi);
            checked.map_err(|refusal| match entry.verb {
                // As for other reports of a guest.
                Verb::Get => refusal.into_internal(),
                Verb::Update | Verb::Create => refusal.about(entry.object.singular(), name),
            })?;
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
    fn a_vmi_that_does_not_use_the_feature_is_refused_as_by_kubevirt() {
        let plain = json!({"spec": {"domain": {"devices": {}}}});
        let plain = serde_json::from_value(plain).unwrap();
        assert_eq!(tracks_blocks(&plain).unwrap_err().code, 409);
    }
}
