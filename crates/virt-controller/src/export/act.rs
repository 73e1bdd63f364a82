//! Carries out a step, and writes the status.

use std::fmt::Debug;

use error_chain::error_chain;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use kube::{Api, Resource};
use kubevirt_api::export::{VirtualMachineExport, VirtualMachineExportPhase as Phase};
use reasons::Reason;
use reconcile::{EventType, Key, ReconcileError as _, WriteError, apply_reported, create, delete};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use super::links::{self, Audience};
use super::observe::{Front, Observed, Source};
use super::plan::{Plan, Progress, Step, expiry};
use super::view::ExporterPod;
use super::{Controller, ExportError, certificate, manifest, names, pod, status};
use crate::MANAGER;
use crate::operation::status_fragment;

/// Characters of a name that nothing else has.
const SUFFIX: usize = 10;

/// Whether an object was created or existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    New,
    Before,
}

impl Controller {
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        step: &Step,
    ) -> Result<(), ExportError> {
        match step {
            Step::DeleteExport => {
                let api = self.api::<VirtualMachineExport>(key);
                let deleted = delete(&api, key, names::uid(&observed.export), None).await;
                failpoints::after("virt-controller/export/delete-export");
                deleted.map_err(|source| ExportError::Delete {
                    what: "the export",
                    source,
                })
            }
            Step::CreateClaims => self.create_claims(key, observed).await,
            Step::Publish => self.publish_service(key, observed).await,
            Step::Start => self.start(key, observed).await,
            Step::DeletePod(reason, message) => {
                self.delete_pod(observed).await?;
                failpoints::after("virt-controller/export/delete-pod");
                self.publish(observed, EventType::Warning, *reason, message.clone());
                Ok(())
            }
        }
    }

    fn api<K>(&self, key: &Key) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn make<K>(
        &self,
        key: &Key,
        (what, name): (&'static str, &str),
        body: &impl Serialize,
    ) -> Result<Made, ExportError>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let named = Key::new(&key.namespace, name);
        match create(&self.api::<K>(key), MANAGER, &named, body).await {
            Ok(_) => Ok(Made::New),
            Err(WriteError::AlreadyExists { .. }) => Ok(Made::Before),
            Err(source) => Err(ExportError::Create { what, source }),
        }
    }

    async fn create_claims(&self, key: &Key, observed: &Observed) -> Result<(), ExportError> {
        let missing = observed.volumes.iter().filter(|one| one.claim.is_none());
        for volume in missing {
            if let Some(restored) = &volume.restored {
                let named = ("a claim", volume.claim_name.as_str());
                self.make::<PersistentVolumeClaim>(key, named, &restored.body)
                    .await?;
                failpoints::after("virt-controller/export/create-claim");
            }
        }
        Ok(())
    }

    /// The Secrets first: their names are noted at the service. Those of a service that was not created are left
    /// until the export ends, and are never used.
    async fn publish_service(&self, key: &Key, observed: &Observed) -> Result<(), ExportError> {
        let export = observed.export.as_ref();
        let service = names::server(export);
        let until = expiry(export).unwrap_or(observed.now);
        let made = certificate::issue((&service, &key.namespace), observed.now, until)?;
        let suffix: String = random().chars().take(SUFFIX).collect();
        let secret = format!("secret-{suffix}");
        let body = pod::certificate_secret(export, &secret, &made);
        self.make::<Secret>(key, ("the certificate", &secret), &body)
            .await?;
        failpoints::after("virt-controller/export/create-certificate");
        let token = match names::given_token(export) {
            Some(given) => given.to_owned(),
            None => self.create_token(key, observed).await?,
        };
        let body = pod::service(export, (&secret, &made.authority), &token);
        let made = self
            .make::<Service>(key, ("the service", &service), &body)
            .await?;
        failpoints::after("virt-controller/export/create-service");
        if made == Made::New {
            let note = format!("Created Service {service}");
            self.publish(observed, EventType::Normal, Reason::ServiceCreated, note);
        }
        Ok(())
    }

    /// A Secret that exists already is never used: whoever made it knows its token, or it belongs to an earlier
    /// export of this name and goes with that.
    async fn create_token(&self, key: &Key, observed: &Observed) -> Result<String, ExportError> {
        let suffix: String = random().chars().take(SUFFIX).collect();
        let [usual, other] = names::tokens(&observed.export, &suffix);
        if self.make_token(key, observed, &usual).await? == Made::New {
            return Ok(usual);
        }
        match self.make_token(key, observed, &other).await? {
            Made::New => Ok(other),
            Made::Before => Err(ExportError::Taken {
                what: "Secret",
                name: other,
            }),
        }
    }

    async fn make_token(
        &self,
        key: &Key,
        observed: &Observed,
        name: &str,
    ) -> Result<Made, ExportError> {
        let body = pod::token_secret(&observed.export, name, &random());
        let made = self.make::<Secret>(key, ("the token", name), &body).await?;
        failpoints::after("virt-controller/export/create-token");
        if made == Made::New {
            let note = format!("Created Secret {name}");
            self.publish(observed, EventType::Normal, Reason::SecretCreated, note);
        }
        Ok(made)
    }

    async fn start(&self, key: &Key, observed: &Observed) -> Result<(), ExportError> {
        let export = observed.export.as_ref();
        let Front::Ready {
            certificate, token, ..
        } = &observed.front
        else {
            return Ok(());
        };
        if names::given_token(export).is_none() {
            // Somebody may have deleted it.
            self.make_token(key, observed, token).await?;
        }
        let manifests = self.create_manifests(key, observed).await?;
        let config = self.cluster.now();
        let input = pod::Input {
            export,
            volumes: &observed.volumes,
            offer: match &observed.source {
                Source::Backup(offer) => Some(offer),
                _ => None,
            },
            certificate,
            token,
            manifests: manifests.as_deref(),
            settings: &self.launcher,
            config: &config,
        };
        let body = pod::pod(&input);
        let name = names::server(export);
        let made = self
            .make::<ExporterPod>(key, ("the pod of the export server", &name), &body)
            .await?;
        failpoints::after("virt-controller/export/create-pod");
        if made == Made::New {
            let note = format!("Created Pod {name}");
            self.publish(
                observed,
                EventType::Normal,
                Reason::ExporterPodCreated,
                note,
            );
            return Ok(());
        }
        self.check_pod(key, observed, name).await
    }

    /// A pod of that name which the cache did not have.
    async fn check_pod(
        &self,
        key: &Key,
        observed: &Observed,
        name: String,
    ) -> Result<(), ExportError> {
        let found = self.api::<ExporterPod>(key).get_opt(&name).await;
        let found = found.map_err(super::observe::unreadable("the pod"))?;
        match found {
            Some(pod) if !names::is_of(&pod, &observed.export) => {
                Err(ExportError::Taken { what: "pod", name })
            }
            _ => Ok(()),
        }
    }

    /// The objects that import what is exported; none for a claim.
    async fn create_manifests(
        &self,
        key: &Key,
        observed: &Observed,
    ) -> Result<Option<String>, ExportError> {
        let (Source::Machine { vm, .. } | Source::Snapshot(vm)) = &observed.source else {
            return Ok(None);
        };
        let export = observed.export.as_ref();
        let bases = [
            (Audience::Internal, links::internal(export, &observed.front)),
            (
                Audience::External,
                links::external(export, observed.proxy.as_ref()),
            ),
        ];
        let mut data = json!({});
        for (audience, base) in bases {
            if let Some(base) = base {
                let objects = manifest::objects(export, vm, &observed.volumes, &base);
                let yaml = manifest::yaml(&objects).map_err(ExportError::Manifest)?;
                data[format!("{}.yaml", audience.as_str())] = yaml.into();
                data[format!("{}.json", audience.as_str())] = manifest::list(&objects).into();
            }
        }
        let name = names::manifests(export, &data.to_string());
        let body = config_map(export, &name, &data);
        self.make::<ConfigMap>(key, ("the manifests", &name), &body)
            .await?;
        failpoints::after("virt-controller/export/create-manifests");
        Ok(Some(name))
    }

    async fn delete_pod(&self, observed: &Observed) -> Result<(), ExportError> {
        let Some(found) = observed.pod.as_deref() else {
            return Ok(());
        };
        let named = Key::of(found);
        let uid = found.metadata.uid.clone().unwrap_or_default();
        let deleted = delete(&self.api::<ExporterPod>(&named), &named, &uid, None).await;
        deleted.map_err(|source| ExportError::Delete {
            what: "the pod of the export server",
            source,
        })
    }

    pub(super) async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
        error: Option<&ExportError>,
    ) -> Result<(), ExportError> {
        let failed = error.map(|error| (error.reason(), error_chain(error)));
        let progress = match (failed, &plan.progress) {
            (Some(cause), Progress::Starting(_)) => Progress::Starting(cause),
            (Some(cause), Progress::Waits { claims, .. }) => Progress::Waits {
                ready: cause,
                claims: claims.clone(),
            },
            (_, progress) => progress.clone(),
        };
        let export = observed.export.as_ref();
        let status = status::render(observed, &progress, observed.proxy.as_ref());
        let Some(fragment) = status_fragment(export, export.status.as_ref(), key, &status) else {
            return Ok(());
        };
        match apply_reported(&self.api(key), &fragment, export, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/export/write-status");
                self.exports.wrote(export, written);
                if let (Progress::Skipped((reason, message)), Some(Phase::Skipped)) =
                    (progress, status.phase)
                {
                    self.publish(observed, EventType::Warning, reason, message);
                }
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(ExportError::Status(error)),
        }
    }

    fn publish(&self, observed: &Observed, kind: EventType, reason: Reason, note: String) {
        self.recorder
            .publish(observed.export.as_ref(), kind, reason, note);
    }
}

fn config_map(export: &VirtualMachineExport, name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": export.metadata.namespace,
            "ownerReferences": [names::owner(export)],
        },
        "data": data,
    })
}

/// More than can be guessed.
fn random() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
