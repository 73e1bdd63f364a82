//! The components of `KubeVirt` as tasks of this process, each with a client for its own account.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, Result};
use cluster_view::Configuration;
use embedded_api::{EmbeddedApi, Identity};
use error_chain::error_chain;
use reconcile::{Clock, Leadership};
use serving::{ClientCertificates, HttpsClient};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use virt_controller::AccelerationPolicy;
use virt_handler::{
    Capabilities, DeviceFiles, GuestCredentials, MediatedDevices, PermittedDevices,
};

use super::{certificates::Certificates, exports, install, uploads};
use crate::{
    cli,
    identities::{FRONT_PROXY, Identities},
    state_dir::StateDir,
};

/// Concurrent reconciles of each controller.
const CONCURRENCY: usize = 8;

/// The context of all steps of `up`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host<'a> {
    pub(super) flags: &'a cli::Up,
    pub(super) state: &'a StateDir,
    pub(super) api: &'a EmbeddedApi,
    pub(super) certificates: &'a Certificates,
    /// Where the API server listens.
    pub(super) listen: SocketAddr,
}

impl Host<'_> {
    /// A client with all rights, for the steps of `up`.
    pub(super) fn client(&self, name: &str) -> kube::Client {
        self.api.client(Identity::component(name), "default")
    }

    /// A client for a component, with the rights of its service account.
    fn account(&self, name: &str) -> kube::Client {
        let identity = Identity::service_account(NAMESPACE, name);
        self.api.client(identity, "default")
    }

    /// A client for the node.
    pub(super) fn node(&self) -> kube::Client {
        let user = format!("system:node:{}", self.flags.node_name);
        let identity = Identity::new(user, &["system:nodes"]);
        self.api.client(identity, "default")
    }
}

/// The namespace of the installation.
pub(super) const NAMESPACE: &str = "kubevirt";

/// A state directory has one process, the one with its lock. A lease could only expire, on a slow machine.
const SOLE: Leadership = Leadership::Sole;

/// The administrator's configuration as each component reads it, with its own rights.
struct Configurations {
    api: Configuration,
    controller: Configuration,
    handler: Configuration,
}

impl Configurations {
    /// virt-api refuses disks of the host outside of these directories.
    fn new(host_disks: &[PathBuf]) -> Self {
        let directories = host_disks.iter().map(|dir| dir.display().to_string());
        Self {
            api: Configuration::with_host_disks(directories.collect(), NAMESPACE),
            controller: Configuration::new(NAMESPACE),
            handler: Configuration::new(NAMESPACE),
        }
    }
}

