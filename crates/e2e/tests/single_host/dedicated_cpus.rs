//! A guest with processors of its own.

use std::{fs, sync::Arc};

use e2e::{Host, processes_of_pod, tiny_vm};
use serde_json::json;

use crate::TestNamespace;

const QEMU: &str = "qemu-system-x86";

/// The list of CPUs that each thread of a process may use, by the thread's name.
fn affinities(process: i32) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("list threads");
    let of_task = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let value = |name| {
            status
                .lines()
                .find_map(|line: &str| line.strip_prefix(name))
        };
        let list = value("Cpus_allowed_list:")?.trim().to_owned();
        Some((value("Name:")?.trim().to_owned(), list))
    };
    tasks.flatten().filter_map(of_task).collect()
}

#[tokio::test]
async fn guest_with_dedicated_cpus_runs_there_alone() {
    let mut host = Host::new();
    host.start_on_free_network(&["--reserved-cpus=0"])
        .await
        .success();
    let test = TestNamespace::on(Arc::new(host)).await;
    let cpu = json!({"cores": 1, "dedicatedCpuPlacement": true});
    test.apply(&tiny_vm("own").domain("cpu", cpu)).await;
    test.wait_vmi_phase("own", "Running").await;
    test.greeting("own").await;
    let processes = processes_of_pod(&test.pod_uid().await);
    let qemu = processes.iter().find(|(_, name)| name == QEMU);
    let threads = affinities(qemu.expect("a process of QEMU").0);
    let (_, own) = threads.first().expect("a thread");
    // One, and not that of the host; all threads of an emulated guest share it.
    assert!(own.parse::<u32>().is_ok_and(|cpu| cpu != 0), "{threads:?}");
    assert!(threads.iter().all(|(_, list)| list == own), "{threads:?}");
}
