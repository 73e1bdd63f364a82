//! Pushes to a real registry server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use error_chain::error_chain;
use image_store::{
    Compression, Credentials, Digest, ImageConfig, LayoutWriter, Package, Progress,
    ProgressListener, PullPolicy, Push, Transport,
};
use parking_lot::Mutex;

use crate::fixture::{Fixture, entry, read, write_layout};
use crate::registry::{HTPASSWD, Registry};

/// The reported progress of blobs, in order.
#[derive(Clone, Default)]
struct ProgressLog(Arc<Mutex<Vec<(Digest, u64, Progress)>>>);

impl ProgressLog {
    fn push(&self, credentials: Credentials) -> Push {
        let log = Arc::clone(&self.0);
        let listener: ProgressListener = Arc::new(move |digest, size, progress| {
            log.lock().push((digest.clone(), size, progress));
        });
        Push {
            credentials,
            transport: Transport::TlsUnlessLoopback,
            listener,
        }
    }

    /// Counts this progress since the last call and clears the log.
    fn count(&self, wanted: Progress) -> usize {
        let entries = std::mem::take(&mut *self.0.lock());
        entries
            .iter()
            .filter(|(_, _, progress)| *progress == wanted)
            .count()
    }
}

fn layout(directory: &Path, content: &str) -> PathBuf {
    let path = directory.join(format!("{content}.oci"));
    let mut writer = LayoutWriter::create(&path, 7).unwrap();
    let files = [
        vec![entry("lower", "the same")],
        vec![entry("upper", content)],
    ];
    for files in files {
        writer.add_entries(files, Compression::Gzip).unwrap();
    }
    writer
        .finish("team/app:1", &ImageConfig::default())
        .unwrap();
    path
}

#[tokio::test]
async fn pushed_image_can_be_pulled_and_is_sent_once() {
    let registry = Registry::start("");
    let fixture = Fixture::new().await;
    let log = ProgressLog::default();
    let how = log.push(Credentials::anonymous());
    let name = registry.name("team/app:1");

    let first = Package::open(&layout(fixture.directory.path(), "one")).unwrap();
    assert_eq!(first.name(), "team/app:1");
    first.push(&name, &how).await.unwrap();
    assert_eq!(
        log.count(Progress::Done),
        3,
        "two layers and the configuration"
    );
    let anonymous = Credentials::anonymous();
    let image = fixture
        .store
        .ensure(&name, PullPolicy::Always, &anonymous)
        .await
        .unwrap();
    assert_eq!(image.digest, *first.digest());
    assert_eq!(
        (read(&image, "lower"), read(&image, "upper")),
        ("the same".into(), "one".into())
    );

    first.push(&name, &how).await.unwrap();
    assert_eq!(
        log.count(Progress::AlreadyPresent),
        3,
        "all blobs were present"
    );

    // The tag moves, the first image stays under its digest, and the common layer is not sent again.
    let second = Package::open(&layout(fixture.directory.path(), "two")).unwrap();
    second.push(&name, &how).await.unwrap();
    assert_eq!(log.count(Progress::AlreadyPresent), 1);
    for (reference, package) in [
        (name.clone(), &second),
        (
            registry.name(&format!("team/app@{}", first.digest())),
            &first,
        ),
    ] {
        let image = fixture
            .store
            .ensure(&reference, PullPolicy::Always, &anonymous)
            .await
            .unwrap();
        assert_eq!(image.digest, *package.digest(), "{reference}");
    }
}

#[tokio::test]
async fn large_blob_is_pushed_with_progress() {
    let registry = Registry::start("");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.oci");
    // Incompressible data.
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b' ' + u8::try_from(state >> 59).unwrap())
    });
    let noise: String = noise.take(9 << 20).collect();
    write_layout(&path, "x/x:1", &noise);
    let log = ProgressLog::default();
    let package = Package::open(&path).unwrap();
    let how = log.push(Credentials::anonymous());
    package.push(&registry.name("large:1"), &how).await.unwrap();
    let entries = log.0.lock();
    let (largest, size, _) = entries.iter().max_by_key(|(_, size, _)| *size).unwrap();
    let mut last = 0;
    for (_, _, progress) in entries.iter().filter(|(digest, _, _)| digest == largest) {
        match progress {
            Progress::Sent(sent) => {
                assert!(*sent > last, "it grows");
                last = *sent;
            }
            Progress::Done => assert_eq!(last, *size, "to the end"),
            Progress::AlreadyPresent => panic!("the blob was not sent before"),
        }
    }
    assert!(*size > 4 << 20, "{size}");
}

