//! Removes a pod's resources from the host.

use std::{fs, path::PathBuf, sync::Arc};

use pod_supervisor::cgroup;

use super::{super::plan::Remains, KILL_FAILED, blocking};
use crate::{Failure, cpus, node::Shared, storage, teardown, volumes};

/// Removes the pod's resources until only `goal` remains.
pub(crate) async fn tear_down(
    shared: Arc<Shared>,
    uid: String,
    dir: PathBuf,
    goal: Remains,
) -> Result<Remains, Failure> {
    shared.settings.network.delete(&uid).await?;
    shared.policies.forget(&uid);
    failpoints::after("embedded-node/pod/delete-network");
    let group = shared.cgroup(&uid);
    let lock = teardown::end_processes(&group, &dir)
        .await
        .map_err(|error| Failure::of(KILL_FAILED, "end the pod's processes", &error))?;
    failpoints::after("embedded-node/pod/end-processes");
    blocking(
        KILL_FAILED,
        "remove the pod's mounts, cgroup and files",
        move || {
            cgroup::remove(&group)?;
            failpoints::after("embedded-node/pod/remove-cgroup");
            volumes::mounts::unmount_all(&dir)?;
            failpoints::after("embedded-node/pod/unmount-volumes");
            storage::in_use::release(&dir)?;
            failpoints::after("embedded-node/pod/give-back-volumes");
            shared.devices.release(&uid, &dir)?;
            failpoints::after("embedded-node/pod/release-devices");
            if shared.cpus.release(&uid)? {
                failpoints::after("embedded-node/pod/release-cpus");
                shared.node_changed.send_replace(());
                cpus::keep_apart(&shared)?;
            }
            if goal == Remains::Nothing && dir.exists() {
                fs::remove_dir_all(&dir)?;
                failpoints::after("embedded-node/pod/remove-files");
            }
            drop(lock);
            Ok(goal)
        },
    )
    .await
}
