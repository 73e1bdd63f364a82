//! Processors and memory that a running guest gets and gives back: after a change of its VM it moves to a pod
//! that was made for its new size, and there they are plugged in.
//!
//! **Invariant**: a guest gets no more than its pod was made for.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::{
    VirtualMachineInstance, annotations,
    conditions::{self, ConditionValue},
    domain::Memory,
    quantity::Amount,
    vmi_status::{
        CpuTopology, VirtualMachineInstanceConditionType as Condition, VirtualMachineInstanceStatus,
    },
};
use launcher_channel::{GuestSize, GuestState, MemoryPlan, Request, ResizePlan};
use model::{Guest, GuestSize as PodSize, Topology};
use reasons::Reason;
use reconcile::Key;
use tokio::time::Instant;

use super::{act::Guests, observe::Pair, sessions::Entry};
use crate::launcher::CallError;

/// Interval at which the launcher is asked how much memory the guest has taken. It doubles while nothing changes: a
/// guest without a driver never takes it.
const AGAIN: Duration = Duration::from_secs(5);
const SELDOM: Duration = Duration::from_mins(5);
/// Refusals after which the change counts as failed: QEMU may be busy with other work at first.
const TRIES: u32 = 3;

/// What this process has tried.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resizing {
    last: Option<Attempt>,
    refusals: u32,
    /// Why the guest cannot be resized.
    pub(crate) failure: Option<String>,
}

/// A request to the launcher.
#[derive(Debug, Clone)]
struct Attempt {
    plan: ResizePlan,
    /// What the guest had before.
    size: Option<GuestSize>,
    at: Instant,
    /// Until the next one, if the guest has the same by then.
    interval: Duration,
}

impl Resizing {
    /// The state after an attempt, if one is due.
    fn attempt(&self, plan: &ResizePlan, size: Option<GuestSize>, now: Instant) -> Option<Self> {
        let last = self.last.as_ref().filter(|last| last.plan == *plan);
        let (earlier, interval) = match last {
            None => (Self::default(), AGAIN),
            Some(last) if now.duration_since(last.at) < last.wait(size) => return None,
            Some(last) if last.size == size => (self.clone(), (last.interval * 2).min(SELDOM)),
            Some(_) => (self.clone(), AGAIN),
        };
        let attempt = Attempt {
            plan: plan.clone(),
            size,
            at: now,
            interval,
        };
        Some(Self {
            last: Some(attempt),
            ..earlier
        })
    }

    /// How long until the next attempt.
    fn left(&self, size: Option<GuestSize>, now: Instant) -> Duration {
        self.last.as_ref().map_or(AGAIN, |last| {
            last.wait(size).saturating_sub(now.duration_since(last.at))
        })
    }
}

impl Attempt {
    fn wait(&self, size: Option<GuestSize>) -> Duration {
        if self.size == size {
            self.interval
        } else {
            AGAIN
        }
    }
}

/// What the launcher is to change: the guest differs from its spec, and its pod has room.
pub(super) fn request(
    vmi: &VirtualMachineInstance,
    pod: &Pod,
    state: &GuestState,
) -> Option<ResizePlan> {
    let size = state.size?;
    let made_for = pod.metadata.annotations.as_ref()?;
    let made_for = PodSize::parse(made_for.get(annotations::GUEST_SIZE)?)?;
    if !made_for.covers(PodSize::wanted(vmi)) {
        return None;
    }
    let guest = Guest::of(vmi);
    let vcpus = u32::try_from(guest.topology.vcpus()).ok();
    let grows = guest.topology.max_sockets.is_some() && !has_failed(vmi, &Condition::HotVCPUChange);
    let vcpus = vcpus.filter(|_| grows).unwrap_or(size.vcpus);
    let memory = memory(vmi, &guest).filter(|_| !has_failed(vmi, &Condition::HotMemoryChange));
    let is_taken = |memory: &MemoryPlan| {
        memory.requested == size.requested_memory && memory.requested == size.plugged_memory
    };
    let is_done = vcpus <= size.vcpus && memory.as_ref().is_none_or(is_taken);
    (!is_done).then_some(ResizePlan { vcpus, memory })
}

