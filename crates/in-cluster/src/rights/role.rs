//! The role of the manifest that has a right.

use roles::Environment;
use serde_json::Value;

use super::right::Right;

pub(super) const REMEDY: &str =
    "kubectl apply --server-side --force-conflicts --filename deploy/ferrovirt.yaml";

impl Right {
    /// Kind and name of the manifest's role with this right.
    fn role(&self, namespace: &str, account: &str) -> Option<String> {
        let all = roles::objects(Environment::Cluster { namespace }).ok()?;
        let of_account = |binding: &&Value| {
            let mut subjects = binding["subjects"].as_array().into_iter().flatten();
            subjects.any(|one| one["kind"] == "ServiceAccount" && one["name"] == account)
        };
        let bindings = all.iter().filter(of_account);
        bindings
            .map(|binding| &binding["roleRef"])
            .find(|role| {
                let is_it = |object: &&Value| {
                    object["kind"] == role["kind"] && object["metadata"]["name"] == role["name"]
                };
                let rules = all
                    .iter()
                    .filter(is_it)
                    .filter_map(|object| object["rules"].as_array());
                rules.flatten().any(|rule| self.is_in(rule))
            })
            .map(|role| {
                let text = |key: &str| role[key].as_str().unwrap_or_default().to_owned();
                format!("{} {}", text("kind"), text("name"))
            })
    }

    fn is_in(&self, rule: &Value) -> bool {
        let has = |list: &str, wanted: &str| {
            let mut all = rule[list].as_array().into_iter().flatten();
            all.any(|one| one == wanted || one == "*")
        };
        has("apiGroups", &self.group)
            && has("resources", &self.resource)
            && has("verbs", &self.verb)
    }

    /// The problem and its remedy, for an event.
    pub(super) fn note(&self, component: &str, namespace: &str, account: &str) -> String {
        match self.role(namespace, account) {
            Some(role) => format!(
                "{component} may not {self}: the permission was removed from its {role}, or the role's binding was \
                 deleted; restore them: {REMEDY}"
            ),
            None => format!(
                "{component} may not {self}, and no role of its version has that permission: apply the manifest of \
                 the same version: {REMEDY}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(verb: &str, group: &str, resource: &str) -> Right {
        let [verb, group, resource] = [verb, group, resource].map(str::to_owned);
        Right {
            verb,
            group,
            resource,
            ..Right::default()
        }
    }

    #[test]
    fn role_with_the_right_is_named_with_the_remedy() {
        for (account, right, expected) in [
            (
                "kubevirt-controller",
                right("create", "", "pods"),
                "may not create pods: the permission was removed from its ClusterRole kubevirt-controller",
            ),
            (
                "kubevirt-controller",
                right("patch", "kubevirt.io", "virtualmachineinstances/status"),
                "virtualmachineinstances/status of kubevirt.io: the permission was removed from its ClusterRole",
            ),
            (
                "kubevirt-controller",
                right("update", "coordination.k8s.io", "leases"),
                "removed from its Role kubevirt-controller",
            ),
            (
                "kubevirt-handler",
                right(
                    "create",
                    "certificates.k8s.io",
                    "certificatesigningrequests",
                ),
                "removed from its ClusterRole kubevirt-handler-installation",
            ),
            (
                "kubevirt-apiserver",
                right("get", "", "secrets"),
                "removed from its Role kubevirt-apiserver",
            ),
            (
                "kubevirt-handler",
                right("delete", "", "nodes"),
                "no role of its version has that permission",
            ),
        ] {
            let note = right.note("virt-x", "kubevirt", account);
            assert!(note.contains(expected), "{note}");
            assert!(note.contains("kubectl apply"), "{note}");
        }
    }

    #[test]
    fn every_component_has_the_right_that_is_checked_at_the_start() {
        for account in [
            installation::API_ACCOUNT,
            installation::CONTROLLER_ACCOUNT,
            installation::HANDLER_ACCOUNT,
        ] {
            let role = Right::of_every_component().role("kubevirt", account);
            assert_eq!(role, Some(format!("ClusterRole {account}")));
        }
    }
}
