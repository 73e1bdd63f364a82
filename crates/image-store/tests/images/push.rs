//! Pushes to a real registry program.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use error_chain::error_chain;
use image_store::{
    Compression, Credentials, Digest, ImageConfig, LayoutWriter, Listener, Package, Progress,
    PullPolicy, Push, Transport,
};
use parking_lot::Mutex;

use crate::fixture::{Bench, entry, read, write_layout};
use crate::registry::{HTPASSWD, Registry};

/// What was told of blobs, in the order in which it was.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(Digest, u64, Progress)>>>);

impl Told {
    fn push(&self, credentials: Credentials) -> Push {
        let told = Arc::clone(&self.0);
        let listener: Listener = Arc::new(move |digest, size, progress| {
            told.lock().push((digest.clone(), size, progress));
        });
        Push {
            credentials,
            transport: Transport::Usual,
            listener,
        }
    }

    /// How often that was told since the last call, and forgets it.
    fn count(&self, wanted: Progress) -> usize {
        let told = std::mem::take(&mut *self.0.lock());
        told.iter()
            .filter(|(_, _, progress)| *progress == wanted)
            .count()
    }
}

fn layout(directory: &Path, content: &str) -> PathBuf {
    let place = directory.join(format!("{content}.oci"));
    let mut writer = LayoutWriter::create(&place, 7).unwrap();
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
    place
}

#[tokio::test]
async fn what_is_pushed_can_be_pulled_and_is_sent_once() {
    let registry = Registry::start("");
    let bench = Bench::new().await;
    let told = Told::default();
    let how = told.push(Credentials::anonymous());
    let name = registry.name("team/app:1");

    let first = Package::open(&layout(bench.directory.path(), "one")).unwrap();
    assert_eq!(first.name(), "team/app:1");
    first.push(&name, &how).await.unwrap();
    assert_eq!(
        told.count(Progress::Arrived),
        3,
        "two layers and the configuration"
    );
    let anonymous = Credentials::anonymous();
    let image = bench
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
    assert_eq!(told.count(Progress::IsThere), 3, "all of it was there");

    // The tag moves, what was there stays under its digest, and the common layer is not sent again.
    let second = Package::open(&layout(bench.directory.path(), "two")).unwrap();
    second.push(&name, &how).await.unwrap();
    assert_eq!(told.count(Progress::IsThere), 1);
    for (reference, package) in [
        (name.clone(), &second),
        (
            registry.name(&format!("team/app@{}", first.digest())),
            &first,
        ),
    ] {
        let image = bench
            .store
            .ensure(&reference, PullPolicy::Always, &anonymous)
            .await
            .unwrap();
        assert_eq!(image.digest, *package.digest(), "{reference}");
    }
}

#[tokio::test]
async fn a_large_blob_arrives_whole_and_is_told_of_on_its_way() {
    let registry = Registry::start("");
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("large.oci");
    // Noise, which no compression makes smaller.
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b' ' + u8::try_from(state >> 59).unwrap())
    });
    let noise: String = noise.take(9 << 20).collect();
    write_layout(&place, "x/x:1", &noise);
    let told = Told::default();
    let package = Package::open(&place).unwrap();
    let how = told.push(Credentials::anonymous());
    package.push(&registry.name("large:1"), &how).await.unwrap();
    let told = told.0.lock();
    let (largest, size, _) = told.iter().max_by_key(|(_, size, _)| *size).unwrap();
    let mut last = 0;
    for (_, _, progress) in told.iter().filter(|(digest, _, _)| digest == largest) {
        match progress {
            Progress::Sent(sent) => {
                assert!(*sent > last, "it grows");
                last = *sent;
            }
            Progress::Arrived => assert_eq!(last, *size, "to the end"),
            Progress::IsThere => panic!("nobody sent it before"),
        }
    }
    assert!(*size > 4 << 20, "{size}");
}

#[tokio::test]
async fn a_private_registry_wants_the_right_credentials() {
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
    let told = Told::default();
    for (credentials, expected) in [
        (Credentials::anonymous(), "run docker login"),
        (
            login("wrong"),
            "its credentials are wrong, or may not push there",
        ),
    ] {
        let error = package
            .push(&name, &told.push(credentials))
            .await
            .unwrap_err();
        let text = error_chain(&error);
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("anna"), "{text}");
        assert_eq!(error.reason(), "RegistryRefuses");
    }
    package
        .push(&name, &told.push(login("hunter2")))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_damaged_layout_is_not_pushed() {
    let registry = Registry::start("");
    let directory = tempfile::tempdir().unwrap();
    let place = layout(directory.path(), "damaged");
    for blob in std::fs::read_dir(place.join("blobs/sha256")).unwrap() {
        let path = blob.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let package = Package::open(&place).unwrap();
    let told = Told::default();
    let name = registry.name("app:1");
    let error = package
        .push(&name, &told.push(Credentials::anonymous()))
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
async fn what_stands_in_the_way_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let place = layout(directory.path(), "lost");
    let package = Package::open(&place).unwrap();
    let told = Told::default();
    let how = told.push(Credentials::anonymous());
    let error = package.push("127.0.0.1:1/app:1", &how).await.unwrap_err();
    assert!(
        error_chain(&error).starts_with("talk to registry 127.0.0.1:1: "),
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
async fn plain_http_is_for_loopback_unless_asked_for() {
    let registry = Registry::start("");
    let directory = tempfile::tempdir().unwrap();
    let package = Package::open(&layout(directory.path(), "plain")).unwrap();
    let told = Told::default();
    let mut how = told.push(Credentials::anonymous());
    // A name of this machine that does not look like one.
    let port = registry.address.rsplit_once(':').unwrap().1;
    let name = format!("0.0.0.0:{port}/app:1");
    let error = package.push(&name, &how).await.unwrap_err();
    assert_eq!(error.reason(), "ErrImagePush", "{}", error_chain(&error));
    how.transport = Transport::Plain;
    package.push(&name, &how).await.unwrap();
}
