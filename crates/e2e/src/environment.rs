//! The environment of a test, a single host or a cluster: what tests need beside its API.

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
    sync::Arc,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::process::Command;

use crate::{Outcome, program, run};

/// A single host or a cluster.
pub trait Environment: Debug + Sized + Send + Sync + 'static {
    /// The environment shared by the tests of this process.
    fn shared() -> impl Future<Output = Arc<Self>>;

    /// An environment whose components a test may kill.
    fn disposable() -> impl Future<Output = Arc<Self>>;

    /// The administrator's kubeconfig.
    fn kubeconfig(&self) -> PathBuf;

    /// The discovery cache of `kubectl`, which is keyed by server address.
    fn kubectl_cache(&self) -> PathBuf;

    /// The directory of pods, on each node.
    fn pod_directories(&self) -> Vec<PathBuf>;

    /// Kills every Ferrovirt component with SIGKILL and waits until each runs again.
    fn kill_components(&self) -> impl Future<Output = ()>;

    fn kubectl(&self, arguments: &[&str], input: &[u8]) -> impl Future<Output = Outcome> {
        let mut program = Command::new("kubectl");
        program
            .env("KUBECONFIG", self.kubeconfig())
            .arg(format!("--cache-dir={}", self.kubectl_cache().display()))
            .args(arguments);
        async move { run(&mut program, input).await }
    }

    /// A `virtctl` command without arguments.
    fn virtctl(&self) -> Command {
        let mut program = Command::new(program("virtctl"));
        program.env("KUBECONFIG", self.kubeconfig());
        program
    }

    /// A client with the administrator's rights.
    fn client(&self) -> impl Future<Output = Client> {
        client(self.kubeconfig())
    }
}

async fn client(path: impl AsRef<Path>) -> Client {
    let kubeconfig = Kubeconfig::read_from(path).expect("read the kubeconfig");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .expect("parse the kubeconfig");
    config.read_timeout = None;
    Client::try_from(config).expect("make a client")
}
