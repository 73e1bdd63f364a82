//! Records the results of finished steps.

use std::sync::Arc;

use image_store::Image;
use k8s_openapi::api::core::v1::Pod;
use pod_supervisor::status::PodStatus;
use reasons::Reason;
use serde_json::Value;

use super::{
    super::{
        act::{self, Prepared},
        plan::Remains,
        status,
        task::Task,
    },
    Worker,
    hooks::HookRun,
    probes::ProbeRun,
};
use crate::{Addresses, Failure, supervisor::Link};

/// The result of work that ran beside the worker's loop.
pub(super) enum Outcome {
    Bound(Result<(), Failure>),
    UnschedulableReported(Result<(), Failure>),
    Sandbox(Result<(Link, PodStatus), Failure>),
    Volumes(Result<Prepared, Failure>),
    VolumesRefreshed(act::LiveTokens, Result<(), Failure>),
    VolumesMeasured(Result<Option<String>, Failure>),
    Network(Result<Addresses, Failure>),
    Networks(Result<(), Failure>),
    Pulled(usize, Result<Image, Failure>),
    Started(usize, Result<(), Failure>),
    Stopped(Result<(), Failure>),
    TornDown(Result<Remains, Failure>),
    StatusReported(Value, Result<(), Failure>),
    ObjectDeleted(Result<(), Failure>),
    Probed(ProbeRun, Result<(), String>),
    StartHookEnded(HookRun, Result<(), String>),
    Killed(usize, Result<(), Failure>),
}

impl Worker {
    pub(super) fn on_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Bound(result) => self.finish_bind(result),
            Outcome::UnschedulableReported(result) => self.on_unschedulable_reported(result),
            Outcome::Sandbox(result) => self.on_sandbox(result),
            Outcome::Volumes(result) => self.on_volumes(result),
            Outcome::VolumesRefreshed(tokens, result) => self.on_volumes_refreshed(tokens, result),
            Outcome::VolumesMeasured(result) => self.on_volumes_measured(result),
            Outcome::Network(result) => {
                self.publish_error(&result, self.tasks.network.failures());
                self.tasks.network.finish(result);
            }
            Outcome::Networks(result) => {
                self.publish_error(&result, self.tasks.networks.failures());
                self.tasks.networks.finish(result);
                if std::mem::take(&mut self.tasks.compare_again) {
                    self.tasks.networks.reset();
                }
            }
            Outcome::Pulled(index, result) => self.on_pulled(index, result),
            Outcome::Started(index, result) => self.on_started(index, result),
            Outcome::Stopped(result) => {
                self.publish_error(&result, self.tasks.stop.failures());
                self.tasks.stop.finish(result);
                self.tasks.begin_next_stop();
            }
            Outcome::TornDown(result) => self.on_torn_down(result),
            Outcome::StatusReported(status, result) => self.on_status_reported(status, result),
            Outcome::ObjectDeleted(result) => {
                self.publish_error(&result, self.tasks.delete_object.failures());
                self.tasks.delete_object.finish(result);
            }
            Outcome::Probed(run, result) => self.on_probed(run, &result),
            Outcome::StartHookEnded(run, result) => self.on_start_hook(run, &result),
            Outcome::Killed(index, result) => self.on_killed(index, &result),
        }
    }

    pub(super) fn finish_bind(&mut self, result: Result<(), Failure>) {
        match &result {
            Ok(()) => self.on_bound(),
            Err(failure) => self.on_unschedulable(failure),
        }
        self.tasks.bind.finish(result);
    }

    fn on_bound(&mut self) {
        let node = self.shared.settings.node_name.clone();
        let key = reconcile::Key::of(self.pod.as_ref());
        let note = format!("Successfully assigned {key} to {node}");
        self.publish_normal(Reason::Scheduled, note);
        // The watch delivers the same a moment later.
        let mut pod = Pod::clone(&self.pod);
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(node);
        }
        self.pod = Arc::new(pod);
    }

    /// Publishes a scheduling failure once, until it changes.
    fn on_unschedulable(&mut self, failure: &Failure) {
        self.shared.slots.release(&self.pod);
        if self.tasks.unschedulable.as_ref() == Some(&failure.message) {
            return;
        }
        self.tasks.unschedulable = Some(failure.message.clone());
        self.publish_warning(failure);
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        let now = self.shared.settings.clock.now();
        let status = status::unschedulable(&self.pod, &failure.message, now);
        self.spawn(async {
            Outcome::UnschedulableReported(act::write_status(shared, pod, status).await)
        });
    }

    fn on_unschedulable_reported(&mut self, result: Result<(), Failure>) {
        if let Err(failure) = result {
            Self::log_failure(&failure, self.tasks.bind.failures());
            // Published again with the next try.
            self.tasks.unschedulable = None;
        }
    }

    fn on_sandbox(&mut self, result: Result<(Link, PodStatus), Failure>) {
        self.publish_error(&result, self.tasks.sandbox.failures());
        match result {
            Ok((link, status)) => {
                self.tasks.sandbox.finish(Ok(()));
                self.tasks.stop.reset();
                self.supervisor.connect(link);
                self.on_status(Ok(status));
            }
            Err(failure) => self.tasks.sandbox.finish(Err(failure)),
        }
    }

    fn on_volumes(&mut self, result: Result<Prepared, Failure>) {
        self.publish_error(&result, self.tasks.volumes.failures());
        if let Ok(prepared) = &result {
            self.tasks.tokens = prepared.tokens.clone();
            self.tasks.refresh = Task::done(self.next_refresh());
        }
        self.tasks.volumes.finish(result);
    }

    fn on_pulled(&mut self, index: usize, result: Result<Image, Failure>) {
        if let Some(one) = self.containers.get(index) {
            self.publish_error(&result, one.image.failures());
        }
        if let Some(one) = self.containers.get_mut(index) {
            one.image.finish(result);
        }
    }

    fn on_started(&mut self, index: usize, result: Result<(), Failure>) {
        if let Some(one) = self.containers.get(index) {
            self.publish_error(&result, one.start.failures());
        }
        if let Some(one) = self.containers.get_mut(index) {
            one.start.finish(result);
        }
    }

    fn on_torn_down(&mut self, result: Result<Remains, Failure>) {
        self.publish_error(&result, self.tasks.tear_down.failures());
        if let Ok(remains) = &result {
            self.remains = *remains;
        }
        self.tasks.tear_down.finish(result.map(drop));
        if self.remains == Remains::Files {
            self.tasks.tear_down.reset();
        }
    }

    fn on_status_reported(&mut self, status: Value, result: Result<(), Failure>) {
        if let Err(failure) = &result {
            Self::log_failure(failure, self.report.failures());
        }
        self.report.finish(status, result);
    }

    fn on_killed(&mut self, index: usize, result: &Result<(), Failure>) {
        self.publish_error(result, 0);
        if let (Err(_), Some(one)) = (result, self.containers.get_mut(index)) {
            // The next failure of the probe tries again.
            one.killing = None;
        }
    }
}
