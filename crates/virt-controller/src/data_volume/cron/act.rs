//! Carries out a plan: the steps, the status, then what is not needed any more.

use error_chain::error_chain;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use kube::{Resource, ResourceExt as _};
use kubevirt_api::conditions::{self, ConditionValue, FALSE, TRUE};
use kubevirt_api::data_import_cron::{
    DataImportCron, DataImportCronConditionType as Type, DataImportCronRetentionPolicy,
    DataImportCronStatus, ImportStatus,
};
use kubevirt_api::data_source::DataSource;
use kubevirt_api::data_volume_status::DataVolume as Whole;
use kubevirt_api::{annotations, labels};
use reasons::Reason;
use reconcile::{Fragment, Key, Requeue, WriteError, apply_reported, create, delete, merge};
use serde_json::{Value, json};

use super::super::pod::{self, VersionInput};
use super::super::view::ImporterPod;
use super::observe::Managed;
use super::plan::{Cleanup, Observed, Plan, Step, Verdict};
use super::{Controller, CronError, pod_name};
use crate::MANAGER;

impl Controller {
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
    ) -> Result<Requeue, CronError> {
        let mut result = Ok(());
        for step in &plan.steps {
            result = self.step(key, observed, step).await;
            if result.is_err() {
                break;
            }
        }
        let now = Time(observed.now);
        match &result {
            Ok(()) => {
                let status = status(plan, &now);
                self.write_status(key, observed, &status).await?;
            }
            Err(error) if error.is_refusal() => {
                let status = refused(observed.cron.as_ref(), error, &now);
                self.write_status(key, observed, &status).await?;
            }
            // A step that may have been carried out is no reason to claim its outcome.
            Err(_) => {}
        }
        result?;
        for cleanup in &plan.cleanups {
            match cleanup {
                Cleanup::DeletePod => {
                    self.delete_pod(key, observed).await?;
                    failpoints::after("virt-controller/cron/delete-pod");
                }
                Cleanup::DeleteImport(name) => {
                    self.delete_import(key, observed, name).await?;
                    failpoints::after("virt-controller/cron/delete-import");
                }
            }
        }
        Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn step(&self, key: &Key, observed: &Observed, step: &Step) -> Result<(), CronError> {
        match step {
            Step::CreatePod => {
                self.create_pod(key, observed).await?;
                failpoints::after("virt-controller/cron/create-pod");
            }
            Step::Import(import) => {
                self.create_import(key, observed, import).await?;
                failpoints::after("virt-controller/cron/create-import");
            }
            Step::Point(claim) => {
                self.point(key, observed, claim).await?;
                failpoints::after("virt-controller/cron/point");
            }
        }
        Ok(())
    }

    async fn create_pod(&self, key: &Key, observed: &Observed) -> Result<(), CronError> {
        let Ok(request) = &observed.request else {
            return Ok(());
        };
        let cron = observed.cron.as_ref();
        let name = pod_name(cron.metadata.uid.as_deref().unwrap_or_default());
        let at = Key::new(&key.namespace, &name);
        let body = pod::render_version(VersionInput {
            name,
            namespace: key.namespace.clone(),
            owner: owner(cron),
            source: &request.source,
            settings: &self.launcher,
        });
        made(
            "the pod that looks for a version",
            create(&self.api::<ImporterPod>(key), MANAGER, &at, &body).await,
        )
    }

    async fn create_import(
        &self,
        key: &Key,
        observed: &Observed,
        import: &ImportStatus,
    ) -> Result<(), CronError> {
        let at = Key::new(&key.namespace, &import.data_volume_name);
        let api = self.api::<Whole>(key);
        let body = data_volume(observed.cron.as_ref(), key, import);
        match create(&api, MANAGER, &at, &body).await {
            Ok(_) => Ok(()),
            Err(WriteError::AlreadyExists { .. }) => {
                let found = api.get_opt(&at.name).await.map_err(CronError::read)?;
                let is_ours = found.is_none_or(|found| {
                    found.labels().get(labels::CDI_DATA_IMPORT_CRON) == Some(&key.name)
                });
                if is_ours {
                    Ok(())
                } else {
                    Err(CronError::NameTaken(at.name))
                }
            }
            Err(source) => Err(CronError::Create {
                what: "a data volume",
                source,
            }),
        }
    }

    async fn point(&self, key: &Key, observed: &Observed, claim: &str) -> Result<(), CronError> {
        let cron = observed.cron.as_ref();
        let at = Key::new(&key.namespace, &cron.spec.managed_data_source);
        let spec = json!({"source": {"pvc": {"namespace": key.namespace, "name": claim}}});
        let api = self.api::<DataSource>(key);
        if observed.managed == Managed::Missing {
            let mut marks = json!(cron.spec.template.metadata.as_ref().map(|it| &it.labels));
            if !marks.is_object() {
                marks = json!({});
            }
            marks[labels::CDI_DATA_IMPORT_CRON] = json!(key.name);
            let body = json!({
                "apiVersion": DataSource::API_VERSION,
                "kind": DataSource::KIND,
                "metadata": {
                    "name": at.name,
                    "namespace": at.namespace,
                    "labels": marks,
                    "ownerReferences": owners(cron),
                },
                "spec": spec,
            });
            return made("the data source", create(&api, MANAGER, &at, &body).await);
        }
        // Members of another kind of source do not stay.
        let mut body = json!({"spec": spec});
        body["spec"]["source"]["snapshot"] = Value::Null;
        body["spec"]["source"]["dataSource"] = Value::Null;
        let written = merge(&api, MANAGER, &at, &body).await;
        written.map(drop).map_err(CronError::Point)
    }

    async fn delete_pod(&self, key: &Key, observed: &Observed) -> Result<(), CronError> {
        let Some(found) = observed.pod.as_deref() else {
            return Ok(());
        };
        let (at, uid) = (Key::of(found), found.uid().unwrap_or_default());
        let deleted = delete(&self.api::<ImporterPod>(key), &at, &uid, None).await;
        let what = "the pod that looked for a version";
        deleted.map_err(|source| CronError::Delete { what, source })
    }

    async fn delete_import(
        &self,
        key: &Key,
        observed: &Observed,
        name: &str,
    ) -> Result<(), CronError> {
        let Some(import) = observed.imports.iter().find(|one| one.name == name) else {
            return Ok(());
        };
        let at = Key::new(&key.namespace, name);
        let deleted = delete(&self.api::<Whole>(key), &at, &import.uid, None).await;
        let what = "an old data volume";
        deleted.map_err(|source| CronError::Delete { what, source })
    }

    async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        status: &DataImportCronStatus,
    ) -> Result<(), CronError> {
        let cron = observed.cron.as_ref();
        if cron.status.as_ref() == Some(status) {
            return Ok(());
        }
        let body = json!({
            "apiVersion": DataImportCron::API_VERSION,
            "kind": DataImportCron::KIND,
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "resourceVersion": cron.metadata.resource_version,
            },
            "status": status,
        });
        let fragment = Fragment::of_status(MANAGER, key, body);
        let api = self.api::<DataImportCron>(key);
        match apply_reported(&api, &fragment, cron, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/cron/write-status");
                self.crons.wrote(cron, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(CronError::Status(error)),
        }
    }

    fn api<K>(&self, key: &Key) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

