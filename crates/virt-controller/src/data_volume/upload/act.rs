//! Carries out a plan: the state on the claim, then the steps.

use error_chain::error_chain;
use kube::ResourceExt as _;
use kube::api::Api;
use kubevirt_api::annotations;
use reasons::Reason;
use reconcile::{EventType, Key, Requeue, WriteError, create, delete, merge};
use serde_json::{Value, json};

use super::super::plan::Verdict;
use super::super::pod::{self, UploadInput};
use super::super::view::ImporterPod;
use super::observe::Observed;
use super::plan::{PENDING, Plan, SUCCEEDED, State, Step, is_over, is_target};
use super::{Controller, UploadError};
use crate::MANAGER;
use crate::view::Claim;

impl Controller {
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
    ) -> Result<Requeue, UploadError> {
        if let Some(state) = &plan.state {
            self.annotate(key, observed, state).await?;
        }
        for step in &plan.steps {
            match step {
                Step::CreatePod => {
                    let created = self.create_pod(key, observed).await;
                    failpoints::after("virt-controller/upload/create-pod");
                    if let Err(error) = created {
                        if let Some(state) = refused(&error) {
                            self.annotate(key, observed, &state).await?;
                        }
                        return Err(error);
                    }
                }
                Step::DeletePod => {
                    self.delete_pod(observed).await?;
                    failpoints::after("virt-controller/upload/delete-pod");
                }
            }
        }
        Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn annotate(
        &self,
        key: &Key,
        observed: &Observed,
        state: &State,
    ) -> Result<(), UploadError> {
        let claim = observed.claim.as_ref();
        let Some(changed) = annotations(claim, state) else {
            return Ok(());
        };
        // A claim of the same name may have taken its place.
        let body = json!({"metadata": {"uid": claim.metadata.uid, "annotations": changed}});
        let api = Api::<Claim>::namespaced(self.client.clone(), &key.namespace);
        match merge(&api, MANAGER, key, &body).await {
            Ok(written) => {
                failpoints::after("virt-controller/upload/annotate-claim");
                self.claims.wrote(claim, written);
                self.publish(claim, state);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(UploadError::Annotate(error)),
        }
    }

    /// Publishes an event about a new problem, and one about the success.
    fn publish(&self, claim: &Claim, state: &State) {
        let running = &state.running;
        if state.phase == SUCCEEDED {
            let (reason, note) = (Reason::UploadSucceeded, "The uploaded disk is complete");
            self.recorder
                .publish(claim, EventType::Normal, reason, note);
            return;
        }
        let before = claim.annotation(annotations::CDI_RUNNING_REASON);
        let message = claim.annotation(annotations::CDI_RUNNING_MESSAGE);
        let reason = running.reason.filter(|reason| {
            let is_same =
                before == Some(reason.as_str()) && message == Some(running.message.as_str());
            !is_same && *reason != Reason::WaitForFirstConsumer
        });
        if let Some(reason) = reason {
            let message = reason.advise(&running.message);
            self.recorder
                .publish(claim, EventType::Warning, reason, message);
        }
    }

    async fn create_pod(&self, key: &Key, observed: &Observed) -> Result<(), UploadError> {
        let claim = observed.claim.as_ref();
        let uid = claim.uid().unwrap_or_default();
        // The caches may lag: a claim that has its disk by now must not be overwritten.
        let api = Api::<Claim>::namespaced(self.client.clone(), &key.namespace);
        let current = api.get_opt(&key.name).await.map_err(UploadError::read)?;
        let is_same = current.is_some_and(|current| {
            current.metadata.uid.as_ref() == Some(&uid) && is_target(&current) && !is_over(&current)
        });
        if !is_same {
            return Err(UploadError::Stale);
        }
        let input = UploadInput {
            claim,
            settings: &self.launcher,
        };
        let body = pod::render_upload(&input).ok_or(UploadError::NoSize)?;
        let at = Key::new(&key.namespace, pod::upload_name(&uid));
        let api = Api::<ImporterPod>::namespaced(self.client.clone(), &key.namespace);
        match create(&api, MANAGER, &at, &body).await {
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(UploadError::CreatePod(error)),
        }
    }

    async fn delete_pod(&self, observed: &Observed) -> Result<(), UploadError> {
        let Some(found) = observed.pod.as_deref() else {
            return Ok(());
        };
        let (at, uid) = (Key::of(found), found.uid().unwrap_or_default());
        let api = Api::<ImporterPod>::namespaced(self.client.clone(), &at.namespace);
        let deleted = delete(&api, &at, &uid, None).await;
        deleted.map_err(UploadError::DeletePod)
    }
}

/// What the claim says about a pod that the API server refused; nothing about one that may exist.
fn refused(error: &UploadError) -> Option<State> {
    let UploadError::CreatePod(WriteError::Refused { .. }) = error else {
        return None;
    };
    Some(State {
        phase: PENDING,
        running: Verdict {
            holds: false,
            reason: Some(Reason::FailedCreate),
            message: error_chain(error),
        },
        restarts: None,
    })
}

/// The annotations that differ from those of the claim; `None` if none does. Null removes one.
pub(super) fn annotations(claim: &Claim, state: &State) -> Option<Value> {
    let running = &state.running;
    let text = |value: &str| Some(value.to_owned());
    let truth = |holds: bool| text(if holds { "true" } else { "false" });
    let mut wanted = vec![
        (annotations::CDI_POD_PHASE, text(state.phase)),
        (annotations::CDI_POD_READY, truth(running.holds)),
        (annotations::CDI_RUNNING, truth(running.holds)),
        (
            annotations::CDI_RUNNING_REASON,
            running.reason.map(|reason| reason.as_str().to_owned()),
        ),
        (annotations::CDI_RUNNING_MESSAGE, text(&running.message)),
    ];
    if state.phase == SUCCEEDED {
        wanted.push((annotations::UPLOAD_REFUSED, None));
        wanted.push((annotations::IMPORT_RESTARTS, None));
    } else if let Some(restarts) = state.restarts {
        wanted.push((annotations::IMPORT_RESTARTS, Some(restarts.to_string())));
    }
    let changed = wanted
        .into_iter()
        .filter(|(name, value)| claim.annotation(name) != value.as_deref())
        .map(|(name, value)| (name.to_owned(), json!(value)));
    let changed: serde_json::Map<String, Value> = changed.collect();
    (!changed.is_empty()).then_some(Value::Object(changed))
}