fn memory(vmi: &VirtualMachineInstance, guest: &Guest<'_>) -> Option<MemoryPlan> {
    let at_start = model::memory_at_start(vmi)?;
    let wanted = guest.memory().ok()??;
    let requested = wanted.checked_sub(at_start)?;
    let device = domain_xml::hot_memory(guest, at_start, requested).ok()?;
    Some(MemoryPlan { requested, device })
}

fn has_failed(vmi: &VirtualMachineInstance, kind: &Condition) -> bool {
    let status = vmi.status.iter();
    let mut all = status.flat_map(|status| &status.conditions);
    all.any(|one| one.type_ == *kind && one.status == conditions::FALSE)
}

/// Reports what the guest has, and ends or fails the changes.
pub(super) fn set_status(
    status: &mut VirtualMachineInstanceStatus,
    vmi: &VirtualMachineInstance,
    size: Option<GuestSize>,
    failure: Option<&str>,
    now: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
) {
    let Some(size) = size else {
        return;
    };
    set_processors(status, vmi, size);
    set_memory(status, vmi, size);
    for (kind, lacks) in [
        (
            Condition::HotVCPUChange,
            model::lacks_processors(&vmi.spec, Some(status)),
        ),
        (
            Condition::HotMemoryChange,
            model::lacks_memory(&vmi.spec, Some(status)),
        ),
    ] {
        let list = &mut status.conditions;
        if !lacks {
            conditions::remove(list, &kind);
        } else if let Some(message) = failure
            && conditions::is_true(list, &kind)
        {
            let reason = Reason::GuestResizeFailed;
            let message = reason.advise(message);
            let value = ConditionValue::fails(reason, &message);
            conditions::set(list, kind, &value, now);
        }
    }
}

/// A launcher that a guest has taken over may report anything: more than the spec permits is not believed.
fn set_processors(
    status: &mut VirtualMachineInstanceStatus,
    vmi: &VirtualMachineInstance,
    size: GuestSize,
) {
    let topology = Topology::of(vmi.spec.domain.cpu.as_ref());
    let Some(max) = topology.max_sockets else {
        return;
    };
    let of_socket = topology.cores.saturating_mul(topology.threads);
    let sockets = size.vcpus / of_socket;
    let is_whole = size.vcpus.is_multiple_of(of_socket) && (1..=max).contains(&sockets);
    let known = status.current_cpu_topology.as_ref();
    let known = known.map(|known| Topology {
        sockets: known.sockets.unwrap_or(1).max(1),
        cores: known.cores.unwrap_or(1).max(1),
        threads: known.threads.unwrap_or(1).max(1),
        max_sockets: None,
    });
    if is_whole && known.is_none_or(|known| known.vcpus() != u64::from(size.vcpus)) {
        status.current_cpu_topology = Some(CpuTopology {
            sockets: Some(sockets),
            cores: Some(topology.cores),
            threads: Some(topology.threads),
        });
    }
}

fn set_memory(
    status: &mut VirtualMachineInstanceStatus,
    vmi: &VirtualMachineInstance,
    size: GuestSize,
) {
    let (Some(at_start), Some(memory)) = (model::memory_at_start(vmi), &vmi.spec.domain.memory)
    else {
        return;
    };
    let max = memory.max_guest.as_ref().map(Amount::parse);
    let Some(Ok(max)) = max else {
        return;
    };
    let shown = status.memory.get_or_insert_default();
    for (shown, plugged) in [
        (&mut shown.guest_requested, size.requested_memory),
        (&mut shown.guest_current, size.plugged_memory),
    ] {
        let amount = Amount::of(at_start.saturating_add(plugged));
        let known = shown.as_ref().map(Amount::parse);
        if amount <= max && known != Some(Ok(amount)) {
            *shown = Some(as_written(memory, amount));
        }
    }
}

/// In the user's own words, if they are about this amount.
fn as_written(
    memory: &Memory,
    amount: Amount,
) -> k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    let written = memory.guest.as_ref();
    let written = written.filter(|written| Amount::parse(written) == Ok(amount));
    written.cloned().unwrap_or_else(|| amount.to_binary())
}

impl Guests {
    /// How long the launcher is left alone, though the guest has not taken all of what it is offered.
    pub(super) fn until_next_resize(&self, key: &Key) -> Duration {
        let entry = self.sessions.get(key);
        entry.map_or(AGAIN, |entry| {
            let link = entry.session.link();
            let size = link.state.as_ref().and_then(|state| state.size);
            entry.resizing.left(size, Instant::now())
        })
    }

