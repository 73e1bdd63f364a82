//! A test's own namespace, on a host that it shares with the other tests of its process.

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
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    Console, DEADLINE, Home, Machine, Outcome, Terminal, eventually, run, times, wait_for,
    waiting::INTERVAL,
};

/// Emulated guests keep a core busy while they start, so few stories are told at once.
const AT_ONCE: u32 = 3;
static TELLERS: Semaphore = Semaphore::const_new(AT_ONCE as usize);

/// What a test works with.
pub struct Story<H: Home> {
    pub home: Arc<H>,
    pub namespace: String,
    pub client: Client,
    began: Instant,
    _teller: SemaphorePermit<'static>,
}

impl<H: Home> std::fmt::Debug for Story<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Story")
            .field("home", &self.home)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl<H: Home> Story<H> {
    /// Begins a story on the shared home.
    pub async fn begin() -> Self {
        let teller = TELLERS.acquire().await.expect("it is never closed");
        Self::told(H::shared().await, teller).await
    }

    /// Begins a story on a home of its own.
    pub async fn on(home: Arc<H>) -> Self {
        let teller = TELLERS.acquire().await.expect("it is never closed");
        Self::told(home, teller).await
    }

    /// Begins a story that breaks what others need: no other is told meanwhile.
    pub async fn alone() -> Self {
        let tellers = TELLERS.acquire_many(AT_ONCE).await;
        let teller = tellers.expect("it is never closed");
        Self::told(H::to_break().await, teller).await
    }

    async fn told(home: Arc<H>, teller: SemaphorePermit<'static>) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(1);
        let began = Instant::now();
        let client = home.client().await;
        // A cluster may still be at clearing away what a run before this one left.
        let namespace = format!(
            "story-{}-{}",
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
            home,
            namespace,
            client,
            began,
            _teller: teller,
        }
    }

    pub async fn kubectl(&self, arguments: &[&str]) -> Outcome {
        self.kubectl_with(arguments, b"").await
    }

    pub async fn kubectl_with(&self, arguments: &[&str], input: &[u8]) -> Outcome {
        let mut all = vec!["--namespace", &self.namespace];
        all.extend(arguments);
        self.home.kubectl(&all, input).await
    }

    pub async fn virtctl(&self, arguments: &[&str]) -> Outcome {
        let mut all = vec!["--namespace", &self.namespace];
        all.extend(arguments);
        run(self.home.virtctl().args(all), b"").await
    }

    /// `virtctl` with pipes to talk through.
    pub fn virtctl_terminal(&self, arguments: &[&str]) -> Terminal {
        let mut command = self.home.virtctl();
        command
            .args(["--namespace", &self.namespace])
            .args(arguments);
        Terminal::start(&mut command)
    }

    /// `kubectl apply`, which must be taken.
    pub async fn apply(&self, machine: &Machine) {
        self.try_apply(machine).await.good();
    }

    pub async fn try_apply(&self, machine: &Machine) -> Outcome {
        self.kubectl_with(&["apply", "--filename=-"], &machine.manifest())
            .await
    }

    /// `kubectl apply` of any object, which must be taken.
    pub async fn apply_object(&self, object: &Value) {
        let text = object.to_string();
        self.kubectl_with(&["apply", "--filename=-"], text.as_bytes())
            .await
            .good();
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

    /// Waits until the names of this story's instances are as they should be.
    pub async fn instances_are(
        &self,
        what: &str,
        condition: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        let until = Instant::now() + DEADLINE;
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            let list = self.vmis().list(&ListParams::default()).await;
            let list = list.expect("list instances").items.into_iter();
            let names: Vec<String> = list.filter_map(|one| one.metadata.name).collect();
            if condition(&names) {
                return names;
            }
            assert!(
                Instant::now() < until,
                "instances are not {what}: {names:?}"
            );
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

    /// Waits for the status that `kubectl get vm` shows.
    pub async fn vm_is(&self, name: &str, status: &str) -> Value {
        let shows = |vm: &Value| vm["status"]["printableStatus"] == status;
        wait_for(&self.vms(), name, status, shows).await
    }

    /// Waits for a phase of the instance.
    pub async fn vmi_is(&self, name: &str, phase: &str) -> Value {
        let has = |vmi: &Value| vmi["status"]["phase"] == phase;
        wait_for(&self.vmis(), name, phase, has).await
    }

    /// Waits for an instance other than `earlier` to run.
    pub async fn runs_again(&self, name: &str, earlier: &Value) -> Value {
        let earlier = earlier["metadata"]["uid"].clone();
        let other = move |vmi: &Value| {
            vmi["status"]["phase"] == "Running" && vmi["metadata"]["uid"] != earlier
        };
        wait_for(&self.vmis(), name, "running again", other).await
    }

    pub async fn is_gone(&self, api: &Api<DynamicObject>, name: &str) {
        wait_for(api, name, "gone", Value::is_null).await;
    }

    /// The pods of this story: name and UID.
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

    /// The UID of the one pod of this story.
    pub async fn pod_uid(&self) -> String {
        let pods = self.pod_list().await;
        let [(_, uid)] = &pods[..] else {
            panic!("looking for one pod among {pods:?}")
        };
        uid.clone()
    }

    /// The console of an instance that runs.
    pub async fn console(&self, name: &str) -> Console {
        let path = self.subresource("virtualmachineinstances", name, "console");
        Console::open(&self.client, &path)
            .await
            .unwrap_or_else(|err| panic!("open the console of {name}: {err}"))
    }

    /// The console of an instance whose guest has a shell for us.
    pub async fn shell(&self, name: &str) -> Console {
        self.vmi_is(name, "Running").await;
        self.greeting(name).await;
        let mut console = self.console(name).await;
        console.send("\n").await;
        console.expect("# ").await;
        console
    }

    /// What the guest wrote to its console up to the greeting, which may have been before anybody
    /// could open it.
    pub async fn greeting(&self, name: &str) -> String {
        let vmi = self.vmi_is(name, "Running").await;
        eventually("greeting", || {
            let text = self.serial_log(&vmi);
            let is_there = text.contains("Welcome to Ferrovirt tiny guest");
            if is_there { Ok(text) } else { Err(text) }
        })
        .await
    }

    /// All that an instance's guest has written to its serial console.
    pub fn serial_log(&self, vmi: &Value) -> String {
        let file = self.serial_log_file(vmi);
        let bytes = file
            .and_then(|path| std::fs::read(path).ok())
            .unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Where that is.
    pub fn serial_log_file(&self, vmi: &Value) -> Option<PathBuf> {
        let uid = vmi["metadata"]["uid"]
            .as_str()
            .expect("an instance has a UID");
        let tail = format!("volumes/kubernetes.io~empty-dir/private/{uid}/virt-serial0-log");
        let mut found = self.pod_files().map(|pod| pod.join(&tail));
        found.find(|path| path.exists())
    }

    /// The directories of all pods on all nodes; the last part is the pod's UID.
    pub fn pod_files(&self) -> impl Iterator<Item = PathBuf> {
        let all = self.home.pod_directories().into_iter();
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

impl<H: Home> Drop for Story<H> {
    fn drop(&mut self) {
        let kubectl = |arguments: &[&str]| {
            std::process::Command::new("kubectl")
                .env("KUBECONFIG", self.home.kubeconfig())
                .args(["--request-timeout=10s", "--namespace", &self.namespace])
                .args(arguments)
                .output()
        };
        if std::thread::panicking() {
            let objects = kubectl(&["get", "vm,vmi,pods,events", "--output=wide"]);
            let objects = objects.map(|output| output.stdout).unwrap_or_default();
            println!(
                "the story's objects:\n{}",
                String::from_utf8_lossy(&objects)
            );
        }
        // Guests of a story that is over would slow the others down.
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
