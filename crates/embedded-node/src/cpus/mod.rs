//! CPUs of their own for containers, as the kubelet's static CPU manager gives them.
//!
//! A container of a guaranteed pod that requests a whole number of CPUs runs on CPUs that no other container
//! uses. All other containers share the rest, with the CPUs that are reserved for the host. [`choice`] chooses.
//!
//! **Invariants**: no CPU is given twice: it is in the node's file before a container starts on it, and all
//! other containers leave it before. The file is where a kubelet has it, in its format: virt-handler reads
//! from it whether this node gives containers CPUs of their own.

mod choice;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use host_cpus::Cpu;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubevirt_api::quantity::Amount;
use parking_lot::Mutex;
use pod_supervisor::cgroup;
use reasons::Reason;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    Failure, NodeError,
    node::{Shared, pod_dirs},
    repeated::Failures,
    resources::{self, Side, amount},
};

use choice::choose;

/// Below a node's root, which stands for a kubelet's directory.
const STATE_FILE: &str = "cpu_manager_state";
/// As with kubelets: a container that its supervisor has restarted is back on the CPUs of its first start.
const KEEP_APART_EVERY: Duration = Duration::from_secs(10);
const CONTAINER_ERROR: Reason = Reason::CreateContainerError;

/// Container to its own CPUs, as a list of the kernel; by the UID of the pod.
type Entries = BTreeMap<String, BTreeMap<String, String>>;

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    policy_name: Policy,
    default_cpu_set: String,
    #[serde(default)]
    entries: Entries,
}

/// The kubelet's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Policy {
    /// All containers share all CPUs.
    None,
    Static,
}

/// The CPUs of this node.
#[derive(Debug)]
pub(crate) struct Cpus {
    file: PathBuf,
    policy: Policy,
    all: Vec<Cpu>,
    reserved: BTreeSet<u32>,
    entries: Mutex<Entries>,
}

impl Cpus {
    /// Loads the CPUs of pods that still have a directory. `reserved` CPUs are given to no container; without
    /// it, all containers share all CPUs.
    pub(crate) fn open(root: &Path, reserved: Option<&[u32]>) -> Result<Self, NodeError> {
        let file = root.join(STATE_FILE);
        let directory = |source| NodeError::Directory {
            dir: root.to_owned(),
            source,
        };
        let own = own_cpus().map_err(directory)?;
        let all = host_cpus::cpus(&own, Path::new(host_cpus::SYSTEM)).map_err(directory)?;
        let reserved: BTreeSet<u32> = reserved.into_iter().flatten().copied().collect();
        let unknown = |id: &&u32| !all.iter().any(|cpu| cpu.id == **id);
        if let Some(cpu) = reserved.iter().find(unknown) {
            return Err(NodeError::ReservedCpu {
                cpu: *cpu,
                all: own,
            });
        }
        if !all.is_empty() && reserved.len() == all.len() {
            return Err(NodeError::AllCpusReserved { all: own });
        }
        let mut entries = read(&file).map_err(|source| NodeError::CpuState {
            file: file.clone(),
            source,
        })?;
        let pods = pod_dirs(root);
        entries.retain(|uid, _| pods.iter().any(|(known, _)| known == uid));
        let cpus = Self {
            file,
            policy: if reserved.is_empty() {
                Policy::None
            } else {
                Policy::Static
            },
            all,
            reserved,
            entries: Mutex::new(entries),
        };
        cpus.write(&cpus.entries.lock()).map_err(directory)?;
        Ok(cpus)
    }

    /// The time of so many CPUs is there: a quota of this process's group may allow less than all of them.
    pub(crate) fn capacity(&self) -> usize {
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        allowed.min(self.all.len())
    }

    /// The CPUs that the requests of pods may have.
    pub(crate) fn allocatable(&self) -> usize {
        self.capacity().saturating_sub(self.reserved.len())
    }

    /// A scheduler's message if too few CPUs for the pod are free.
    pub(crate) fn obstacle(&self, pod: &Pod) -> Option<String> {
        if self.policy == Policy::None {
            return None;
        }
        let spec = pod.spec.as_ref()?;
        let wanted: usize = spec
            .containers
            .iter()
            .filter_map(|container| wanted(pod, container))
            .sum();
        let free = self.free(&self.entries.lock()).len();
        (free < wanted).then(|| {
            format!(
                "0/1 nodes are available: 1 Insufficient cpu: {wanted} must be free of other pods with CPUs of \
                 their own, {free} are"
            )
        })
    }