    /// Has the launcher resize its guest. A refusal holds up nothing else.
    pub(super) async fn resize(&self, key: &Key, pair: &Pair, entry: &Entry) {
        let vmi = self.latest(key, pair);
        let link = entry.session.link();
        let state = link.state.as_ref();
        let Some(plan) = state.and_then(|state| request(&vmi, &pair.pod, state)) else {
            return;
        };
        let size = state.and_then(|state| state.size);
        let Some(mut next) = entry.resizing.attempt(&plan, size, Instant::now()) else {
            return;
        };
        let answer = entry.session.call(Request::Resize(plan)).await;
        // Only a guest that does not take what it is offered is asked less often.
        if let (Err(_), Some(attempt)) = (&answer, &mut next.last) {
            attempt.interval = AGAIN;
        }
        match answer {
            Ok(_) => {
                next.refusals = 0;
                next.failure = None;
            }
            Err(CallError::Refused {
                reason, message, ..
            }) if reason == Reason::GuestResizeFailed.as_str() => {
                next.refusals += 1;
                tracing::warn!(message, "the running guest cannot be resized");
                next.failure = (next.refusals >= TRIES).then_some(message);
            }
            Err(error) => {
                let error = error_chain::error_chain(&error);
                tracing::info!(error, "the running guest was not resized");
            }
        }
        self.sessions
            .update(key, &pair.pod_uid, |entry| entry.resizing = next);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;

    const GIB: u64 = 1 << 30;

    fn vmi(sockets: u32, memory: &str, conditions: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"domain": {
                "cpu": {"sockets": sockets, "cores": 2, "maxSockets": 4},
                "memory": {"guest": memory, "maxGuest": "4Gi"}, "devices": {},
            }},
            "status": {
                "phase": "Running", "conditions": conditions,
                "currentCPUTopology": {"sockets": 1, "cores": 2},
                "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"},
            },
        }))
        .unwrap()
    }

    fn pod(size: &str) -> Pod {
        let annotations = json!({"ferrovirt.io/guest-size": size});
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    }

    fn size(vcpus: u32, requested_memory: u64, plugged_memory: u64) -> GuestSize {
        GuestSize {
            vcpus,
            requested_memory,
            plugged_memory,
        }
    }

    fn state(size: GuestSize) -> GuestState {
        GuestState {
            size: Some(size),
            ..GuestState::default()
        }
    }

    /// The number of processors and the requested memory.
    fn requested(vmi: &VirtualMachineInstance, pod: &Pod, size: GuestSize) -> Option<(u32, u64)> {
        let plan = request(vmi, pod, &state(size))?;
        Some((plan.vcpus, plan.memory.map_or(0, |memory| memory.requested)))
    }

    #[test]
    fn guest_gets_what_it_lacks_in_a_pod_with_room_for_it() {
        let none = json!([]);
        let start = size(2, 0, 0);
        let room = pod("vcpus=4,memory=2147483648");
        for (sockets, memory, pod, size, expected) in [
            (1, "1Gi", &room, start, None),
            (2, "1Gi", &room, start, Some((4, 0))),
            (1, "2Gi", &room, start, Some((2, GIB))),
            (2, "2Gi", &room, start, Some((4, GIB))),
            (2, "2Gi", &room, size(4, GIB, GIB), None),
            // Asked again until the guest has taken it.
            (2, "2Gi", &room, size(4, GIB, 0), Some((4, GIB))),
            (2, "1Gi", &room, size(4, GIB, GIB), Some((4, 0))),
            // The pod was made for less, or before such pods were marked.
            (3, "2Gi", &room, start, None),
            (2, "3Gi", &room, start, None),
            (2, "1Gi", &pod("vcpus=2,memory=1073741824"), start, None),
            (2, "1Gi", &pod("unknown"), start, None),
            (2, "1Gi", &Pod::default(), start, None),
        ] {
            let found = requested(&vmi(sockets, memory, &none), pod, size);
            assert_eq!(found, expected, "{sockets} {memory} {size:?}");
        }
        let earlier = GuestState::default();
        assert_eq!(request(&vmi(2, "2Gi", &none), &room, &earlier), None);
    }

    #[test]
    fn change_that_has_failed_is_not_tried_again() {
        let failed = |kind: &str| json!([{"type": kind, "status": "False"}]);
        let room = pod("vcpus=4,memory=2147483648");
        for (kind, expected) in [
            ("HotVCPUChange", Some((2, GIB))),
            ("HotMemoryChange", Some((4, 0))),
        ] {
            let vmi = vmi(2, "2Gi", &failed(kind));
            assert_eq!(requested(&vmi, &room, size(2, 0, 0)), expected, "{kind}");
        }
    }

    /// Sockets, requested and current memory, and the statuses of the two conditions.
    fn shown(
        vmi: &VirtualMachineInstance,
        size: GuestSize,
        failure: Option<&str>,
    ) -> (u32, String, String, Vec<String>) {
        let mut status = vmi.status.clone().unwrap();
        let now = Time(jiff::Timestamp::UNIX_EPOCH);
        set_status(&mut status, vmi, Some(size), failure, &now);
        let memory = status.memory.unwrap();
        let conditions = status.conditions.iter();
        let conditions = conditions.map(|one| format!("{}={}", one.type_.as_str(), one.status));
        (
            status.current_cpu_topology.unwrap().sockets.unwrap(),
            memory.guest_requested.unwrap().0,
            memory.guest_current.unwrap().0,
            conditions.collect(),
        )
    }

    #[test]
    fn status_shows_what_the_guest_has() {
        let both = json!([
            {"type": "HotMemoryChange", "status": "True"},
            {"type": "HotVCPUChange", "status": "True"},
        ]);
        let vmi = vmi(2, "2048Mi", &both);
        let check = |size, failure, sockets, memory: [&str; 2], conditions: &[&str]| {
            let (found, requested, current, left) = shown(&vmi, size, failure);
            assert_eq!(found, sockets, "{size:?}");
            assert_eq!([requested.as_str(), &current], memory, "{size:?}");
            assert_eq!(left, conditions, "{size:?}");
        };
        let pending = ["HotMemoryChange=True", "HotVCPUChange=True"];
        check(size(2, 0, 0), None, 1, ["1Gi", "1Gi"], &pending);
        check(size(4, GIB, 0), None, 2, ["2048Mi", "1Gi"], &[]);
        check(size(4, GIB, GIB), None, 2, ["2048Mi", "2048Mi"], &[]);
        let failed = ["HotMemoryChange=False"];
        check(size(4, 0, 0), Some("no"), 2, ["1Gi", "1Gi"], &failed);
        // More than the guest may have.
        check(
            size(100, 9 * GIB, 9 * GIB),
            None,
            1,
            ["1Gi", "1Gi"],
            &pending,
        );
        check(size(3, 0, 0), None, 1, ["1Gi", "1Gi"], &pending);
    }

    #[test]
    fn guest_that_takes_nothing_is_asked_less_often() {
        let plan = |requested| ResizePlan {
            vcpus: 2,
            memory: Some(MemoryPlan {
                requested,
                device: String::new(),
            }),
        };
        let start = Instant::now();
        let mut last = Resizing::default();
        let mut now = start;
        let (none, some) = (Some(size(2, GIB, 0)), Some(size(2, GIB, GIB / 2)));
        for (requested, size, seconds) in [
            (GIB, none, 5),
            (GIB, none, 10),
            (GIB, none, 20),
            // It takes some.
            (GIB, some, 5),
            (GIB, some, 10),
            (GIB, some, 20),
            (GIB, some, 40),
            (GIB, some, 80),
            (GIB, some, 160),
            (GIB, some, 300),
            (GIB, some, 300),
            // Another change.
            (2 * GIB, some, 5),
        ] {
            last = last.attempt(&plan(requested), size, now).unwrap();
            let wait = Duration::from_secs(seconds);
            let context = format!("{requested} {size:?} {seconds}");
            assert_eq!(last.left(size, now), wait, "{context}");
            let early = now + wait.checked_sub(Duration::from_secs(1)).unwrap();
            assert!(
                last.attempt(&plan(requested), size, early).is_none(),
                "{context}"
            );
            now += wait;
        }
        let attempt = last.last.as_mut().unwrap();
        (attempt.interval, now) = (SELDOM, attempt.at);
        assert_eq!(last.left(some, now), SELDOM);
        assert_eq!(last.left(none, now), AGAIN);
    }
}
