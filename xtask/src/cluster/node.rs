//! A node: a set of namespaces with containerd, kubelet and kube-proxy in it.

use std::{
    fs,
    io::ErrorKind,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    control_plane, daemon, deadline,
    place::{CONTROL_PLANE, NodeNumber, PODS, Place, REGISTRY_PORT},
};
use crate::workspace::root;

/// The pause image, which keeps a pod's namespaces.
pub(super) const PAUSE_IMAGE: &str = "docker.io/ferrovirt/pause:devel";
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the node unless it runs. True when it was started.
pub(super) fn start(place: &Place, node: NodeNumber) -> Result<bool> {
    let name = node.name();
    if daemon::find(place, &name).is_some() {
        return Ok(false);
    }
    remove_cgroups(node)?;
    configure(place, node)?;
    let mut option = std::ffi::OsString::from("--net=");
    option.push(place.network(&name));
    let mut command = Command::new("nsenter");
    command
        .arg(option)
        .args(["--", "unshare", "--pid", "--fork", "--mount", "--uts"])
        .args(["--ipc", "--kill-child", "--", "sh"])
        .arg(root().join("xtask/cluster/node-init.sh"))
        .arg(&name)
        .arg(place.node(node))
        .arg(place.at("bin"))
        .arg(place.kubeconfig(&name))
        .arg(node.cgroup());
    daemon::start(place, &name, &mut command)
}

/// Ends everything on the node. Its directory stays.
pub(super) fn stop(place: &Place, node: NodeNumber) -> Result<()> {
    daemon::stop(place, &node.name())?;
    daemon::sweep(&place.network(&node.name()))?;
    remove_cgroups(node)
}

/// A command that runs on the node.
pub(super) fn inside(place: &Place, node: NodeNumber) -> Result<Command> {
    let name = node.name();
    let daemon = daemon::find(place, &name).with_context(|| format!("node {name} does not run"))?;
    // Process 1 is there a moment after the process that starts it.
    let init = deadline::look(PATIENCE, || Ok(daemon.child()))?
        .with_context(|| format!("node {name} has no process 1"))?;
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--target={init}"))
        .args(["--net", "--pid", "--mount", "--uts", "--ipc", "--"])
        .arg("env")
        .arg(format!(
            "PATH={}:{}",
            place.at("bin").display(),
            std::env::var("PATH").unwrap_or_default()
        ))
        .arg("CONTAINERD_NAMESPACE=k8s.io");
    Ok(command)
}

/// Waits until the node's containerd answers.
pub(super) fn wait_for_containerd(place: &Place, node: NodeNumber) -> Result<()> {
    let answered = deadline::look(PATIENCE, || {
        let answer = inside(place, node)?
            .args(["ctr", "version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("run ctr")?;
        Ok(answer.success().then_some(()))
    })?;
    answered.with_context(|| {
        let log = place.node(node).join("log/containerd.log");
        format!(
            "containerd on {} does not answer; see {}",
            node.name(),
            log.display()
        )
    })
}

/// Removes what the node's pods left in the cgroup trees: a kubelet would spend seconds on each.
pub(super) fn remove_cgroups(node: NodeNumber) -> Result<()> {
    let Ok(controllers) = fs::read_dir("/sys/fs/cgroup") else {
        return Ok(());
    };
    let name = node.cgroup();
    let mut roots = vec![Path::new("/sys/fs/cgroup").join(&name)];
    for controller in controllers {
        roots.push(controller.context("read the cgroups")?.path().join(&name));
    }
    for root in roots {
        if root.is_dir() {
            remove_tree(&root).with_context(|| format!("remove {}", root.display()))?;
        }
    }
    Ok(())
}

/// Depth first; files in there are the kernel's. Processes leave a moment after they are killed.
fn remove_tree(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    let removed = deadline::look(PATIENCE, || match fs::remove_dir(directory) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(None),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(Some(())),
    })?;
    removed.context("processes in there do not end")
}

/// A registry that nothing serves, for tests.
const UNREACHABLE_REGISTRY: &str = "127.0.0.1:1";

/// Writes the settings of everything on the node.
fn configure(place: &Place, node: NodeNumber) -> Result<()> {
    let home = place.node(node);
    let write = |path: &str, text: &str| -> Result<()> {
        let path = home.join(path);
        let parent = path.parent().unwrap_or(&home);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("write {}", path.display()))
    };
    write("address", &node.address().to_string())?;
    write("resolv.conf", "")?;
    write("containerd.toml", &containerd(place, &home))?;
    write(
        "registries/_default/hosts.toml",
        &format!("[host.\"http://{CONTROL_PLANE}:{REGISTRY_PORT}\"]\n  skip_verify = true\n"),
    )?;
    // Without an entry of its own, the registry above would answer that the image is missing.
    write(
        &format!("registries/{UNREACHABLE_REGISTRY}/hosts.toml"),
        &format!("server = \"http://{UNREACHABLE_REGISTRY}\"\n"),
    )?;
    write("cni/10-bridge.conflist", &pretty(&cni(node))?)?;
    // containerd takes the first by name.
    if place.has_multus() {
        write("cni/00-multus.conf", &pretty(&multus(place, node))?)?;
    }
    write("kubelet.yaml", &pretty(&kubelet(place, node, &home))?)?;
    write("proxy.yaml", &pretty(&proxy(place, node))?)
}