    /// The CPUs on which a container starts: its own, or those that are shared. Repeated calls return the
    /// same own ones. `None`: all CPUs.
    pub(crate) fn of_container(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<Option<String>, Failure> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut entries = self.entries.lock();
        if let Some(held) = entries.get(uid).and_then(|own| own.get(&container.name)) {
            return Ok(Some(held.clone()));
        }
        let wanted = match self.policy {
            Policy::None => None,
            Policy::Static => wanted(pod, container),
        };
        let Some(count) = wanted else {
            return Ok((!entries.is_empty()).then(|| self.shared(&entries)));
        };
        let free = self.free(&entries);
        let Some(chosen) = choose(&free, count) else {
            let message = format!(
                "the container asks for {count} CPUs of its own, and {} are free",
                free.len()
            );
            return Err(Failure::new(CONTAINER_ERROR, message));
        };
        let chosen = host_cpus::list(chosen);
        let mut changed = entries.clone();
        changed
            .entry(uid.to_owned())
            .or_default()
            .insert(container.name.clone(), chosen.clone());
        // Under the lock, so that the file is written in the order of the changes.
        self.write(&changed)
            .map_err(|error| Failure::of(CONTAINER_ERROR, "record the container's CPUs", &error))?;
        *entries = changed;
        Ok(Some(chosen))
    }

    /// The pod has ended: its CPUs are free. Returns whether it had CPUs of its own.
    pub(crate) fn release(&self, uid: &str) -> io::Result<bool> {
        let mut entries = self.entries.lock();
        if !entries.contains_key(uid) {
            return Ok(false);
        }
        let mut changed = entries.clone();
        changed.remove(uid);
        self.write(&changed)?;
        *entries = changed;
        Ok(true)
    }

    /// Moves the running containers of a pod to the CPUs that are theirs now.
    fn move_containers(&self, uid: &str, group: &str) -> io::Result<()> {
        let entries = self.entries.lock();
        let shared = self.shared(&entries);
        let own = entries.get(uid);
        cgroup::set_cpus(group, |child| {
            // The group of a container has the number of its start behind the name.
            let name = child.rsplit_once('-').map_or(child, |(name, _)| name);
            own.and_then(|own| own.get(name)).unwrap_or(&shared)
        })
    }

    fn taken(entries: &Entries) -> BTreeSet<u32> {
        let lists = entries.values().flat_map(BTreeMap::values);
        lists
            .flat_map(|list| host_cpus::parse_list(list).unwrap_or_default())
            .collect()
    }

    fn free(&self, entries: &Entries) -> Vec<Cpu> {
        let taken = Self::taken(entries);
        let is_free = |cpu: &&Cpu| !taken.contains(&cpu.id) && !self.reserved.contains(&cpu.id);
        self.all.iter().filter(is_free).copied().collect()
    }

    /// The CPUs of all containers without their own.
    fn shared(&self, entries: &Entries) -> String {
        let taken = Self::taken(entries);
        let ids = self.all.iter().map(|cpu| cpu.id);
        host_cpus::list(ids.filter(|id| !taken.contains(id)))
    }

    fn write(&self, entries: &Entries) -> io::Result<()> {
        let state = State {
            policy_name: self.policy,
            default_cpu_set: self.shared(entries),
            entries: entries.clone(),
        };
        let bytes = serde_json::to_vec(&state)?;
        durable_file::replace(&self.file, &bytes, durable_file::PRIVATE)
    }
}

