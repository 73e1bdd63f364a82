//! The control plane: etcd, API server, controller manager, scheduler, and beside them a registry and
//! the provisioner of volumes.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};

use super::{
    daemon,
    place::{
        API_PORT, CONTROL_PLANE, DNS_SERVICE, ETCD_PEER_PORT, ETCD_PORT, PODS, Place,
        REGISTRY_PORT, SERVICES,
    },
};
use crate::{kubernetes::Program, workspace::root};

/// What stores and serves the objects, and the registry.
pub(super) const SERVERS: [&str; 3] = ["etcd", "kube-apiserver", "registry"];
/// What acts on them; it ends when no server answers.
pub(super) const CONTROLLERS: [&str; 3] =
    ["kube-controller-manager", "kube-scheduler", "provisioner"];

/// In the order in which they are started; they are ended the other way round, because an API server
/// without etcd takes a minute to end.
pub(super) fn all() -> impl DoubleEndedIterator<Item = &'static str> {
    SERVERS.into_iter().chain(CONTROLLERS)
}

/// Starts those of `parts` that are not running, and returns their names.
pub(super) fn start(place: &Place, parts: &[&'static str]) -> Result<Vec<&'static str>> {
    let mut started = Vec::new();
    for part in parts {
        let mut command = inside(place, part)?;
        command.args(flags(place, part)?);
        if daemon::start(place, part, &mut command)? {
            started.push(*part);
        }
    }
    Ok(started)
}

/// A command in the control plane's network.
pub(super) fn beside(place: &Place) -> Command {
    let mut option = std::ffi::OsString::from("--net=");
    option.push(place.network("control"));
    let mut command = Command::new("nsenter");
    command.arg(option).arg("--");
    command
}

/// The part, which is started again whenever it ends.
fn inside(place: &Place, part: &str) -> Result<Command> {
    let mut command = beside(place);
    command.arg("sh").arg(root().join("xtask/cluster/keep.sh"));
    match part {
        "registry" => command.arg("docker-registry"),
        "provisioner" => command.arg(std::env::current_exe().context("find this program")?),
        _ => command.arg(place.bin(part)),
    };
    Ok(command)
}

fn flags(place: &Place, part: &str) -> Result<Vec<String>> {
    match part {
        "etcd" => Ok(etcd(place)),
        "kube-apiserver" => Ok(api_server(place)),
        "kube-controller-manager" => Ok(controller_manager(place)),
        "kube-scheduler" => Ok(scheduler(place)),
        "provisioner" => Ok(["cluster", "provision"].map(str::to_owned).to_vec()),
        _ => registry(place),
    }
}

fn etcd(place: &Place) -> Vec<String> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    vec![
        format!("--data-dir={}", shown(&place.at("etcd"))),
        format!("--listen-client-urls={}", url(ETCD_PORT)),
        format!("--advertise-client-urls={}", url(ETCD_PORT)),
        format!("--listen-peer-urls={}", url(ETCD_PEER_PORT)),
        format!("--initial-advertise-peer-urls={}", url(ETCD_PEER_PORT)),
        format!("--initial-cluster=default={}", url(ETCD_PEER_PORT)),
        // A test cluster need not survive a power cut.
        "--unsafe-no-fsync=true".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn api_server(place: &Place) -> Vec<String> {
    let crt = |name: &str| shown(&place.certificate(name));
    let key = |name: &str| shown(&place.key(name));
    vec![
        format!("--etcd-servers=http://127.0.0.1:{ETCD_PORT}"),
        "--bind-address=0.0.0.0".to_owned(),
        format!("--advertise-address={CONTROL_PLANE}"),
        format!("--secure-port={API_PORT}"),
        format!("--tls-cert-file={}", crt("api-server")),
        format!("--tls-private-key-file={}", key("api-server")),
        format!("--client-ca-file={}", crt("ca")),
        format!("--kubelet-certificate-authority={}", crt("ca")),
        format!("--kubelet-client-certificate={}", crt("kubelet-client")),
        format!("--kubelet-client-key={}", key("kubelet-client")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", crt("accounts")),
        format!("--service-account-signing-key-file={}", key("accounts")),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--enable-aggregator-routing=true".to_owned(),
        format!("--requestheader-client-ca-file={}", crt("front-ca")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        format!("--proxy-client-cert-file={}", crt("front")),
        format!("--proxy-client-key-file={}", key("front")),
    ]
}

fn controller_manager(place: &Place) -> Vec<String> {
    let kubeconfig = shown(&place.kubeconfig("controller-manager"));
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--use-service-account-credentials=true".to_owned(),
        format!("--root-ca-file={}", shown(&place.certificate("ca"))),
        format!(
            "--service-account-private-key-file={}",
            shown(&place.key("accounts"))
        ),
        format!(
            "--cluster-signing-cert-file={}",
            shown(&place.certificate("ca"))
        ),
        format!("--cluster-signing-key-file={}", shown(&place.key("ca"))),
        "--allocate-node-cidrs=false".to_owned(),
        format!("--cluster-cidr={PODS}"),
        // One of each runs, and a crash is answered at once.
        "--leader-elect=false".to_owned(),
    ]
}

fn scheduler(place: &Place) -> Vec<String> {
    let kubeconfig = shown(&place.kubeconfig("scheduler"));
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--leader-elect=false".to_owned(),
    ]
}

fn registry(place: &Place) -> Result<Vec<String>> {
    let data = place.at("registry");
    let configuration = place.at("registry.yaml");
    let text = format!(
        "version: 0.1\nlog: {{level: warn}}\n\
         storage: {{filesystem: {{rootdirectory: {}}}, delete: {{enabled: true}}}}\n\
         http: {{addr: \":{REGISTRY_PORT}\"}}\n",
        shown(&data)
    );
    fs::write(&configuration, text).context("write the registry's settings")?;
    Ok(vec!["serve".to_owned(), shown(&configuration)])
}

/// Links to all programs in one directory, which is also the nodes' search path.
pub(super) fn link_programs(
    place: &Place,
    programs: &[(Program, std::path::PathBuf)],
) -> Result<()> {
    for (program, path) in programs {
        let link = place.bin(program.name());
        if fs::read_link(&link).is_ok_and(|target| target == *path) {
            continue;
        }
        let draft = link.with_extension("draft");
        if draft.symlink_metadata().is_ok() {
            fs::remove_file(&draft).context("remove a link")?;
        }
        std::os::unix::fs::symlink(path, &draft)
            .and_then(|()| fs::rename(&draft, &link))
            .with_context(|| format!("link {}", link.display()))?;
    }
    Ok(())
}

/// The name servers' address, for kubelets.
pub(super) fn dns() -> String {
    DNS_SERVICE.to_string()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
