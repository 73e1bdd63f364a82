//! Keeps the pod's status on the API server equal to the observed one.

use std::{sync::Arc, time::Duration};

use ::metrics::Held;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use reasons::Reason;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    super::{
        act,
        plan::{Intent, Stage},
        status::{self, ContainerView, Readiness, View, Waiting},
        task::{Backoff, Task},
    },
    ContainerTasks, Outcome, Worker,
};
use crate::{Addresses, Failure, metrics, probes};

/// A pod that starts within this time gets one write: Running.
const QUIET_START: Duration = Duration::from_millis(250);

/// The last status written and the data that outlives a status.
#[derive(Debug)]
pub(super) struct Report {
    write: Task<()>,
    written: Option<Value>,
    began: Instant,
    start_time: Timestamp,
    /// Keep the transition times.
    conditions: Vec<PodCondition>,
    /// In the metric of pods by phase.
    counted: Option<Held>,
}

impl Report {
    /// Continues the status that the object has.
    pub(super) fn new(pod: &Pod, now: Timestamp) -> Self {
        let status = pod.status.as_ref();
        let start_time = status.and_then(|status| status.start_time.as_ref());
        let conditions = status.and_then(|status| status.conditions.clone());
        let phase = status.and_then(|status| status.phase.as_deref());
        Self {
            counted: phase.map(|phase| metrics::PODS.hold([phase])),
            write: Task::new(Backoff::LOCAL),
            written: None,
            began: Instant::now(),
            start_time: start_time.map_or(now, |time| time.0),
            conditions: conditions.unwrap_or_default(),
        }
    }

    pub(super) fn start_time(&self) -> Timestamp {
        self.start_time
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.write.retry_at()
    }

    pub(super) fn failures(&self) -> u32 {
        self.write.failures()
    }

    pub(super) fn finish(&mut self, status: Value, result: Result<(), Failure>) {
        if result.is_ok() {
            let phase = status.get("phase").and_then(Value::as_str);
            self.counted = phase.map(|phase| metrics::PODS.hold([phase]));
            self.written = Some(status);
        }
        self.write.finish(result);
    }

    /// Starts a write.
    fn begin(&mut self, rendered: &Value) {
        let conditions = rendered.get("conditions").cloned();
        if let Some(Ok(conditions)) = conditions.map(serde_json::from_value) {
            self.conditions = conditions;
        }
        self.write.begin();
    }
}

impl Worker {
    /// Starts a write when the status on the API server is outdated. Returns when to try again if
    /// the pod is still within its quiet start.
    pub(super) fn report_if_changed(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.deleted || self.bind_stage(now) != Stage::Done || self.is_reported() {
            return None;
        }
        if matches!(self.report.write.stage(now), Stage::Busy | Stage::Waiting) {
            return None;
        }
        let rendered = self.render_status();
        let quiet_until = self.report.began + QUIET_START;
        let is_pending = rendered
            .get("phase")
            .is_some_and(|phase| phase == "Pending");
        if is_pending
            && self.intent() == Intent::Run
            && self.report.written.is_none()
            && self.start_failure().is_none()
            && now < quiet_until
        {
            return Some(quiet_until);
        }
        self.report.begin(&rendered);
        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&self.pod));
        self.spawn(async {
            let result = act::write_status(shared, pod, rendered.clone()).await;
            Outcome::StatusReported(rendered, result)
        });
        None
    }

    /// Whether the API server has the current status.
    pub(super) fn is_reported(&self) -> bool {
        if matches!(self.lifecycle, super::Lifecycle::AlreadyFinished) {
            return true;
        }
        let rendered = self.render_status();
        match &self.report.written {
            Some(written) => *written == rendered,
            None => self
                .pod
                .status
                .as_ref()
                .is_some_and(|status| contains(status, &rendered)),
        }
    }

    fn render_status(&self) -> Value {
        let empty = Addresses::default();
        let network = self.tasks.network.value();
        status::render(&View {
            pod: &self.pod,
            now: self.shared.settings.clock.now(),
            host_ip: self.shared.settings.address,
            ips: &network.unwrap_or(&empty).ips,
            has_network: network.is_some(),
            start_time: self.report.start_time,
            containers: self.containers.iter().map(|one| self.view(one)).collect(),
            failure: self.lifecycle.failure(),
            obstacle: self.start_failure(),
            before: &self.report.conditions,
        })
    }

    fn view<'a>(&'a self, one: &'a ContainerTasks) -> ContainerView<'a> {
        let own = one.image.failure();
        let own = own.map(|failure| (failure, one.image.failures()));
        // A missing image of a volume delays the container just as its own image does.
        let image = own
            .or_else(|| self.volume_image_failure())
            .map(|(failure, failures)| waiting_for_image(failure, failures));
        let start = one.start.failure().map(|failure| Waiting {
            reason: failure.reason,
            message: (&*failure.message).into(),
        });
        let readiness = if probes::is_ready(&one.probes) {
            Readiness::Ready
        } else if probes::has_started(&one.probes) {
            Readiness::Started
        } else {
            Readiness::Starting
        };
        ContainerView {
            container: &one.container,
            role: one.role,
            status: self.container_status(one),
            digest: one.digest.as_deref(),
            failure: image.or(start),
            readiness,
        }
    }

    /// The failed pull of a volume's image and the number of its failures.
    fn volume_image_failure(&self) -> Option<(&Failure, u32)> {
        let failure = self.tasks.volumes.failure()?;
        let reasons = [
            Reason::ErrImagePull,
            Reason::ErrImageNeverPull,
            Reason::InvalidImageName,
        ];
        reasons
            .contains(&failure.reason)
            .then(|| (failure, self.tasks.volumes.failures()))
    }

    /// The failure that keeps the whole pod from starting.
    fn start_failure(&self) -> Option<&Failure> {
        let tasks = &self.tasks;
        let sandbox = tasks.sandbox.failure();
        sandbox
            .or_else(|| tasks.volumes.failure())
            .or_else(|| tasks.network.failure())
    }
}

fn waiting_for_image(failure: &Failure, failures: u32) -> Waiting<'_> {
    if failure.reason == Reason::ErrImagePull && failures > 1 {
        let message = format!("Back-off pulling image: ErrImagePull: {}", failure.message);
        return Waiting {
            reason: Reason::ImagePullBackOff,
            message: message.into(),
        };
    }
    Waiting {
        reason: failure.reason,
        message: (&*failure.message).into(),
    }
}

/// Whether the object's status has every field of the rendered one.
fn contains(status: &PodStatus, rendered: &Value) -> bool {
    let typed = |value: Value| -> Option<Value> {
        let status: PodStatus = serde_json::from_value(value).ok()?;
        serde_json::to_value(status).ok()
    };
    let (Ok(there), Some(Value::Object(ours))) =
        (serde_json::to_value(status), typed(rendered.clone()))
    else {
        return false;
    };
    ours.iter()
        .all(|(key, value)| there.get(key) == Some(value))
}