fn pretty(value: &Value) -> Result<String> {
    serde_json::to_string_pretty(value).context("write JSON")
}

fn containerd(place: &Place, home: &Path) -> String {
    let bin = place.at("bin");
    let (bin, home) = (bin.display(), home.display());
    // Without CAP_SYS_RESOURCE a sandbox may not lower its score of being killed. Devices belong to
    // users in pods: not every host lets all users open /dev/net/tun.
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{home}/registries"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  device_ownership_from_security_context = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
  BinaryName = "{bin}/runc"
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{bin}"]
  conf_dir = "{home}/cni"
"#
    )
}

fn cni(node: NodeNumber) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true,
                // With masquerading, pods of different nodes could not be distinguished.
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": node.pods()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": "/run/cni-addresses",
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}, "backend": "nftables"},
        ],
    })
}

/// Joins pods to the pod network, and to those that their annotations name.
fn multus(place: &Place, node: NodeNumber) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods-and-others",
        "type": "multus",
        "kubeconfig": place.kubeconfig("multus"),
        "binDir": place.at("bin"),
        "cniDir": "/var/lib/cni/multus",
        "logFile": "/var/log/multus.log",
        "logLevel": "error",
        "logToStderr": false,
        // Definitions in `default` are for everybody, as Ferrovirt has it on a single host.
        "namespaceIsolation": true,
        "globalNamespaces": "default",
        "capabilities": {"portMappings": true},
        "delegates": [cni(node)],
    })
}

fn kubelet(place: &Place, node: NodeNumber, home: &Path) -> Value {
    let certificate = format!("kubelet-{}", node.name());
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": place.certificate("ca")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": place.certificate(&certificate),
        "tlsPrivateKeyFile": place.key(&certificate),
        "clusterDNS": [control_plane::dns()],
        "clusterDomain": "cluster.local",
        "resolvConf": home.join("resolv.conf"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.cgroup()),
        "failCgroupV1": false,
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        // An image that was loaded by hand stays present once the same content was pulled.
        "imagePullCredentialsVerificationPolicy": "NeverVerify",
        "serializeImagePulls": false,
        // All nodes share the machine's disk and memory: only a real shortage counts.
        "evictionHard": {
            "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%",
            "nodefs.inodesFree": "1%", "imagefs.inodesFree": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "maxPods": 250,
        // Tests kill containers repeatedly and must not wait for minutes.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
    })
}

fn proxy(place: &Place, node: NodeNumber) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": node.name(),
        "clusterCIDR": PODS,
        "clientConnection": {"kubeconfig": place.kubeconfig("proxy")},
        "conntrack": {"maxPerCore": 0, "min": 0},
    })
}
