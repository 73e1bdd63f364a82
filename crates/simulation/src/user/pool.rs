//! Users of a pool: they scale, pause and delete it, and change its template.

use serde_json::json;

use super::{USER, User, movable_guest};
use crate::cluster::{Author, Deletion, Id, Kind};
use crate::processes::NAMESPACE;

const POOL: &str = "p";

fn pool() -> Option<Id> {
    let kind = Kind::named("VirtualMachinePool")?;
    Some(Id::new(kind, NAMESPACE, POOL))
}

impl User {
    pub(super) fn change_pool(&mut self) -> String {
        let Some(id) = pool() else {
            return "there are no pools".to_owned();
        };
        let replicas = self.random.below(4);
        if self.cluster.get(&id).is_none() {
            let labels = json!({"labels": {"app": POOL}});
            let pool = json!({
                "metadata": {"name": POOL},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": POOL}},
                    "virtualMachineTemplate": {
                        "metadata": labels,
                        "spec": {
                            "runStrategy": "Always",
                            "template": {"metadata": labels, "spec": movable_guest()},
                        },
                    },
                },
            });
            let made = self
                .cluster
                .create(id.kind, NAMESPACE, pool, Author::main(USER));
            return format!("create pool of {replicas}: {}", made.is_ok());
        }
        let body = match self.random.below(10) {
            0 => {
                let is_done = self.cluster.delete(&id, &Deletion::default()).is_ok();
                return format!("delete pool: {is_done}");
            }
            1 => json!({"spec": {"paused": true}}),
            2 => json!({"spec": {"paused": false}}),
            3 | 4 => {
                let size = format!("{}Mi", 128 << self.random.below(3));
                let memory = json!({"domain": {"memory": {"guest": size}}});
                json!({"spec": {"virtualMachineTemplate": {"spec": {"template": {"spec": memory}}}}})
            }
            _ => json!({"spec": {"replicas": replicas}}),
        };
        let text = format!("pool: {body}");
        format!("{text}: {}", self.patch(&id, body, Author::main(USER)))
    }

    pub(super) fn resume_pool(&self) {
        if let Some(id) = pool() {
            let _gone = self.patch(&id, json!({"spec": {"paused": false}}), Author::main(USER));
        }
    }
}
