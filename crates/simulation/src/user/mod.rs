//! Users: random requests at random times.

mod migrations;
mod policies;
mod pool;

use apimachinery::meta;
use serde_json::{Value, json};

use crate::cluster::{Author, Cluster, Deletion, Id, Kind, Patch, Propagation};
use crate::features::Features;
use crate::guests::{End, Guests};
use crate::processes::NAMESPACE;
use crate::random::Random;

pub(crate) const STRATEGIES: [&str; 5] = ["Always", "RerunOnFailure", "Manual", "Halted", "Once"];
const NAMES: [&str; 3] = ["a", "b", "c"];
const SET: &str = "s";
const USER: &str = "user";

pub(crate) struct User {
    pub(crate) cluster: Cluster,
    pub(crate) guests: Guests,
    pub(crate) random: Random,
    /// Created so far.
    pub(crate) migrations: u32,
    pub(crate) features: Features,
}

impl User {
    /// Does something random; returns a description.
    pub(crate) fn act(&mut self) -> String {
        let name = *self.random.pick(&NAMES).unwrap_or(&NAMES[0]);
        let vm = Id::new(Kind::Vm, NAMESPACE, name);
        if self.cluster.get(&vm).is_none() && self.random.chance(700) {
            return self.create_vm(name);
        }
        if self.features.policies && self.random.chance(80) {
            return self.change_policy();
        }
        if self.features.live && self.random.chance(120) {
            return self.change_processors(&vm);
        }
        if self.features.pool && self.random.chance(150) {
            return self.change_pool();
        }
        match self.random.below(23) {
            0 | 1 => self.change_strategy(&vm),
            2 | 3 => self.request(&vm, "start"),
            4 => self.request(&vm, "stop"),
            5 => self.request(&vm, "restart"),
            6 => self.change_template(&vm),
            7 => self.delete_vm(&vm),
            8 => self.delete(Kind::Vmi),
            9 => self.delete(Kind::Pod),
            10 | 11 => self.end_guest(),
            12..=15 => self.migrate(),
            16 => self.delete(Kind::Migration),
            17 => self.evict_pod(),
            18 => self.drain(),
            19 | 20 => self.kill_pod(),
            _ => self.change_set(),
        }
    }

    fn create_vm(&mut self, name: &str) -> String {
        let strategy = *self.random.pick(&STRATEGIES).unwrap_or(&"Always");
        let mut guest = movable_guest();
        if self.features.live {
            guest["domain"]["cpu"] =
                json!({"sockets": 1, "cores": 1, "threads": 1, "maxSockets": 4});
        }
        let vm = json!({
            "metadata": {"name": name},
            "spec": {"runStrategy": strategy, "template": {"spec": guest}},
        });
        let made = self
            .cluster
            .create(Kind::Vm, NAMESPACE, vm, Author::main(USER));
        format!("create {name} {strategy}: {}", made.is_ok())
    }

    fn patch(&self, id: &Id, body: Value, author: Author<'_>) -> bool {
        self.cluster.patch(id, &Patch::Merge(body), author).is_ok()
    }

    fn change_strategy(&mut self, vm: &Id) -> String {
        let strategy = *self.random.pick(&STRATEGIES).unwrap_or(&"Always");
        let body = json!({"spec": {"runStrategy": strategy}});
        let is_done = self.patch(vm, body, Author::main(USER));
        format!("{} becomes {strategy}: {is_done}", vm.name)
    }

    fn change_template(&mut self, vm: &Id) -> String {
        let size = format!("{}Mi", 128 << self.random.below(3));
        let memory = json!({"memory": {"guest": size}});
        let body = json!({"spec": {"template": {"spec": {"domain": memory}}}});
        let is_done = self.patch(vm, body, Author::main(USER));
        format!("{} gets {size}: {is_done}", vm.name)
    }

    /// A running guest follows, unless it would lose processors.
    fn change_processors(&mut self, vm: &Id) -> String {
        let sockets = 1 + self.random.below(4);
        let cpu = json!({"cpu": {"sockets": sockets}});
        let body = json!({"spec": {"template": {"spec": {"domain": cpu}}}});
        let is_done = self.patch(vm, body, Author::main(USER));
        format!("{} gets {sockets} sockets: {is_done}", vm.name)
    }

