//! Pulls from a real registry server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use image_store::{
    Compression, Credentials, Digest, ImageConfig, ImageError, InUse, LayoutWriter, PullPolicy,
};
use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use tempfile::TempDir;

use crate::fixture::{Fixture, entry, read, reason, write_layout};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// `hunter2` for user `anna`, as a bcrypt hash of low cost.
pub(crate) const HTPASSWD: &str =
    "anna:$2b$04$abcdefghijklmnopqrstuuV3duMsC0HpUex6N9qapiuOHHWkwRXVm\n";

/// A registry on a free loopback port, stopped when dropped.
pub(crate) struct Registry {
    pub(crate) address: String,
    pub(crate) data: TempDir,
    child: Child,
}

impl Registry {
    pub(crate) fn start(settings: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        // The port is free now, and the kernel does not assign it again soon.
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let address = format!("127.0.0.1:{port}");
        let config = data.path().join("config.yml");
        let root = data.path().join("data");
        std::fs::write(
            &config,
            format!(
                "version: 0.1\nlog: {{level: info}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\nhttp:\n  addr: {address}\n{settings}",
                root.display()
            ),
        )
        .unwrap();
        let mut child = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("docker-registry is installed by scripts/setup.sh");
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the registry ended");
            assert!(Instant::now() < deadline, "the registry does not listen");
        }
        // The registry would block on a full pipe.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self {
            address,
            data,
            child,
        }
    }

    pub(crate) fn name(&self, image: &str) -> String {
        format!("{}/{image}", self.address)
    }

    /// Uploads a layout's only image.
    async fn push(&self, layout: &Path, image: &str, auth: &RegistryAuth) -> Digest {
        let blob = |digest: &str| {
            let hex = digest.trim_start_matches("sha256:");
            std::fs::read(layout.join("blobs/sha256").join(hex)).unwrap()
        };
        let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
        let index = json(&std::fs::read(layout.join("index.json")).unwrap());
        let digest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
        let bytes = blob(&digest);
        let manifest = json(&bytes);
        let client = Client::new(ClientConfig {
            protocol: ClientProtocol::Http,
            ..ClientConfig::default()
        });
        let reference: Reference = self.name(image).parse().unwrap();
        client
            .auth(&reference, auth, oci_client::RegistryOperation::Push)
            .await
            .unwrap();
        client.store_auth_if_needed(&self.address, auth).await;
        let layers = manifest["layers"].as_array().unwrap().iter();
        for descriptor in layers.chain([&manifest["config"]]) {
            let digest = descriptor["digest"].as_str().unwrap();
            client
                .push_blob(&reference, blob(digest), digest)
                .await
                .unwrap();
        }
        let media_type = MANIFEST.parse().unwrap();
        client
            .push_manifest_raw(&reference, bytes, media_type)
            .await
            .unwrap();
        digest.parse().unwrap()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

async fn ensure(
    fixture: &Fixture,
    name: &str,
    policy: PullPolicy,
) -> Result<image_store::Image, ImageError> {
    fixture
        .store
        .ensure(name, policy, &Credentials::anonymous())
        .await
}

#[tokio::test]
async fn image_is_pulled_once_and_kept_across_restarts() {
    let registry = Registry::start("");
    let fixture = Fixture::new().await;
    let layout = fixture.directory.path().join("up.oci");
    let mut writer = LayoutWriter::create(&layout, 3).unwrap();
    writer
        .add_entries(
            vec![entry("a", "lower"), entry("b", "lower")],
            Compression::Gzip,
        )
        .unwrap();
    writer
        .add_entries(vec![entry("b", "upper")], Compression::Zstd(3))
        .unwrap();
    let config = ImageConfig {
        cmd: vec!["/b".to_owned()],
        ..ImageConfig::default()
    };
    writer.finish("x/x:1", &config).unwrap();
    let digest = registry
        .push(&layout, "team/app:1", &RegistryAuth::Anonymous)
        .await;
    let name = registry.name("team/app:1");

    let never = ensure(&fixture, &name, PullPolicy::Never).await;
    assert!(reason(never).starts_with("ErrImageNeverPull"));
    let calls = (0..8).map(|_| ensure(&fixture, &name, PullPolicy::IfNotPresent));
    let images = futures::future::try_join_all(calls).await.unwrap();
    assert!(images.iter().all(|image| image.digest == digest));
    assert_eq!(
        (read(&images[0], "a"), read(&images[0], "b")),
        ("lower".into(), "upper".into())
    );
    assert_eq!(images[0].config.cmd, ["/b"]);
    assert_eq!(fixture.store.references()[&name], digest);

    // By digest too.
    let by_digest = registry.name(&format!("team/app@{digest}"));
    assert_eq!(
        ensure(&fixture, &by_digest, PullPolicy::Always)
            .await
            .unwrap(),
        images[0]
    );

    drop(registry);
    let store = image_store::ImageStore::open(fixture.store_path()).unwrap();
    let found = store
        .ensure(&name, PullPolicy::Never, &Credentials::anonymous())
        .await
        .unwrap();
    assert_eq!(found, images[0]);
    let gone = store
        .ensure(&name, PullPolicy::Always, &Credentials::anonymous())
        .await;
    assert!(reason(gone).starts_with("ErrImagePull"));
}

#[tokio::test]
async fn moved_tag_is_followed_with_policy_always() {
    let registry = Registry::start("");
    let fixture = Fixture::new().await;
    let layout = fixture.directory.path().join("up.oci");
    let name = registry.name("app:latest");
    write_layout(&layout, "x/x:1", "one");
    registry
        .push(&layout, "app:latest", &RegistryAuth::Anonymous)
        .await;
    let first = ensure(&fixture, &name, PullPolicy::IfNotPresent)
        .await
        .unwrap();
    write_layout(&layout, "x/x:1", "two");
    registry
        .push(&layout, "app:latest", &RegistryAuth::Anonymous)
        .await;
    assert_eq!(
        ensure(&fixture, &name, PullPolicy::IfNotPresent)
            .await
            .unwrap(),
        first
    );
    let second = ensure(&fixture, &name, PullPolicy::Always).await.unwrap();
    assert_eq!(read(&second, "hello"), "two");
    for _ in 0..2 {
        fixture
            .store
            .collect(InUse::default(), || false)
            .await
            .unwrap();
    }
    assert!(fixture.store.references().is_empty());
    assert_eq!(
        ensure(&fixture, &name, PullPolicy::IfNotPresent)
            .await
            .unwrap(),
        second
    );
}

#[tokio::test]
async fn missing_image_has_a_clear_message() {
    let registry = Registry::start("");
    let fixture = Fixture::new().await;
    let name = registry.name("team/absent:1");
    let text = reason(ensure(&fixture, &name, PullPolicy::IfNotPresent).await);
    let expected = format!(
        "ErrImagePull: pull image {name}: {} does not have",
        registry.address
    );
    assert!(text.starts_with(&expected), "{text}");
    fixture.assert_no_leftovers();
}

#[tokio::test]
async fn corrupt_blob_of_a_registry_is_refused() {
    let registry = Registry::start("");
    let fixture = Fixture::new().await;
    let layout = fixture.directory.path().join("up.oci");
    write_layout(&layout, "x/x:1", "honest");
    registry
        .push(&layout, "app:1", &RegistryAuth::Anonymous)
        .await;
    let manifest = std::fs::read_dir(layout.join("blobs/sha256")).unwrap();
    for blob in manifest {
        let path = blob.unwrap().path();
        if std::fs::read(&path).unwrap().starts_with(&[0x1f, 0x8b]) {
            let hex = path.file_name().unwrap().to_str().unwrap().to_owned();
            let blobs = "data/docker/registry/v2/blobs/sha256";
            let stored = registry
                .data
                .path()
                .join(blobs)
                .join(&hex[..2])
                .join(&hex)
                .join("data");
            let length = stored.metadata().unwrap().len();
            let mut file = std::fs::File::create(&stored).unwrap();
            file.write_all(&vec![b'x'; usize::try_from(length).unwrap()])
                .unwrap();
        }
    }
    let text = reason(ensure(&fixture, &registry.name("app:1"), PullPolicy::Always).await);
    assert!(text.starts_with("ErrImagePull"), "{text}");
    fixture.assert_no_leftovers();
}

#[tokio::test]
async fn private_registry_requires_the_pull_secret() {
    let directory = tempfile::tempdir().unwrap();
    let passwords = directory.path().join("htpasswd");
    std::fs::write(&passwords, HTPASSWD).unwrap();
    let settings = format!(
        "auth:\n  htpasswd: {{realm: test, path: {}}}\n",
        passwords.display()
    );
    let registry = Registry::start(&settings);
    let fixture = Fixture::new().await;
    let layout = fixture.directory.path().join("up.oci");
    write_layout(&layout, "x/x:1", "private");
    let auth = RegistryAuth::Basic("anna".to_owned(), "hunter2".to_owned());
    registry.push(&layout, "app:1", &auth).await;
    let name = registry.name("app:1");
    let secret = |password: &str| {
        let json = serde_json::json!({
            "auths": { &registry.address: { "username": "anna", "password": password } }
        });
        Credentials::from_docker_config_json(json.to_string().as_bytes()).unwrap()
    };

    let anonymous = reason(ensure(&fixture, &name, PullPolicy::Always).await);
    assert!(anonymous.contains("or needs credentials"), "{anonymous}");
    let wrong = fixture
        .store
        .ensure(&name, PullPolicy::Always, &secret("wrong"))
        .await;
    let wrong = reason(wrong);
    assert!(
        wrong.contains("refuses the credentials") && !wrong.contains("wrong"),
        "{wrong}"
    );
    let right = fixture
        .store
        .ensure(&name, PullPolicy::Always, &secret("hunter2"))
        .await
        .unwrap();
    assert_eq!(read(&right, "hello"), "private");
}
