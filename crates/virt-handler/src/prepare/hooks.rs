//! The hook sidecars of the pod. They are read from the pod: the annotation of the VMI may have changed since.

use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::VirtualMachineInstance;
use launcher_channel::{HookSidecar, Hooks};
use model::paths;

/// What the launcher needs to call them; `None` for a pod without sidecars.
pub(super) fn of(vmi: &VirtualMachineInstance, pod: &Pod) -> Option<Hooks> {
    let containers = pod.spec.as_ref()?.init_containers.as_ref()?;
    let sidecars = containers.iter();
    let sidecars = sidecars.filter(|container| paths::is_hook_sidecar(&container.name));
    let sidecars: Vec<HookSidecar> = sidecars
        .map(|container| HookSidecar {
            name: container.name.clone(),
            directory: paths::hook_directory(&container.name),
        })
        .collect();
    if sidecars.is_empty() {
        return None;
    }
    let mut vmi = vmi.clone();
    vmi.metadata.managed_fields = None;
    // Serialization fails only for values that JSON cannot hold, which no object contains.
    let vmi = serde_json::to_string(&vmi).unwrap_or_default();
    Some(Hooks { sidecars, vmi })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn sidecars_of_the_pod_get_the_vmi() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "n", "managedFields": [{"manager": "kubectl"}]},
        }))
        .unwrap();
        let hooks_of = |init: &[&str]| {
            let init: Vec<Value> = init.iter().map(|name| json!({"name": name})).collect();
            let pod = json!({"spec": {"containers": [], "initContainers": init}});
            of(&vmi, &serde_json::from_value(pod).unwrap())
        };
        assert_eq!(hooks_of(&[]), None);
        assert_eq!(hooks_of(&["container-disk-binary", "hook-sidecar-x"]), None);
        let found = hooks_of(&["hook-sidecar-0", "volumeroot-init", "hook-sidecar-1"]).unwrap();
        let directories: Vec<&str> = found.sidecars.iter().map(|one| &*one.directory).collect();
        assert_eq!(
            directories,
            [
                "/var/run/kubevirt-hooks/hook-sidecar-0",
                "/var/run/kubevirt-hooks/hook-sidecar-1"
            ]
        );
        let given: Value = serde_json::from_str(&found.vmi).unwrap();
        assert_eq!(given["metadata"]["name"], "a");
        assert_eq!(given["metadata"].get("managedFields"), None);
    }
}
