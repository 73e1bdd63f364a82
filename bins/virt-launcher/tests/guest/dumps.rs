//! Dumps of the guest's memory.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use launcher_channel::{DomainState, DumpPlan, DumpStage, GuestState, Reply, Request};

use crate::bundle::Bundle;
use crate::disks::bring;
use crate::failpoints::{armed_pod, call};
use crate::handler::Handler;
use crate::{acpi_plan, wait_for_boot};

/// The memory of the guest.
const MEMORY: u64 = 32 << 20;

fn plan(file: &str) -> DumpPlan {
    DumpPlan {
        volume: "dumps".to_owned(),
        file: file.to_owned(),
    }
}

fn path(pod: &Bundle, plan: &DumpPlan) -> PathBuf {
    let disks = pod.run_dir().join("kubevirt/hotplug-disks");
    disks.join(&plan.volume).join(&plan.file)
}

/// The bytes of memory that an ELF core of this machine has.
fn memory_of(core: &[u8]) -> u64 {
    let number = |at: usize, length: usize| {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(&core[at..at + length]);
        u64::from_le_bytes(bytes)
    };
    // 64 bits, little endian.
    assert_eq!(core[..6], *b"\x7fELF\x02\x01");
    let (core_file, i386, x86_64, load) = (4, 3, 62, 1);
    assert_eq!(number(16, 2), core_file);
    // The guest has no operating system that would leave the mode of 32 bits.
    let machine = number(18, 2);
    assert!([i386, x86_64].contains(&machine), "{machine}");
    let index = |at: u64| usize::try_from(at).unwrap();
    let (first, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let headers = (0..count).map(|header| index(first + header * size));
    headers
        .filter(|at| number(*at, 4) == load)
        .map(|at| {
            let (offset, length) = (number(at + 8, 8), number(at + 32, 8));
            assert!(index(offset + length) <= core.len(), "a part is missing");
            length
        })
        .sum()
}

/// Repeats the request as the handler does, until the dump has ended.
async fn dump(pod: &Bundle, plan: &DumpPlan) -> (GuestState, DumpStage) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    loop {
        let reply = call(pod, &Request::Dump(plan.clone())).await;
        if let Reply::Done(state) = &reply {
            let report = state.dump.as_deref().expect("a dump");
            if report.plan == *plan && report.stage != DumpStage::Running {
                return (state.clone(), report.stage.clone());
            }
        }
        let late = tokio::time::Instant::now() > deadline;
        assert!(!late, "{reply:?}; the log:\n{}", pod.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Kills the launcher at each of its failpoints of the first dump; the next launcher finishes it.
#[tokio::test]
async fn dump_is_a_core_of_the_whole_memory_and_survives_kills() {
    let (pod, file) = armed_pod("virt-launcher/dump/", 2);
    let guest = acpi_plan(&pod);
    call(&pod, &Request::Sync(Box::new(guest))).await;
    wait_for_boot(&pod);
    bring(&pod, "dumps");

    let first = plan("first.memory.dump");
    let (_, stage) = dump(&pod, &first).await;
    assert_eq!(stage, DumpStage::Done);
    let unreached = fs::read_to_string(&file).unwrap();
    assert_eq!(unreached, "", "failpoints that were not reached");
    let core = fs::read(path(&pod, &first)).unwrap();
    let memory = memory_of(&core);
    assert!(memory >= MEMORY, "{memory}");

    // The guest goes on, and a repeated request dumps nothing again.
    let mut handler = Handler::connect(&pod);
    let state = handler.done(Request::State).await;
    assert_eq!(state.domain, Some(DomainState::Running));
    fs::remove_file(path(&pod, &first)).unwrap();
    let (_, stage) = dump(&pod, &first).await;
    assert_eq!(stage, DumpStage::Done);
    assert!(!path(&pod, &first).exists());

    // A directory that does not exist.
    let nowhere = DumpPlan {
        volume: "nowhere".to_owned(),
        ..plan("second.memory.dump")
    };
    let (state, stage) = dump(&pod, &nowhere).await;
    let DumpStage::Failed(message) = stage else {
        panic!("{stage:?}");
    };
    assert!(
        message.starts_with("domain memory dump failed: "),
        "{message}"
    );
    assert_eq!(state.domain, Some(DomainState::Running));
}
