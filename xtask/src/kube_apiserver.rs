//! A kube-apiserver with its etcd, in a temporary directory, on loopback; and the certificates that any API
//! server on loopback needs.
//!
//! **Invariant**: both processes are killed when we end: by [`KubeApiServer`]'s drop, or, when we are
//! killed ourselves, by the kernel.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioExecutor};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Client, Config,
    client::ConfigExt as _,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use serving::{Authority, Identity, Leaf, Usage, Validity};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tower::{BoxError, ServiceBuilder};

use crate::kubernetes;

/// From nothing to ready takes about five seconds.
const PATIENCE: Duration = Duration::from_mins(2);
const PAUSE: Duration = Duration::from_millis(50);
/// Lines of a log shown with an error.
const LAST_LINES: usize = 15;
/// Plugins whose work a single host leaves out: they taint nodes, protect claims or check who
/// may make them grow.
const WITHOUT: &str = "DefaultTolerationSeconds,PersistentVolumeClaimResize,StorageObjectInUseProtection,TaintNodesByCondition";

const ADMISSION: &str = "admission.json";

/// Whether an acknowledged write is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Synced,
    /// Faster, and enough for a test.
    Unsynced,
}

/// The two processes and where they live.
#[derive(Debug)]
pub(crate) struct KubeApiServer {
    directory: TempDir,
    etcd: Child,
    api_server: Child,
    kubeconfig: Kubeconfig,
}

impl KubeApiServer {
    /// Starts both, with their files in a new directory below `parent`. Call it on a thread that lives as
    /// long as the process.
    pub(crate) fn start(
        programs: &kubernetes::ControlPlane,
        parent: &Path,
        durability: Durability,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("ferrovirt-kube-apiserver-")
            .tempdir_in(parent)
            .with_context(|| format!("make a directory in {}", parent.display()))?;
        let at = directory.path();
        let [client_port, peer_port, secure_port] = free_ports()?;
        let certificates = Certificates::make(at)?;
        let admission = admission().to_string();
        fs::write(at.join(ADMISSION), admission).context("write the settings of admission")?;
        let mut flags = etcd_flags(at, client_port, peer_port);
        if durability == Durability::Unsynced {
            flags.push("--unsafe-no-fsync=true".to_owned());
        }
        let etcd = spawn(at, &programs.etcd, &flags)?;
        let flags = api_server_flags(at, client_port, secure_port);
        let api_server = spawn(at, &programs.api_server, &flags)?;
        Ok(Self {
            directory,
            etcd,
            api_server,
            kubeconfig: certificates.kubeconfig(secure_port)?,
        })
    }

    /// A client, once the server is ready.
    pub(crate) async fn client(&self) -> Result<Client> {
        ready_client(&self.kubeconfig).await
    }

    pub(crate) const fn kubeconfig(&self) -> &Kubeconfig {
        &self.kubeconfig
    }

    /// Both processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        [&self.etcd, &self.api_server]
            .into_iter()
            .filter_map(Child::id)
            .collect()
    }

    /// The last log lines of both.
    pub(crate) fn end_of_logs(&self) -> String {
        let logs = ["etcd", "kube-apiserver"].map(|program| {
            let log = self.directory.path().join(format!("{program}.log"));
            let text = fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let begin = lines.len().saturating_sub(LAST_LINES);
            let last = lines.get(begin..).unwrap_or_default().join("\n  ");
            format!("; the end of the log of {program}:\n  {last}\n")
        });
        format!("send requests{}", logs.concat())
    }

    /// Ends both, the API server first: it would wait for an etcd that is gone.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.api_server.kill().await.context("end the API server")?;
        self.etcd.kill().await.context("end etcd")
    }
}

