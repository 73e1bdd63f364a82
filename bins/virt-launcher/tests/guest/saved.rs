//! A guest whose state is saved, whose pod ends, and which goes on in another pod.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use launcher_channel::{
    DomainState, DumpPlan, DumpStage, GuestPlan, GuestState, Reply, Request, StopReason,
};
use tokio::time::Instant;

use crate::bundle::{self, Bundle};
use crate::disks::bring;
use crate::failpoints::{armed_pod, call};
use crate::{disk_plan, pod, wait_for_boot};

/// A boot sector that prints `G` once, and then goes through the alphabet for ever, some letters a second.
const COUNTING_GUEST: &[u8] = &[
    0xfb,
    0xba,
    0xf8,
    0x03,
    0xb0,
    b'G',
    0xee, // sti; out 0x3f8, 'G'
    0xb0,
    b'a', // mov al, 'a'
    0xee,
    0xfe,
    0xc0,
    0x3c,
    b'z' + 1,
    0x75,
    0x02,
    0xb0,
    b'a', // next: out; the next letter
    0xf4,
    0xf4,
    0xeb,
    0xf3, // two ticks of the clock; jmp next
];
const VOLUME: &str = "state";
const RESTORED: &str = "/var/run/private/state";

fn serial(pod: &Bundle) -> PathBuf {
    pod.run_dir().join("private/serial.log")
}

fn letters(pod: &Bundle) -> Vec<u8> {
    let read = fs::read(serial(pod)).unwrap_or_default();
    // Firmware writes as well, before the guest.
    let start = read.iter().rposition(|byte| *byte == b'G');
    start.map_or(read.clone(), |start| read[start + 1..].to_vec())
}

fn plan_of(file: &str) -> DumpPlan {
    DumpPlan {
        volume: VOLUME.to_owned(),
        file: file.to_owned(),
    }
}

/// Repeats the request as the handler does, until the guest has ended.
async fn save(pod: &Bundle, plan: &DumpPlan) -> StopReason {
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        let reply = call(pod, &Request::State).await;
        if let Reply::Done(GuestState {
            domain: Some(DomainState::Stopped(reason)),
            ..
        }) = reply
        {
            return reason;
        }
        let asked = call(pod, &Request::Dump(plan.clone())).await;
        assert!(
            Instant::now() < deadline,
            "{asked:?}; the log:\n{}",
            pod.log()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Brings the saved file into another pod, as its claim does.
fn carry(from: &Path, to: &Bundle) -> PathBuf {
    let directory = to.run_dir().join("private/state");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("a.saved");
    fs::copy(from, &file).unwrap();
    for path in [&directory, &file] {
        std::os::unix::fs::chown(path, Some(bundle::UID), None).unwrap();
    }
    file
}

fn restoring(pod: &Bundle) -> GuestPlan {
    GuestPlan {
        restore: Some(RESTORED.to_owned()),
        ..disk_plan(pod, COUNTING_GUEST)
    }
}

/// Kills the launcher at each of its failpoints of the save, and in the other pod of the restore.
#[tokio::test]
async fn guest_goes_on_in_another_pod_from_its_saved_state() {
    let (first, armed) = armed_pod("virt-launcher/saved/", 4);
    let guest = disk_plan(&first, COUNTING_GUEST);
    call(&first, &Request::Sync(Box::new(guest))).await;
    wait_for_boot(&first);
    first.wait("letters", || (letters(&first).len() > 5).then_some(()));
    bring(&first, VOLUME);

    // A directory that does not exist: the guest goes on.
    let nowhere = DumpPlan {
        volume: "nowhere".to_owned(),
        ..plan_of("b.saved")
    };
    let deadline = Instant::now() + Duration::from_mins(2);
    let message = loop {
        let reply = call(&first, &Request::Dump(nowhere.clone())).await;
        let Reply::Done(state) = reply else {
            panic!("{reply:?}");
        };
        let report = state.dump.expect("a report");
        if let DumpStage::Failed(message) = report.stage {
            break message;
        }
        assert!(Instant::now() < deadline, "the log:\n{}", first.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(message.contains("nowhere"), "{message}");
    let before = letters(&first).len();
    first.wait("more letters", || {
        (letters(&first).len() > before).then_some(())
    });

    let reason = save(&first, &plan_of("a.saved")).await;
    assert_eq!(reason, StopReason::Saved);
    let saved = first.run_dir().join("kubevirt/hotplug-disks/state/a.saved");
    let last = *letters(&first).last().unwrap();
    let unreached = fs::read_to_string(&armed).unwrap();
    assert_eq!(unreached, "virt-launcher/saved/use-up\n");

    let (second, armed) = armed_pod("virt-launcher/saved/", 4);
    let used = carry(&saved, &second);
    let reply = call(&second, &Request::Sync(Box::new(restoring(&second)))).await;
    assert!(
        matches!(reply, Reply::Done(_)),
        "{reply:?}\n{}",
        second.log()
    );
    second.wait("letters", || (letters(&second).len() > 3).then_some(()));
    let unreached = fs::read_to_string(&armed).unwrap();
    assert!(!unreached.contains("use-up"), "{unreached}");
    // It did not boot, and goes on with the next letter.
    let output = fs::read(serial(&second)).unwrap();
    assert!(!output.contains(&b'G'));
    let next = if last == b'z' { b'a' } else { last + 1 };
    assert_eq!(char::from(output[0]), char::from(next));
    second.wait("the state to be emptied", || {
        (fs::metadata(&used).unwrap().len() == 16).then_some(())
    });

    // A used state is refused.
    let third = pod();
    carry(&used, &third);
    let reply = call(&third, &Request::Sync(Box::new(restoring(&third)))).await;
    let Reply::Refused { reason, retry, .. } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!((reason.as_str(), retry), ("ResumeFailed", false));
}