    /// The same as the subresources of virt-api.
    fn request(&mut self, vm: &Id, what: &str) -> String {
        let Some(object) = self.cluster.get(vm) else {
            return format!("{what} {}: no such VM", vm.name);
        };
        let vmi = self.cluster.get(&Id::new(Kind::Vmi, NAMESPACE, &vm.name));
        let strategy = object["spec"]["runStrategy"].as_str().unwrap_or_default();
        let phase = vmi.as_ref().and_then(|vmi| vmi["status"]["phase"].as_str());
        let is_over = matches!(phase, Some("Succeeded" | "Failed"));
        let stop = json!({"action": "Stop", "uid": vmi.as_deref().map(meta::uid)});
        let start = json!({"action": "Start"});
        let requests = match (what, strategy, vmi.is_some()) {
            ("start", "Halted", _) => {
                let body = json!({"spec": {"runStrategy": "Always"}});
                return format!(
                    "start {}: {}",
                    vm.name,
                    self.patch(vm, body, Author::main(USER))
                );
            }
            ("stop", "Always" | "Once", _) => {
                let body = json!({"spec": {"runStrategy": "Halted"}});
                return format!(
                    "stop {}: {}",
                    vm.name,
                    self.patch(vm, body, Author::main(USER))
                );
            }
            ("start", "RerunOnFailure" | "Manual", false) => vec![start],
            ("start", "Manual", true) if is_over => vec![stop, start],
            ("start", "RerunOnFailure", true) if phase == Some("Succeeded") => vec![stop, start],
            ("stop", "RerunOnFailure" | "Manual", true) if !is_over => vec![stop],
            ("restart", "Always" | "RerunOnFailure" | "Manual", true) => vec![stop, start],
            _ => return format!("{what} {}: refused", vm.name),
        };
        let waiting = object["status"]["stateChangeRequests"].as_array();
        if waiting.is_some_and(|all| !all.is_empty()) {
            return format!("{what} {}: a request is pending", vm.name);
        }
        let body = json!({"status": {"stateChangeRequests": requests, "startFailure": null}});
        let is_done = self.patch(vm, body, Author::status(USER));
        format!("{what} {}: {is_done}", vm.name)
    }

    fn delete_vm(&mut self, vm: &Id) -> String {
        let policies = [
            Propagation::Background,
            Propagation::Background,
            Propagation::Foreground,
            Propagation::Orphan,
        ];
        let propagation = *self.random.pick(&policies).unwrap_or(&policies[0]);
        let deletion = Deletion {
            propagation,
            ..Deletion::default()
        };
        let is_done = self.cluster.delete(vm, &deletion).is_ok();
        format!("delete {} {propagation:?}: {is_done}", vm.name)
    }

    fn delete(&mut self, kind: Kind) -> String {
        let all = self.cluster.list(kind);
        let Some(object) = self.random.pick(&all) else {
            return "nothing to delete".to_owned();
        };
        let id = Id::new(kind, NAMESPACE, meta::name(object));
        let is_done = self.cluster.delete(&id, &Deletion::default()).is_ok();
        format!("delete {kind:?} {}: {is_done}", id.name)
    }

    fn end_guest(&mut self) -> String {
        let all = self.guests.running();
        let end = if self.random.chance(500) {
            End::Shutdown
        } else {
            End::Crash
        };
        let Some((pod, _)) = self.random.pick(&all) else {
            return "no guest to end".to_owned();
        };
        self.guests.end(pod, end);
        self.touch(pod);
        format!("guest of {pod} ends by {end:?}")
    }

    /// A process that dies, such as by a lack of memory.
    fn kill_pod(&mut self) -> String {
        let all = self.guests.pods();
        let Some(pod) = self.random.pick(&all) else {
            return "no pod to kill".to_owned();
        };
        self.guests.kill(pod);
        format!("all processes of {pod} end")
    }

    /// In reality the launcher notifies virt-handler; here a change of the pod wakes the node.
    fn touch(&self, pod_uid: &str) {
        for pod in self.cluster.list(Kind::Pod) {
            if meta::uid(&pod) == pod_uid {
                let id = Id::new(Kind::Pod, NAMESPACE, meta::name(&pod));
                let beats = pod["metadata"]["annotations"]["ended"]
                    .as_str()
                    .map_or(0, str::len);
                let body = json!({"metadata": {"annotations": {"ended": "x".repeat(beats + 1)}}});
                let _touched = self.patch(&id, body, Author::main("launcher"));
            }
        }
    }

    fn change_set(&mut self) -> String {
        let id = Id::new(Kind::ReplicaSet, NAMESPACE, SET);
        let replicas = self.random.below(4);
        if self.cluster.get(&id).is_none() {
            let set = json!({
                "metadata": {"name": SET},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": SET}},
                    "template": {"metadata": {"labels": {"app": SET}}, "spec": movable_guest()},
                },
            });
            let made = self
                .cluster
                .create(Kind::ReplicaSet, NAMESPACE, set, Author::main(USER));
            return format!("create set of {replicas}: {}", made.is_ok());
        }
        let body = match self.random.below(8) {
            0 => {
                let is_done = self.cluster.delete(&id, &Deletion::default()).is_ok();
                return format!("delete set: {is_done}");
            }
            1 => json!({"spec": {"paused": true}}),
            2 => json!({"spec": {"paused": false}}),
            _ => json!({"spec": {"replicas": replicas}}),
        };
        let text = format!("set: {body}");
        format!("{text}: {}", self.patch(&id, body, Author::main(USER)))
    }

    /// Resumes the replica set and the pool, and has all nodes take pods, so that the cluster can converge.
    pub(crate) fn settle(&mut self) {
        self.uncordon_all();
        let id = Id::new(Kind::ReplicaSet, NAMESPACE, SET);
        let _gone = self.patch(&id, json!({"spec": {"paused": false}}), Author::main(USER));
        self.resume_pool();
    }
}

/// A guest that leaves its node when its pod is evicted.
fn movable_guest() -> Value {
    let mut spec = guest();
    spec["evictionStrategy"] = "LiveMigrate".into();
    spec
}

pub(crate) fn guest() -> Value {
    json!({
        "terminationGracePeriodSeconds": 5,
        "domain": {
            "memory": {"guest": "128Mi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "guest:1"}}],
    })
}
