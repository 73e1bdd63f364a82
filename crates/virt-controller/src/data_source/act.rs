//! Writes the status of a data source.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use kubevirt_api::conditions::{self, ConditionValue, FALSE, TRUE};
use kubevirt_api::data_source::{DataSource, DataSourceConditionType, DataSourceStatus};
use reconcile::{Fragment, Key, Requeue, WriteError, apply_reported};
use serde_json::json;

use super::plan::Plan;
use super::{Controller, DataSourceError};
use crate::MANAGER;

impl Controller {
    pub(super) async fn act(
        &self,
        key: &Key,
        source: &DataSource,
        plan: &Plan,
    ) -> Result<Requeue, DataSourceError> {
        let requeue = plan.requeue_in.map_or(Requeue::OnChange, Requeue::After);
        let status = status(source, plan, &Time(self.clock.now()));
        if source.status.as_ref() == Some(&status) {
            return Ok(requeue);
        }
        let body = json!({
            "apiVersion": DataSource::API_VERSION,
            "kind": DataSource::KIND,
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "resourceVersion": source.metadata.resource_version,
            },
            "status": status,
        });
        let fragment = Fragment::of_status(MANAGER, key, body);
        let api = Api::<DataSource>::namespaced(self.client.clone(), &key.namespace);
        match apply_reported(&api, &fragment, source, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/data-source/write-status");
                self.data_sources.wrote(source, written);
                Ok(requeue)
            }
            Err(WriteError::NotFound { .. }) => Ok(requeue),
            Err(error) => Err(DataSourceError::Status(error)),
        }
    }
}

pub(super) fn status(source: &DataSource, plan: &Plan, now: &Time) -> DataSourceStatus {
    let old = source.status.clone().unwrap_or_default();
    let mut all = old.conditions;
    let value = ConditionValue {
        status: if plan.is_ready { TRUE } else { FALSE },
        reason: &plan.reason,
        message: &plan.message,
    };
    conditions::set(&mut all, DataSourceConditionType::Ready, &value, now);
    DataSourceStatus {
        source: plan.source.clone(),
        conditions: all,
    }
}