/// Moves all running containers to the CPUs that are theirs now.
pub(crate) fn keep_apart(shared: &Shared) -> io::Result<()> {
    let mut first_error = None;
    for (uid, _) in pod_dirs(&shared.settings.root) {
        if let Err(error) = shared.cpus.move_containers(&uid, &shared.cgroup(&uid)) {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Keeps containers apart while any has CPUs of its own, and once more afterwards.
pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(KEEP_APART_EVERY);
    let mut were_apart = true;
    let mut failures = Failures::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let are_apart = !shared.cpus.entries.lock().is_empty();
        if !are_apart && !were_apart {
            continue;
        }
        were_apart = are_apart;
        let of_task = Arc::clone(&shared);
        let moved = tokio::task::spawn_blocking(move || keep_apart(&of_task)).await;
        match moved.map_err(io::Error::other).flatten() {
            Ok(()) => failures.succeeded(),
            Err(error) => {
                if failures.failed() {
                    tracing::warn!(%error, "containers still cannot be moved to their CPUs");
                } else {
                    tracing::debug!(%error, "containers cannot be moved to their CPUs");
                }
            }
        }
    }
}

/// The number of CPUs that a container gets for itself: those of guaranteed pods that request whole ones.
fn wanted(pod: &Pod, container: &Container) -> Option<usize> {
    let spec = pod.spec.as_ref()?;
    // Init containers and sidecars share: they do not need them for as long as the pod lives.
    let is_main = spec
        .containers
        .iter()
        .any(|main| main.name == container.name);
    if !is_main || resources::qos_class(pod) != "Guaranteed" {
        return None;
    }
    let millis = amount(container, Side::Limits, "cpu")
        .ok()
        .flatten()
        .map(Amount::millis)?;
    let whole = millis > 0 && millis % 1000 == 0;
    whole.then(|| usize::try_from(millis / 1000).unwrap_or(usize::MAX))
}

fn read(file: &Path) -> io::Result<Entries> {
    match fs::read(file) {
        Ok(bytes) => Ok(serde_json::from_slice::<State>(&bytes)?.entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Entries::new()),
        Err(error) => Err(error),
    }
}

/// The CPUs that this process may use, and so all containers.
fn own_cpus() -> io::Result<String> {
    let set = rustix::thread::sched_getaffinity(None)?;
    let all = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    Ok(host_cpus::list(
        all.filter_map(|cpu| u32::try_from(cpu).ok()),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cpus(dir: &Path, ids: &[u32]) -> Cpus {
        let cpu = |id: &u32| Cpu {
            id: *id,
            core: *id,
            cell: 0,
        };
        Cpus {
            file: dir.join(STATE_FILE),
            policy: Policy::Static,
            all: ids.iter().map(cpu).collect(),
            reserved: [0].into(),
            entries: Mutex::default(),
        }
    }

    fn pod(uid: &str, cpu: &str) -> Pod {
        let limits = json!({"cpu": cpu, "memory": "1Gi"});
        serde_json::from_value(json!({
            "metadata": {"uid": uid},
            "spec": {
                "containers": [{"name": "main", "resources": {"limits": limits}}],
                "initContainers": [{"name": "first", "resources": {"limits": limits}}],
            },
        }))
        .unwrap()
    }

    fn of(cpus: &Cpus, pod: &Pod) -> Result<Option<String>, Failure> {
        cpus.of_container(pod, &pod.spec.as_ref().unwrap().containers[0])
    }

    #[test]
    fn cpus_are_given_once_and_the_rest_is_shared() {
        let dir = tempfile::tempdir().unwrap();
        let all = cpus(dir.path(), &[0, 1, 2, 3]);
        let (two, half) = (pod("two", "2"), pod("half", "500m"));
        assert_eq!(of(&all, &half).unwrap(), None);
        for _ in 0..2 {
            assert_eq!(of(&all, &two).unwrap().unwrap(), "1-2");
        }
        assert_eq!(of(&all, &half).unwrap().unwrap(), "0,3");
        assert_eq!(of(&all, &pod("one", "1")).unwrap().unwrap(), "3");
        let more = pod("more", "1");
        let message = of(&all, &more).unwrap_err().message;
        assert!(
            message.contains("1 CPUs of its own, and 0 are free"),
            "{message}"
        );
        assert!(all.obstacle(&more).unwrap().contains("Insufficient cpu"));
        assert_eq!(all.obstacle(&half), None);
        let init = &two.spec.as_ref().unwrap().init_containers.as_ref().unwrap()[0];
        assert_eq!(all.of_container(&two, init).unwrap().unwrap(), "0");

        let state: Value = serde_json::from_slice(&fs::read(&all.file).unwrap()).unwrap();
        let entries = json!({"two": {"main": "1-2"}, "one": {"main": "3"}});
        assert_eq!(
            state,
            json!({"policyName": "static", "defaultCpuSet": "0", "entries": entries})
        );
        assert_eq!(read(&all.file).unwrap(), *all.entries.lock());
        assert!(all.release("two").unwrap());
        assert!(!all.release("two").unwrap());
        assert_eq!(of(&all, &more).unwrap().unwrap(), "1");
    }

    #[test]
    fn only_whole_cpus_of_guaranteed_pods_are_given() {
        let guaranteed = |cpu: &str| {
            let pod = pod("p", cpu);
            wanted(&pod, &pod.spec.as_ref().unwrap().containers[0])
        };
        assert_eq!(guaranteed("3"), Some(3));
        assert_eq!(guaranteed("2000m"), Some(2));
        assert_eq!(guaranteed("1500m"), None);
        assert_eq!(guaranteed("0"), None);
        let mut burstable = pod("p", "1");
        let spec = burstable.spec.as_mut().unwrap();
        let resources = spec.containers[0].resources.as_mut().unwrap();
        resources.requests = serde_json::from_value(json!({"cpu": "500m"})).unwrap();
        assert_eq!(
            wanted(&burstable, &burstable.spec.as_ref().unwrap().containers[0]),
            None
        );
    }

    #[test]
    fn bad_file_and_bad_reservation_are_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |reserved: Option<&[u32]>| {
            let error = Cpus::open(dir.path(), reserved).unwrap_err();
            error.to_string()
        };
        Cpus::open(dir.path(), None).unwrap();
        let message = refused(Some(&[4095]));
        assert!(
            message.starts_with("reserve CPU 4095: this host has "),
            "{message}"
        );
        let all = host_cpus::parse_list(&own_cpus().unwrap()).unwrap();
        let message = refused(Some(&all));
        assert!(message.contains("leave at least one"), "{message}");
        for text in ["", "{", r#"{"policyName": "tea", "defaultCpuSet": "0"}"#] {
            fs::write(dir.path().join(STATE_FILE), text).unwrap();
            let message = refused(None);
            assert!(message.contains("then delete it"), "{text}: {message}");
        }
    }
}
