//! Users who move guests: by a migration, by an eviction of a pod, or by the drain of a node.

use apimachinery::meta;
use kubevirt_api::labels;
use serde_json::{Value, json};

use super::{USER, User};
use crate::cluster::{Author, Deletion, Id, Kind};
use crate::processes::NAMESPACE;

impl User {
    /// As virt-api admits it; in some cases it has not seen the other migration yet.
    pub(super) fn migrate(&mut self) -> String {
        let all = self.cluster.list(Kind::Vmi);
        let Some(vmi) = self.random.pick(&all) else {
            return "nothing to migrate".to_owned();
        };
        let vmi = meta::name(vmi);
        let is_over = |object: &Value| {
            matches!(
                object["status"]["phase"].as_str(),
                Some("Succeeded" | "Failed")
            )
        };
        let mut migrations = self.cluster.list(Kind::Migration).into_iter();
        let is_moving = migrations.any(|one| one["spec"]["vmiName"] == vmi && !is_over(&one));
        let is_seen = self.random.chance(900);
        if all.iter().any(|one| meta::name(one) == vmi && is_over(one)) || is_moving && is_seen {
            return format!("migrate {vmi}: refused");
        }
        self.migrations += 1;
        let name = format!("m{}", self.migrations);
        let migration = json!({
            "metadata": {"name": name, "labels": {labels::MIGRATION_VMI_NAME: vmi}},
            "spec": {"vmiName": vmi},
        });
        let author = Author::main(USER);
        let made = self
            .cluster
            .create(Kind::Migration, NAMESPACE, migration, author);
        format!("migrate {vmi} by {name}: {}", made.is_ok())
    }

    /// Evicts any pod. The answer of virt-api is that of its webhook for guests that can leave their node.
    pub(super) fn evict_pod(&mut self) -> String {
        let all = self.cluster.list(Kind::Pod);
        match self.random.pick(&all) {
            Some(pod) => self.evict(pod),
            None => "nothing to evict".to_owned(),
        }
    }

    fn evict(&self, pod: &Value) -> String {
        let name = meta::name(pod);
        let is_over = matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        );
        let owner = meta::owner_references(pod).next();
        let vmi = owner.map(|owner| Id::new(Kind::Vmi, NAMESPACE, owner.name));
        let vmi = vmi.filter(|_| !is_over);
        let Some((id, vmi)) = vmi.and_then(|id| Some((id.clone(), self.cluster.get(&id)?))) else {
            let id = Id::new(Kind::Pod, NAMESPACE, name);
            let is_done = self.cluster.delete(&id, &Deletion::default()).is_ok();
            return format!("evict {name}: deleted: {is_done}");
        };
        let conditions = vmi["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let can_leave = conditions.any(|one| {
            let is_true = one["type"] == "LiveMigratable" && one["status"] == "True";
            is_true && one["reason"] != "OnlyWithinNode"
        });
        let node = &vmi["status"]["nodeName"];
        let is_marked = vmi["status"]["evacuationNodeName"].is_string();
        if !can_leave || is_marked || pod["spec"]["nodeName"] != *node {
            return format!("evict {name}: later");
        }
        let body = json!({"status": {"evacuationNodeName": node}});
        let is_done = self.patch(&id, body, Author::main(USER));
        format!("evict {name}: {} leaves {node}: {is_done}", id.name)
    }

    /// Cordons a node and evicts its pods once, or lets it have pods again.
    pub(super) fn drain(&mut self) -> String {
        let nodes = self.cluster.list(Kind::Node);
        let Some(node) = self.random.pick(&nodes) else {
            return "nothing to drain".to_owned();
        };
        let name = meta::name(node);
        if node["spec"]["unschedulable"] == true {
            return format!("uncordon {name}: {}", self.uncordon(name));
        }
        let mut text = format!("drain {name}: {}", self.cordon(name));
        for pod in self.cluster.list(Kind::Pod) {
            if pod["spec"]["nodeName"] == name && !meta::is_deleting(&pod) {
                text = format!("{text}; {}", self.evict(&pod));
            }
        }
        text
    }

    fn cordon(&self, node: &str) -> bool {
        let body = json!({"spec": {"unschedulable": true}});
        self.patch(&Id::new(Kind::Node, "", node), body, Author::main(USER))
    }

    fn uncordon(&self, node: &str) -> bool {
        let body = json!({"spec": {"unschedulable": null}});
        self.patch(&Id::new(Kind::Node, "", node), body, Author::main(USER))
    }

    pub(super) fn uncordon_all(&self) {
        for node in self.cluster.list(Kind::Node) {
            let _done = self.uncordon(meta::name(&node));
        }
    }
}