pub(super) async fn start(
    host: &Host<'_>,
    capabilities: Capabilities,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<()> {
    let kvm = capabilities.facts().kvm;
    let configurations = Configurations::new(&host.flags.host_disks);
    virt_api(host, &configurations, (tasks, stop)).await?;
    handler(host, &configurations, capabilities, (tasks, stop)).await?;
    let acceleration = if kvm {
        AccelerationPolicy::Kvm
    } else {
        AccelerationPolicy::Emulation
    };
    let launcher_acceleration = if kvm {
        launcher_pod::Acceleration::Kvm
    } else {
        launcher_pod::Acceleration::Emulation
    };
    let controller = virt_controller::Settings {
        client: host.account("kubevirt-controller"),
        launcher: launcher_pod::Settings {
            variables: host.flags.log_format.variables(),
            ..launcher_pod::Settings::defaults(&host.flags.launcher_image, launcher_acceleration)
        },
        acceleration,
        uploads: virt_controller::Uploads::Received,
        copies: virt_controller::CopyRights::Reviewed,
        exports: Some(exports::place(host)?),
        clock: Clock::system(),
        cluster: configurations.controller.clone(),
        concurrency: CONCURRENCY,
        leadership: SOLE,
    };
    tasks.spawn(virt_controller::run(controller, stop.clone()));
    let operator = operator::Settings {
        client: host.account("kubevirt-controller"),
        clock: Clock::system(),
        namespace: NAMESPACE.to_owned(),
        leadership: SOLE,
        environment: operator::Environment::Host {
            node: host.flags.node_name.clone(),
        },
        launcher_image: host.flags.launcher_image.clone(),
    };
    tasks.spawn(operator::run(operator, stop.clone()));
    install::node_labelled(&host.client("ferrovirt-up"), &host.flags.node_name).await
}

async fn virt_api(
    host: &Host<'_>,
    configurations: &Configurations,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<()> {
    let listener = listen_locally().await.context("listen for virt-api")?;
    let address = listener.local_addr()?;
    let nodes = nodes(host.certificates, tasks)?;
    let settings = virt_api::Settings {
        client: host.account("kubevirt-apiserver"),
        listener,
        tls: host.certificates.server(
            |own| &own.virt_api,
            |own| ClientCertificates::Optional(own.proxies.clone()),
        )?,
        front_proxy: virt_api::FrontProxy {
            names: vec![FRONT_PROXY.to_owned()],
        },
        webhook_callers: virt_api::WebhookCallers::FrontProxy,
        nodes,
        cluster: configurations.api.clone(),
        neighbours: vec![
            configurations.controller.clone(),
            configurations.handler.clone(),
        ],
        clock: Clock::system(),
        uploads: Some(uploads::tokens(host.api)),
        // The API server serves them, to users with the right.
        metrics: Vec::new(),
    };
    tasks.spawn(virt_api::run(settings, stop.clone()));
    install::virt_api(host, address).await
}

/// The client of virt-api for virt-handlers.
pub(super) fn nodes(certificates: &Certificates, tasks: &TaskTracker) -> Result<HttpsClient> {
    let first = certificates.first();
    let nodes = HttpsClient::new(&first.servers, Some(&first.virt_api_client), tasks.clone())?;
    certificates.keep_client(nodes.clone(), |own| &own.virt_api_client);
    Ok(nodes)
}

async fn handler(
    host: &Host<'_>,
    configurations: &Configurations,
    capabilities: Capabilities,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<()> {
    let listener = listen_locally().await.context("listen for virt-handler")?;
    let address = listener.local_addr()?;
    let settings = virt_handler::Settings {
        client: host.account("kubevirt-handler"),
        node: host.flags.node_name.clone(),
        pods_dir: host.state.node().join("pods"),
        capabilities,
        listener,
        address,
        tls: host.certificates.server(
            |own| &own.handler,
            |own| ClientCertificates::Required(own.servers.clone()),
        )?,
        peers: None,
        guests: guest_credentials(host.certificates),
        cluster: configurations.handler.clone(),
        clock: Clock::system(),
    };
    let permitted = PermittedDevices {
        dir: host.state.node().join("device-plugins"),
        files: DeviceFiles::of_host(),
        configuration: configurations.handler.clone(),
    };
    tasks.spawn(permitted.run(stop.clone()));
    let mediated = MediatedDevices {
        client: host.account("kubevirt-handler"),
        node: host.flags.node_name.clone(),
        files: DeviceFiles::of_host(),
        configuration: configurations.handler.clone(),
    };
    tasks.spawn(mediated.run(stop.clone()));
    let (running, all) = (stop.clone(), stop.clone());
    tasks.spawn(async move {
        if let Err(error) = virt_handler::run(settings, running).await {
            tracing::error!(error = error_chain(&error), "virt-handler ended");
            all.cancel();
        }
    });
    Ok(())
}

/// What virt-handler shows to servers in guests, which check it by the authority of our servers.
fn guest_credentials(certificates: &Certificates) -> watch::Receiver<Option<GuestCredentials>> {
    let of = |own: &Identities| GuestCredentials {
        identity: own.guest_client.clone(),
        authorities: own.servers.clone(),
    };
    let (sender, receiver) = watch::channel(Some(of(certificates.first())));
    certificates.on_renewal(move |next| {
        sender.send_replace(Some(of(next)));
        Ok(())
    });
    receiver
}

/// Opens a port that only this host can reach.
async fn listen_locally() -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
}
