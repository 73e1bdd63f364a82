//! A database or a disk that cannot be used: `up` refuses with the cause and the remedy, and guests keep
//! running.

use std::{fs, os::unix::fs::FileExt as _, path::Path, sync::Arc};

use e2e::{Host, keeps_counting, processes_of_pod, program, run, start_counting};
use tokio::process::Command;

use crate::TestNamespace;

/// Where the header of `SQLite` has the version of the layout.
const LAYOUT: u64 = 60;

/// `ferrovirt up` must fail, and its last message must have all these parts.
async fn refuses(host: &Host, case: &str, parts: &[&str]) {
    let failure = host.start(&[]).await.failure();
    is_explained(&failure, case, parts);
}

fn is_explained(failure: &str, case: &str, parts: &[&str]) {
    // With `--detach`, the last lines of the log stand before it.
    let explanation = failure.rsplit("error: ").next().unwrap_or_default();
    for part in parts {
        assert!(explanation.contains(part), "{case}: {failure}");
    }
}

/// `ferrovirt up` where the file system of the state directory is read-only, as the kernel makes it when
/// its disk fails.
async fn up_on_read_only_disk(host: &Host) -> String {
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.arg(host.state_dir()).arg(program("ferrovirt"));
    let outcome = run(command.args(host.up_arguments(&[])), b"").await;
    outcome.failure()
}

/// Everything is in the file itself.
fn without_log(database: &Path) {
    for end in ["-wal", "-shm"] {
        let mut file = database.as_os_str().to_owned();
        file.push(end);
        fs::remove_file(file).ok();
    }
}

#[tokio::test]
async fn guest_keeps_running_while_the_database_cannot_be_used() {
    let host = Arc::new(Host::up().await);
    let test = TestNamespace::on(Arc::clone(&host)).await;
    let vmi = start_counting(&test, "count").await;
    let pods = test.pod_list().await;
    let processes = processes_of_pod(&pods[0].1);
    let copy = host.base().join("copy.db");
    let file = copy.to_string_lossy().into_owned();
    host.ferrovirt("backup", &[&file], b"").await.success();
    host.kill();

    let failure = up_on_read_only_disk(&host).await;
    is_explained(&failure, "read-only", &["read-only", "guests keep running"]);

    let database = host.state_dir().join("api.db");
    let whole = fs::read(&copy).expect("read the copy");
    let overwritten = |from: usize| {
        let mut bytes = whole.clone();
        let to = bytes.len().min(from + 40_960);
        bytes[from..to].fill(0xA5);
        bytes
    };
    let damaged = ["damaged", "guests keep running", "ferrovirt restore"];
    for (case, bytes) in [
        ("unreadable header", overwritten(0)),
        ("overwritten pages", overwritten(8192)),
        ("truncated", whole[..whole.len() / 2].to_vec()),
    ] {
        without_log(&database);
        fs::write(&database, bytes).expect("damage the database");
        refuses(&host, case, &damaged).await;
    }
    fs::write(&database, &whole).expect("put the database back");
    let newer = fs::File::options().write(true).open(&database);
    let newer = newer.expect("open the database");
    newer
        .write_all_at(&99_u32.to_be_bytes(), LAYOUT)
        .expect("change the layout");
    refuses(&host, "newer", &["version 99", "run the newer version"]).await;
    fs::write(&database, b"").expect("empty the database");
    refuses(&host, "empty", &["ferrovirt restore"]).await;
    assert_eq!(processes_of_pod(&pods[0].1), processes);

    host.ferrovirt("restore", &[&file], b"").await.success();
    host.start(&[]).await.success();
    let now = test.wait_vmi_phase("count", "Running").await;
    assert_eq!(now["metadata"]["uid"], vmi["metadata"]["uid"]);
    assert_eq!(processes_of_pod(&pods[0].1), processes);
    keeps_counting(&test, &vmi).await;
}
