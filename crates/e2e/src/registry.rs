//! A real image registry on a loopback port, which tests start and stop.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::Stdio,
};

use oci_client::{
    Reference,
    client::{Client, ClientConfig, ClientProtocol},
    secrets::RegistryAuth,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::eventually;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Its content survives a stop, and is deleted on drop.
#[derive(Debug)]
pub struct Registry {
    port: u16,
    data: TempDir,
    process: Option<Child>,
}

impl Registry {
    pub fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("find a port");
        Self {
            port: listener.local_addr().expect("it has an address").port(),
            data: tempfile::tempdir().expect("make a temporary directory"),
            process: None,
        }
    }

    /// Host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The reference of an image in this registry.
    pub fn name(&self, image: &str) -> String {
        format!("{}/{image}", self.address())
    }

    pub async fn up(&mut self) {
        self.up_with("").await;
    }

    /// Starts the registry for users with a password, and there are none.
    pub async fn up_for_users(&mut self) {
        let users = self.data.path().join("users");
        std::fs::write(&users, "").expect("write the list of users");
        let users = users.display();
        let auth = format!("auth: {{htpasswd: {{realm: test, path: {users}}}}}\n");
        self.up_with(&auth).await;
    }

    async fn up_with(&mut self, more: &str) {
        let settings = self.data.path().join("settings.yaml");
        let data = self.data.path().join("data");
        let text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"127.0.0.1:{}\"}}\n{more}",
            data.display(),
            self.port
        );
        std::fs::write(&settings, text).expect("write the settings");
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&settings).kill_on_drop(true);
        command.stderr(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().expect("scripts/setup.sh installs it");
        let address = (Ipv4Addr::LOCALHOST, self.port);
        eventually("the registry listens", || TcpStream::connect(address)).await;
        self.process = Some(process);
    }

    pub async fn down(&mut self) {
        let mut process = self.process.take().expect("the registry runs");
        process.kill().await.expect("end the registry");
    }

    /// Uploads the only image of a layout.
    pub async fn push(&self, layout: &Path, image: &str) {
        let blob = |digest: &str| {
            let hex = digest.trim_start_matches("sha256:");
            std::fs::read(layout.join("blobs/sha256").join(hex)).expect("read a blob")
        };
        let digest = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str();
            digest.expect("a descriptor has a digest").to_owned()
        };
        let index = std::fs::read(layout.join("index.json")).expect("read the index");
        let index: Value = serde_json::from_slice(&index).expect("the index is JSON");
        let bytes = blob(&digest(&index["manifests"][0]));
        let manifest: Value = serde_json::from_slice(&bytes).expect("the manifest is JSON");
        let client = Client::new(ClientConfig {
            protocol: ClientProtocol::Http,
            ..ClientConfig::default()
        });
        let at: Reference = self.name(image).parse().expect("it is a name");
        let push = oci_client::RegistryOperation::Push;
        let auth = client.auth(&at, &RegistryAuth::Anonymous, push).await;
        auth.expect("anyone may push");
        let layers = manifest["layers"].as_array().into_iter().flatten();
        for descriptor in layers.chain([&manifest["config"]]) {
            let digest = digest(descriptor);
            let pushed = client.push_blob(&at, blob(&digest), &digest).await;
            pushed.expect("push a blob");
        }
        let media_type = MANIFEST.parse().expect("it is a media type");
        let pushed = client.push_manifest_raw(&at, bytes, media_type).await;
        pushed.expect("push the manifest");
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}
