//! A guest that is bound to a CPU of its pod moves to a pod with another one. QEMU emulates its processors here, so
//! only the other threads are bound.

use std::fs;

use launcher_channel::{DomainState, GuestPlan, MigrationStage, Request, StopReason};

use crate::bundle::Bundle;
use crate::handler::Handler;
use crate::migration::{
    COUNTING_GUEST, connect, ends, goes_on, migrate, receive, wait_for_letters,
};
use crate::{QEMU, disk_plan, single};

fn bound(pod: &Bundle, cpu: &str) -> GuestPlan {
    let mut plan = disk_plan(pod, COUNTING_GUEST);
    let tuning = format!("<cputune><emulatorpin cpuset='{cpu}'/></cputune><os>");
    plan.domain_xml = plan.domain_xml.replacen("<os>", &tuning, 1);
    plan
}

/// The CPUs that the first thread of a process may use.
fn allowed_cpus(process: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap().trim().to_owned()
}

fn of_qemu(pod: &Bundle) -> String {
    allowed_cpus(&single(&pod.pids(QEMU)).to_string())
}

// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_is_bound_to_a_cpu_of_its_new_pod() {
    let all = allowed_cpus("self");
    let mut all = all.split([',', '-']);
    let first = all.next().unwrap();
    // On a host with one CPU it is the same one.
    let last = all.next_back().unwrap_or(first);
    let (source, target) = (crate::pod(), crate::pod());
    let mut old = Handler::connect(&source);
    old.done(Request::Sync(Box::new(bound(&source, first))))
        .await;
    wait_for_letters(&source, 30);
    assert_eq!(of_qemu(&source), first);
    let mut new = Handler::connect(&target);
    new.done(receive(&bound(&target, last))).await;
    let _proxies = connect(&source, &target);
    old.done(migrate()).await;
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    assert_eq!(ends(&mut new).await, MigrationStage::Done);
    new.reports(DomainState::Running).await;
    goes_on(&source, &target);
    assert_eq!(of_qemu(&target), last);
}
