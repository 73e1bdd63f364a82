//! Whether another pod of a guest can have the firmware variables that the guest keeps. A kept TPM moves to no pod.

use k8s_openapi::api::core::v1::Pod;
use launcher_pod::{CONTAINER, SHARED_PATHS, STATE_VOLUME};
use model::paths;

use crate::volumes::Claims;

const READ_WRITE_MANY: &str = "ReadWriteMany";

/// Which pods can have the kept firmware variables of a guest at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StateSharing {
    /// libvirt of this pod takes them for its own: an earlier version created the pod.
    #[default]
    OnePod,
    /// They are on a claim of one node.
    PodsOfNode,
    AllPods,
}

impl StateSharing {
    pub(crate) fn of(pod: &Pod) -> Self {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut compute = containers.filter(|container| container.name == CONTAINER);
        let shares = compute.any(|container| {
            let mut variables = container.env.iter().flatten();
            let shared = variables.find(|one| one.name == SHARED_PATHS);
            let value = shared.and_then(|one| one.value.as_deref());
            let mut all = value.into_iter().flat_map(|value| value.split(':'));
            all.any(|path| path == paths::NVRAM)
        });
        let claims = Claims::of(pod);
        let info = claims.info(STATE_VOLUME);
        let mut modes = info.into_iter().flat_map(|info| &info.access_modes);
        match (shares, modes.any(|mode| mode == READ_WRITE_MANY)) {
            (false, _) => Self::OnePod,
            (true, false) => Self::PodsOfNode,
            (true, true) => Self::AllPods,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pod_says_who_shares_the_state_of_its_guest() {
        let disks = "/var/run/kubevirt-private/vmi-disks/data";
        let check = |env: Value, mode: &str, expected: StateSharing| {
            let claims = json!({"vm-state": {"accessModes": [mode]}}).to_string();
            let pod = json!({
                "metadata": {"annotations": {"ferrovirt.io/claims": claims}},
                "spec": {"containers": [{"name": "compute", "env": env}]},
            });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(StateSharing::of(&pod), expected, "{env} {mode}");
        };
        let shared = |paths: String| json!([{"name": "SHARED_FILESYSTEM_PATHS", "value": paths}]);
        check(json!([]), "ReadWriteMany", StateSharing::OnePod);
        for others in [disks, paths::SWTPM] {
            check(
                shared(others.to_owned()),
                "ReadWriteMany",
                StateSharing::OnePod,
            );
        }
        let both = || shared(format!("{}:{disks}", paths::NVRAM));
        check(both(), "ReadWriteMany", StateSharing::AllPods);
        check(both(), "ReadWriteOnce", StateSharing::PodsOfNode);
    }
}
