//! The command line of the components.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Subcommand};
use installation::registration::TRANSFER_PORT;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// In a cluster: webhooks and the group subresources.kubevirt.io
    Api(Api),
    /// In a cluster: the controllers
    Controller(Controller),
    /// In a cluster: virt-handler on one node
    Handler(Handler),
}

#[derive(Debug, Clone, Args)]
pub struct Place {
    /// Namespace of the installation
    #[arg(long, env = "POD_NAMESPACE", default_value = "kubevirt")]
    pub namespace: String,
    /// Name of this pod, the identity in leader election
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub pod: String,
    /// UID of that pod
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,
    /// Log filter, such as `debug` or `virt_handler=debug`
    #[arg(
        long,
        env = "FERROVIRT_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub log: String,
    /// Format of log lines: text or json
    #[arg(
        long,
        env = logging::FORMAT_VARIABLE,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub log_format: logging::Format,
}

#[derive(Debug, Clone, Args)]
pub struct Api {
    #[command(flatten)]
    pub place: Place,
    /// Port to serve on
    #[arg(long, default_value_t = 8443)]
    pub port: u16,
    /// Port at which clients upload disks and download exports
    #[arg(long, default_value_t = TRANSFER_PORT)]
    pub transfer_port: u16,
    /// Port of the web console, where users sign in with tokens. Without it there is none
    #[arg(long, value_name = "PORT")]
    pub console_port: Option<u16>,
}

#[derive(Debug, Clone, Args)]
pub struct Controller {
    #[command(flatten)]
    pub place: Place,
    /// Image of the virtual machines' pods
    #[arg(long, env = "LAUNCHER_IMAGE", value_name = "REFERENCE")]
    pub launcher_image: String,
    /// Port of the metrics and of the kubelet's probes
    #[arg(long, default_value_t = 8443)]
    pub port: u16,
}

#[derive(Debug, Clone, Args)]
pub struct Handler {
    #[command(flatten)]
    pub place: Place,
    /// The node it runs on
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node: String,
    /// Address at which virt-api reaches this virt-handler
    #[arg(long, env = "POD_IP", value_name = "ADDRESS")]
    pub address: IpAddr,
    /// Port to serve on
    #[arg(long, default_value_t = 8186)]
    pub port: u16,
    /// Port of the metrics and of the kubelet's probes
    #[arg(long, default_value_t = 8443)]
    pub metrics_port: u16,
    /// The kubelet's directory
    #[arg(long, default_value = "/var/lib/kubelet", value_name = "DIR")]
    pub kubelet: PathBuf,
    /// Directories with the results of this node's probes; the first complete one is used
    #[arg(long, value_name = "DIR", required = true)]
    pub capabilities: Vec<PathBuf>,
}