fn made<K>(what: &'static str, result: Result<K, WriteError>) -> Result<(), CronError> {
    match result {
        // Created by an earlier reconcile: the watch will deliver it.
        Ok(_) | Err(WriteError::AlreadyExists { .. }) => Ok(()),
        Err(source) => Err(CronError::Create { what, source }),
    }
}

pub(super) fn status(plan: &Plan, now: &Time) -> DataImportCronStatus {
    with_conditions(
        plan.status.clone(),
        [&plan.progressing, &plan.up_to_date],
        now,
    )
}

/// The former status, and why a step was refused.
pub(super) fn refused(
    cron: &DataImportCron,
    error: &CronError,
    now: &Time,
) -> DataImportCronStatus {
    let message = error_chain(error);
    let verdict = Verdict {
        holds: false,
        reason: Reason::FailedCreate.as_str(),
        message,
    };
    let old = cron.status.clone().unwrap_or_default();
    with_conditions(old, [&verdict, &verdict], now)
}

fn with_conditions(
    mut status: DataImportCronStatus,
    [progressing, up_to_date]: [&Verdict; 2],
    now: &Time,
) -> DataImportCronStatus {
    for (kind, verdict) in [
        (Type::Progressing, progressing),
        (Type::UpToDate, up_to_date),
    ] {
        let value = ConditionValue {
            status: if verdict.holds { TRUE } else { FALSE },
            reason: verdict.reason,
            message: &verdict.message,
        };
        conditions::set(&mut status.conditions, kind, &value, now);
    }
    status
}

fn owner(cron: &DataImportCron) -> Value {
    json!({
        "apiVersion": DataImportCron::API_VERSION,
        "kind": DataImportCron::KIND,
        "name": cron.metadata.name,
        "uid": cron.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Of what ends with the object.
fn owners(cron: &DataImportCron) -> Vec<Value> {
    match cron.spec.retention_policy {
        Some(DataImportCronRetentionPolicy::None) => vec![owner(cron)],
        _ => Vec::new(),
    }
}

/// The data volume of a version.
pub(super) fn data_volume(cron: &DataImportCron, key: &Key, import: &ImportStatus) -> Value {
    let template = &cron.spec.template;
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut marks = metadata.labels.unwrap_or_default();
    marks.insert(labels::CDI_DATA_IMPORT_CRON.to_owned(), key.name.clone());
    let mut notes = metadata.annotations.unwrap_or_default();
    notes.remove(annotations::COPY_PERMITTED);
    notes.insert(annotations::IMPORT_DIGEST.to_owned(), import.digest.clone());
    // No guest uses the image itself, so that some storage would wait for one.
    notes.insert(
        annotations::CDI_BIND_IMMEDIATE_REQUESTED.to_owned(),
        "true".to_owned(),
    );
    json!({
        "apiVersion": Whole::API_VERSION,
        "kind": Whole::KIND,
        "metadata": {
            "name": import.data_volume_name,
            "namespace": key.namespace,
            "labels": marks,
            "annotations": notes,
            "ownerReferences": owners(cron),
        },
        "spec": template.spec,
    })
}
