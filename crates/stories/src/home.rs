//! Where stories are told: what they need of a home beside the API that every home has.

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

/// A single host, or a cluster.
pub trait Home: Debug + Sized + Send + Sync + 'static {
    /// The one that the stories of this process share.
    fn shared() -> impl Future<Output = Arc<Self>>;

    /// One whose components may be killed without harm to stories that share another.
    fn to_break() -> impl Future<Output = Arc<Self>>;

    /// The administrator's.
    fn kubeconfig(&self) -> PathBuf;

    /// Where `kubectl` remembers discovery, which it does by address.
    fn kubectl_cache(&self) -> PathBuf;

    /// On each node, the directory that holds one for each pod.
    fn pod_directories(&self) -> Vec<PathBuf>;

    /// `kill -9` of every component of ours, and the wait until each runs again.
    fn kill_components(&self) -> impl Future<Output = ()>;

    fn kubectl(&self, arguments: &[&str], input: &[u8]) -> impl Future<Output = Outcome> {
        let mut program = Command::new("kubectl");
        program
            .env("KUBECONFIG", self.kubeconfig())
            .arg(format!("--cache-dir={}", self.kubectl_cache().display()))
            .args(arguments);
        async move { run(&mut program, input).await }
    }

    /// `virtctl`, to be given arguments.
    fn virtctl(&self) -> Command {
        let mut program = Command::new(program("virtctl"));
        program.env("KUBECONFIG", self.kubeconfig());
        program
    }

    /// A client of the administrator.
    fn client(&self) -> impl Future<Output = Client> {
        client(self.kubeconfig())
    }
}

async fn client(path: impl AsRef<Path>) -> Client {
    let kubeconfig = Kubeconfig::read_from(path).expect("read the kubeconfig");
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .expect("understand the kubeconfig");
    config.read_timeout = None;
    Client::try_from(config).expect("make a client")
}
