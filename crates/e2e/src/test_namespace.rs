//! A test's own namespace, in an environment shared with the other tests of its process.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    Console, DEADLINE, Environment, Outcome, Terminal, VmManifest, eventually, run, times,
    wait_for, waiting::INTERVAL,
};

/// Emulated guests keep a core busy while they boot, so few tests run at once.
const AT_ONCE: u32 = 3;
static SLOTS: Semaphore = Semaphore::const_new(AT_ONCE as usize);

/// A namespace of a test, and helpers that act in it.
pub struct TestNamespace<H: Environment> {
    pub environment: Arc<H>,
    pub namespace: String,
    pub client: Client,
    began: Instant,
    /// A second namespace of a test has none.
    _slot: Option<SemaphorePermit<'static>>,
}

impl<H: Environment> std::fmt::Debug for TestNamespace<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestNamespace")
            .field("environment", &self.environment)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl<H: Environment> TestNamespace<H> {
    /// Creates a namespace in the shared environment.
    pub async fn create() -> Self {
        let slot = SLOTS.acquire().await.expect("it is never closed");
        Self::create_in(H::shared().await, Some(slot)).await
    }

    /// Creates a namespace in the given environment.
    pub async fn on(environment: Arc<H>) -> Self {
        let slot = SLOTS.acquire().await.expect("it is never closed");
        Self::create_in(environment, Some(slot)).await
    }

    /// Creates a second namespace for a test.
    pub async fn beside(&self) -> Self {
        Self::create_in(Arc::clone(&self.environment), None).await
    }

    /// Creates a namespace for a test that breaks its environment: no other test runs beside it.
    pub async fn create_exclusive() -> Self {
        let slots = SLOTS.acquire_many(AT_ONCE).await;
        let slot = slots.expect("it is never closed");
        Self::create_in(H::disposable().await, Some(slot)).await
    }

    async fn create_in(environment: Arc<H>, slot: Option<SemaphorePermit<'static>>) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(1);
        let began = Instant::now();
        let client = environment.client().await;
        // A cluster may still be deleting the namespaces of an earlier run.
        let namespace = format!(
            "e2e-{}-{}",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        );
        let mut object = Namespace::default();
        object.metadata.name = Some(namespace.clone());
        Api::all(client.clone())
            .create(&PostParams::default(), &object)
            .await
            .expect("make a namespace");
        Self {
            environment,
            namespace,
            client,
            began,
            _slot: slot,
        }
    }

    pub async fn kubectl(&self, arguments: &[&str]) -> Outcome {
        self.kubectl_with(arguments, b"").await
    }

    pub async fn kubectl_with(&self, arguments: &[&str], input: &[u8]) -> Outcome {
        let mut all = vec!["--namespace", &self.namespace];
        all.extend(arguments);
        self.environment.kubectl(&all, input).await
    }

    pub async fn virtctl(&self, arguments: &[&str]) -> Outcome {
        let mut all = vec!["--namespace", &self.namespace];
        all.extend(arguments);
        run(self.environment.virtctl().args(all), b"").await
    }

    /// Starts `virtctl` with pipes.
    pub fn virtctl_terminal(&self, arguments: &[&str]) -> Terminal {
        let mut command = self.environment.virtctl();
        command
            .args(["--namespace", &self.namespace])
            .args(arguments);
        Terminal::start(&mut command)
    }

    /// `kubectl apply`, which must succeed.
    pub async fn apply(&self, vm: &VmManifest) {
        self.try_apply(vm).await.success();
    }

    /// Applies a VM that this feature gate allows: the webhook observes the gate with a delay.
    pub async fn apply_gated(&self, vm: &VmManifest, gate: &str) {
        let until = Instant::now() + DEADLINE;
        loop {
            let tried = self.try_apply(vm).await;
            if tried.is_success {
                return;
            }
            let failure = tried.failure();
            assert!(failure.contains(gate), "{failure}");
            assert!(Instant::now() < until, "{failure}");
        }
    }

    pub async fn try_apply(&self, vm: &VmManifest) -> Outcome {
        self.kubectl_with(&["apply", "--filename=-"], &vm.manifest())
            .await
    }

    /// `kubectl apply` of any object, which must succeed.
    pub async fn apply_object(&self, object: &Value) {
        let text = object.to_string();
        self.kubectl_with(&["apply", "--filename=-"], text.as_bytes())
            .await
            .success();
    }

    /// Applies several VMs at once.
    pub async fn apply_all(&self, vms: impl IntoIterator<Item = VmManifest>) {
        let items: Vec<Value> = vms.into_iter().map(VmManifest::into_object).collect();
        self.apply_object(&json!({"apiVersion": "v1", "kind": "List", "items": items}))
            .await;
    }

    /// Deletes VMs without waiting for their ends.
    pub async fn delete_vms(&self, names: &[&str]) {
        let delete = ["delete", "vm", "--wait=false", "--ignore-not-found"];
        self.kubectl(&[&delete[..], names].concat()).await.success();
    }

    pub fn vms(&self) -> Api<DynamicObject> {
        self.api("kubevirt.io", "VirtualMachine")
    }

    pub fn vmis(&self) -> Api<DynamicObject> {
        self.api("kubevirt.io", "VirtualMachineInstance")
    }

    pub fn pods(&self) -> Api<DynamicObject> {
        self.api("", "Pod")
    }

    /// Waits until the names of the namespace's VMIs satisfy a condition.
    pub async fn wait_vmi_names(
        &self,
        what: &str,
        condition: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        let until = Instant::now() + DEADLINE;
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            let list = self.vmis().list(&ListParams::default()).await;
            let list = list.expect("list VMIs").items.into_iter();
            let names: Vec<String> = list.filter_map(|one| one.metadata.name).collect();
            if condition(&names) {
                return names;
            }
            assert!(Instant::now() < until, "VMIs are not {what}: {names:?}");
        }
    }

    /// Objects of another kind, by group, version and kind.
    pub fn objects(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn api(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        self.objects(group, "v1", kind)
    }

    /// Waits for a printable status of the VM.
    pub async fn wait_vm_status(&self, name: &str, status: &str) -> Value {
        let shows = |vm: &Value| vm["status"]["printableStatus"] == status;
        wait_for(&self.vms(), name, status, shows).await
    }

    /// Waits for a phase of the VMI.
    pub async fn wait_vmi_phase(&self, name: &str, phase: &str) -> Value {
        let has = |vmi: &Value| vmi["status"]["phase"] == phase;
        wait_for(&self.vmis(), name, phase, has).await
    }

    /// Waits until a VMI other than `earlier` runs.
    pub async fn wait_new_vmi(&self, name: &str, earlier: &Value) -> Value {
        let earlier = earlier["metadata"]["uid"].clone();
        let other = move |vmi: &Value| {
            vmi["status"]["phase"] == "Running" && vmi["metadata"]["uid"] != earlier
        };
        wait_for(&self.vmis(), name, "running again", other).await
    }

    pub async fn wait_gone(&self, api: &Api<DynamicObject>, name: &str) {
        wait_for(api, name, "gone", Value::is_null).await;
    }

    /// The pods of this namespace: name and UID.
    pub async fn pod_list(&self) -> Vec<(String, String)> {
        let list = self
            .pods()
            .list(&ListParams::default())
            .await
            .expect("list pods");
        let named = |pod: DynamicObject| {
            (
                pod.metadata.name.unwrap_or_default(),
                pod.metadata.uid.unwrap_or_default(),
            )
        };
        list.items.into_iter().map(named).collect()
    }

    /// The UID of the only pod of this namespace.
    pub async fn pod_uid(&self) -> String {
        let pods = self.pod_list().await;
        let [(_, uid)] = &pods[..] else {
            panic!("expected one pod, found {pods:?}")
        };
        uid.clone()
    }

    /// Opens the console of a running VMI.
    pub async fn console(&self, name: &str) -> Console {
        let path = self.subresource("virtualmachineinstances", name, "console");
        Console::open(&self.client, &path)
            .await
            .unwrap_or_else(|err| panic!("open the console of {name}: {err}"))
    }

    /// Waits until the guest has booted, and opens its console at a shell prompt.
    pub async fn shell(&self, name: &str) -> Console {
        self.wait_vmi_phase(name, "Running").await;
        self.greeting(name).await;
        let mut console = self.console(name).await;
        console.send("\n").await;
        console.expect("# ").await;
        console
    }

    /// Waits for the guest's greeting, which may precede the first console client, and returns the
    /// console log.
    pub async fn greeting(&self, name: &str) -> String {
        let vmi = self.wait_vmi_phase(name, "Running").await;
        eventually("greeting", || {
            let text = self.serial_log(&vmi);
            let is_there = text.contains("Welcome to Ferrovirt tiny guest");
            if is_there { Ok(text) } else { Err(text) }
        })
        .await
    }

    /// The log of the guest's serial console.
    pub fn serial_log(&self, vmi: &Value) -> String {
        let file = self.serial_log_file(vmi);
        let bytes = file
            .and_then(|path| std::fs::read(path).ok())
            .unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The file of that log.
    pub fn serial_log_file(&self, vmi: &Value) -> Option<PathBuf> {
        let uid = vmi["metadata"]["uid"].as_str().expect("a VMI has a UID");
        let tail = format!("volumes/kubernetes.io~empty-dir/private/{uid}/virt-serial0-log");
        let mut found = self.pod_files().map(|pod| pod.join(&tail));
        found.find(|path| path.exists())
    }

    /// The directories of all pods on all nodes; their names are the pods' UIDs.
    pub fn pod_files(&self) -> impl Iterator<Item = PathBuf> {
        let all = self.environment.pod_directories().into_iter();
        let entries = all.filter_map(|pods| std::fs::read_dir(pods).ok());
        entries.flatten().flatten().map(|entry| entry.path())
    }

    pub fn subresource(&self, plural: &str, name: &str, subresource: &str) -> String {
        let namespace = &self.namespace;
        format!(
            "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/{plural}/{name}/{subresource}"
        )
    }
}

impl<H: Environment> Drop for TestNamespace<H> {
    fn drop(&mut self) {
        let kubectl = |arguments: &[&str]| {
            std::process::Command::new("kubectl")
                .env("KUBECONFIG", self.environment.kubeconfig())
                .args(["--request-timeout=10s", "--namespace", &self.namespace])
                .args(arguments)
                .output()
        };
        if std::thread::panicking() {
            let objects = kubectl(&["get", "vm,vmi,pods,events", "--output=wide"]);
            let objects = objects.map(|output| output.stdout).unwrap_or_default();
            println!(
                "objects of the test:\n{}",
                String::from_utf8_lossy(&objects)
            );
        }
        // Guests of a finished test would slow the others down.
        drop(kubectl(&["delete", "vm,vmi", "--all", "--wait=false"]));
        drop(kubectl(&[
            "delete",
            "namespace",
            &self.namespace,
            "--wait=false",
        ]));
        times::record(self.began.elapsed());
    }
}