/// A client of a server, once that is ready.
pub(crate) async fn ready_client(kubeconfig: &Kubeconfig) -> Result<Client> {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await?;
    let client = Client::try_from(config)?;
    let ready = async {
        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            match client.request_text(request).await {
                Ok(_) => return anyhow::Ok(()),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    match tokio::time::timeout(PATIENCE, ready).await {
        Ok(outcome) => outcome?,
        Err(_) => bail!("the API server is not ready after {} s", PATIENCE.as_secs()),
    }
    Ok(client)
}

/// A client of a server whose connections come from this address of this machine.
pub(crate) async fn client_from(kubeconfig: &Kubeconfig, address: IpAddr) -> Result<Client> {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await?;
    let mut connector = HttpConnector::new();
    connector.set_local_address(Some(address));
    connector.enforce_http(false);
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

/// Everything that is signed.
pub(crate) struct Certificates {
    authority: Authority,
    admin: Identity,
}

impl Certificates {
    /// Makes `ca.crt`, and `server` and `accounts` with their keys, in that directory.
    pub(crate) fn make(at: &Path) -> Result<Self> {
        let validity = Validity::starting(Timestamp::now(), SignedDuration::from_hours(24));
        let authority = Authority::create("differential", validity)?;
        let server = authority.issue(&Leaf {
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            usage: Usage::Server,
            ..Leaf::server("kubernetes.default.svc", validity)
        })?;
        let admin = authority.issue(&Leaf::user("differential", &["system:masters"], validity))?;
        let accounts = authority.issue(&Leaf::server("service-accounts", validity))?;
        server.save(&at.join("server.crt"), &at.join("server.key"))?;
        accounts.save(&at.join("accounts.crt"), &at.join("accounts.key"))?;
        let trust = at.join("ca.crt");
        fs::write(&trust, authority.trust().pem()).context("write the authority")?;
        Ok(Self { authority, admin })
    }

    /// Of the administrator.
    pub(crate) fn kubeconfig(&self, port: u16) -> Result<Kubeconfig> {
        self.kubeconfig_with(&self.admin, port)
    }

    /// Of a user without groups.
    pub(crate) fn kubeconfig_of(&self, user: &str, port: u16) -> Result<Kubeconfig> {
        let validity = Validity::starting(Timestamp::now(), SignedDuration::from_hours(24));
        let identity = self.authority.issue(&Leaf::user(user, &[], validity))?;
        self.kubeconfig_with(&identity, port)
    }

    fn kubeconfig_with(&self, identity: &Identity, port: u16) -> Result<Kubeconfig> {
        let base64 = |pem: &str| k8s_openapi::ByteString(pem.as_bytes().to_vec());
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "certificate-authority-data": base64(self.authority.trust().pem()),
            }}],
            "users": [{"name": "it", "user": {
                "client-certificate-data": base64(identity.certificate_pem()),
                "client-key-data": base64(identity.key_pem()),
            }}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        serde_json::from_value(text).context("make a kubeconfig")
    }
}

fn etcd_flags(at: &Path, client_port: u16, peer_port: u16) -> Vec<String> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    vec![
        format!("--data-dir={}", at.join("etcd").display()),
        format!("--listen-client-urls={}", url(client_port)),
        format!("--advertise-client-urls={}", url(client_port)),
        format!("--listen-peer-urls={}", url(peer_port)),
        format!("--initial-advertise-peer-urls={}", url(peer_port)),
        format!("--initial-cluster=default={}", url(peer_port)),
        "--log-level=warn".to_owned(),
    ]
}

fn api_server_flags(at: &Path, etcd_port: u16, port: u16) -> Vec<String> {
    let file = |name: &str| at.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", file("certificates")),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        // A certificate holds the public key, and the server takes it from there.
        format!("--service-account-key-file={}", file("accounts.crt")),
        format!(
            "--service-account-signing-key-file={}",
            file("accounts.key")
        ),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--disable-admission-plugins={WITHOUT}"),
        format!("--admission-control-config-file={}", file(ADMISSION)),
    ]
}

/// Pod Security as on a single host: `baseline` without a label.
fn admission() -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "PodSecurity", "configuration": {
            "apiVersion": "pod-security.admission.config.k8s.io/v1",
            "kind": "PodSecurityConfiguration",
            "defaults": {"enforce": "baseline"},
            "exemptions": {"namespaces": ["kube-system", "kubevirt"]},
        }}],
    })
}

/// Free ports, held until all are known so that they differ.
fn free_ports() -> Result<[u16; 3]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port");
    let listeners = [listen()?, listen()?, listen()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// Starts a program that ends with this process; its output goes to a file in `at`.
fn spawn(at: &Path, program: &Path, flags: &[String]) -> Result<Child> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let log: PathBuf = at.join(format!("{name}.log"));
    let log = fs::File::create(&log).with_context(|| format!("make {}", log.display()))?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(flags)
        .current_dir(at)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("share the log")?)
        .stderr(log)
        // Ctrl-C at the terminal is for us alone.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {name}"))
}