#[tokio::test]
async fn private_registry_requires_credentials() {
    let directory = tempfile::tempdir().unwrap();
    let passwords = directory.path().join("htpasswd");
    std::fs::write(&passwords, HTPASSWD).unwrap();
    let settings = format!(
        "auth:\n  htpasswd: {{realm: test, path: {}}}\n",
        passwords.display()
    );
    let registry = Registry::start(&settings);
    let package = Package::open(&layout(directory.path(), "private")).unwrap();
    let name = registry.name("app:1");
    let login = |password: &str| {
        let login = serde_json::json!({"username": "anna", "password": password});
        let json = serde_json::json!({"auths": {&registry.address: login}});
        Credentials::from_docker_config_json(json.to_string().as_bytes()).unwrap()
    };
    let log = ProgressLog::default();
    for (credentials, expected) in [
        (Credentials::anonymous(), "run docker login"),
        (
            login("wrong"),
            "the credentials are wrong or may not push it",
        ),
    ] {
        let error = package
            .push(&name, &log.push(credentials))
            .await
            .unwrap_err();
        let text = error_chain(&error);
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("anna"), "{text}");
        assert_eq!(error.reason(), "RegistryRefuses");
    }
    package
        .push(&name, &log.push(login("hunter2")))
        .await
        .unwrap();
}

#[tokio::test]
async fn damaged_layout_is_not_pushed() {
    let registry = Registry::start("");
    let directory = tempfile::tempdir().unwrap();
    let path = layout(directory.path(), "damaged");
    for blob in std::fs::read_dir(path.join("blobs/sha256")).unwrap() {
        let path = blob.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let package = Package::open(&path).unwrap();
    let log = ProgressLog::default();
    let name = registry.name("app:1");
    let error = package
        .push(&name, &log.push(Credentials::anonymous()))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("does not have that digest"),
        "{error}"
    );
    assert!(
        !registry
            .data
            .path()
            .join("data/docker/registry/v2/repositories/app/_manifests")
            .exists()
    );
}

#[tokio::test]
async fn push_failures_name_the_cause() {
    let directory = tempfile::tempdir().unwrap();
    let path = layout(directory.path(), "lost");
    let package = Package::open(&path).unwrap();
    let log = ProgressLog::default();
    let how = log.push(Credentials::anonymous());
    let error = package.push("127.0.0.1:1/app:1", &how).await.unwrap_err();
    assert!(
        error_chain(&error).starts_with("communicate with registry 127.0.0.1:1: "),
        "{}",
        error_chain(&error)
    );
    let error = package.push("No Name", &how).await.unwrap_err();
    assert_eq!(error.reason(), "InvalidImageName");
    let error = Package::open(directory.path()).unwrap_err();
    assert!(
        error.to_string().contains("is not an OCI layout"),
        "{error}"
    );
}

#[tokio::test]
async fn plain_http_is_used_for_loopback_or_on_request() {
    let registry = Registry::start("");
    let directory = tempfile::tempdir().unwrap();
    let package = Package::open(&layout(directory.path(), "plain")).unwrap();
    let log = ProgressLog::default();
    let mut how = log.push(Credentials::anonymous());
    // An address of this host that is not a loopback address.
    let port = registry.address.rsplit_once(':').unwrap().1;
    let name = format!("0.0.0.0:{port}/app:1");
    let error = package.push(&name, &how).await.unwrap_err();
    assert_eq!(error.reason(), "ErrImagePush", "{}", error_chain(&error));
    how.transport = Transport::Plain;
    package.push(&name, &how).await.unwrap();
}
