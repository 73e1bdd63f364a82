//! Images from layout directories and archives, and the store.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::fixture::{Fixture, NAME, entry, read, reason, write_layout};
use image_store::{
    Compression, Content, Credentials, Entry, Image, ImageConfig, ImageStore, InUse, LayoutWriter,
    Owner, PullPolicy,
};

#[tokio::test]
async fn layout_directory_is_unpacked_with_its_config() {
    let fixture = Fixture::new().await;
    let digest = write_layout(&fixture.layout("a.oci"), NAME, "one");
    let image = fixture.ensure("docker.io/ferrovirt/test:1").await.unwrap();
    assert_eq!(image.digest, digest);
    assert_eq!(read(&image, "hello"), "one");
    assert_eq!(image.config.entrypoint, ["/hello"]);
    let user = image.user().unwrap();
    assert_eq!((user.uid, user.gid), (107, 36));
}

#[tokio::test]
async fn replaced_layout_is_found_and_same_one_is_reused() {
    let fixture = Fixture::new().await;
    write_layout(&fixture.layout("a.oci"), NAME, "one");
    let first = fixture.ensure(NAME).await.unwrap();
    assert_eq!(fixture.ensure(NAME).await.unwrap(), first);
    write_layout(&fixture.layout("a.oci"), NAME, "two");
    let second = fixture.ensure(NAME).await.unwrap();
    assert_ne!(first.digest, second.digest);
    assert_eq!(read(&second, "hello"), "two");
    assert_eq!(read(&first, "hello"), "one");
}

#[tokio::test]
async fn archive_is_read_in_place() {
    let fixture = Fixture::new().await;
    let place = fixture.directory.path().join("a.oci");
    let digest = write_layout(&place, NAME, "packed");
    let mut archive = tar::Builder::new(std::fs::File::create(fixture.layout("a.tar")).unwrap());
    archive.append_dir_all(".", &place).unwrap();
    archive.finish().unwrap();
    let image = fixture.ensure(NAME).await.unwrap();
    assert_eq!(image.digest, digest);
    assert_eq!(read(&image, "hello"), "packed");
}

#[tokio::test]
async fn all_compressions_unpack_to_the_same_tree() {
    for compression in [Compression::Plain, Compression::Gzip, Compression::Zstd(3)] {
        let fixture = Fixture::new().await;
        let mut writer = LayoutWriter::create(fixture.layout("a.oci"), 1).unwrap();
        writer
            .add_entries(vec![entry("f", &"x".repeat(100_000))], compression)
            .unwrap();
        writer.finish(NAME, &ImageConfig::default()).unwrap();
        let image = fixture.ensure(NAME).await.unwrap();
        assert_eq!(read(&image, "f").len(), 100_000, "{compression:?}");
    }
}

#[tokio::test]
async fn layouts_are_reproducible() {
    let fixture = Fixture::new().await;
    let tree = fixture.directory.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::write(tree.join("a/z"), "linked").unwrap();
    std::fs::hard_link(tree.join("a/z"), tree.join("a.first")).unwrap();
    std::fs::write(tree.join("a/b/c"), "deep").unwrap();
    std::os::unix::fs::symlink("b/c", tree.join("a/link")).unwrap();
    let build = |place: &Path| {
        let mut writer = LayoutWriter::create(place, 1).unwrap();
        let mut entries = Entry::from_directory(&tree).unwrap();
        entries.reverse();
        writer.add_entries(entries, Compression::Zstd(3)).unwrap();
        writer.finish(NAME, &ImageConfig::default()).unwrap()
    };
    let first = build(&fixture.layout("a.oci"));
    let second = build(&fixture.layout("a.oci"));
    assert_eq!(first, second);
    let image = fixture.ensure(NAME).await.unwrap();
    assert_eq!(read(&image, "a.first"), "linked");
    assert_eq!(read(&image, "a/link"), "deep");
    let inode =
        |path| std::os::unix::fs::MetadataExt::ino(&image.root.join(path).metadata().unwrap());
    assert_eq!(inode("a.first"), inode("a/z"));
}

#[tokio::test]
async fn hard_link_may_have_a_name_before_its_target() {
    let fixture = Fixture::new().await;
    let target = entry("z", "linked");
    let link = Entry {
        path: "a".to_owned(),
        content: Content::HardLink("z".to_owned()),
        ..target.clone()
    };
    let mut writer = LayoutWriter::create(fixture.layout("a.oci"), 1).unwrap();
    writer
        .add_entries(vec![target, link], Compression::Plain)
        .unwrap();
    writer.finish(NAME, &ImageConfig::default()).unwrap();
    let image = fixture.ensure(NAME).await.unwrap();
    assert_eq!(read(&image, "a"), "linked");
}

#[tokio::test]
async fn missing_images_and_invalid_names_have_kubelet_reasons() {
    let fixture = Fixture::new().await;
    let anonymous = Credentials::anonymous();
    let absent = fixture
        .store
        .ensure("ferrovirt/absent:1", PullPolicy::Never, &anonymous)
        .await;
    let text = reason(absent);
    assert!(
        text.starts_with("ErrImageNeverPull: image docker.io/ferrovirt/absent:1"),
        "{text}"
    );
    for name in ["", "UPPER/case", "a b", "x@sha256:12"] {
        let text = reason(fixture.ensure(name).await);
        assert!(text.starts_with("InvalidImageName: "), "{name}: {text}");
    }
}

#[tokio::test]
async fn damaged_layer_is_refused_without_leftovers() {
    let fixture = Fixture::new().await;
    write_layout(&fixture.layout("a.oci"), NAME, "one");
    let blobs = fixture.layout("a.oci").join("blobs/sha256");
    for blob in std::fs::read_dir(&blobs).unwrap() {
        let path = blob.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let text = reason(fixture.ensure(NAME).await);
    assert!(
        text.starts_with("ErrImagePull") && text.contains("digest"),
        "{text}"
    );
    fixture.assert_no_leftovers();
}

#[tokio::test]
async fn concurrent_callers_share_one_unpacking() {
    let fixture = Fixture::new().await;
    write_layout(&fixture.layout("a.oci"), NAME, "one");
    let calls = (0..20).map(|_| fixture.ensure(NAME));
    let images = futures::future::try_join_all(calls).await.unwrap();
    assert!(images.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(
        std::fs::read_dir(fixture.store_path().join("trees"))
            .unwrap()
            .count(),
        1
    );
}

#[tokio::test]
async fn opening_the_store_removes_unfinished_work() {
    let fixture = Fixture::new().await;
    let half = fixture.store_path().join("tmp/0/tree/rootfs");
    std::fs::create_dir_all(&half).unwrap();
    let store = ImageStore::open(fixture.store_path()).unwrap();
    assert!(!half.exists());
    write_layout(&fixture.layout("a.oci"), NAME, "one");
    store.add_layouts(fixture.layout("")).await.unwrap();
    let image = store
        .ensure(NAME, PullPolicy::Never, &Credentials::anonymous())
        .await
        .unwrap();
    assert_eq!(read(&image, "hello"), "one");
}

/// Images with the names `ferrovirt/<letter>:1`, used in this order.
async fn images(fixture: &Fixture, letters: [&str; 3]) -> [Image; 3] {
    let mut images = Vec::new();
    for letter in letters {
        let name = format!("ferrovirt/{letter}:1");
        write_layout(&fixture.layout(&format!("{letter}.oci")), &name, letter);
        images.push(fixture.ensure(&name).await.unwrap());
    }
    images.try_into().unwrap()
}

#[tokio::test]
async fn collection_keeps_used_and_recently_used_images() {
    let fixture = Fixture::new().await;
    let [a, b, c] = images(&fixture, ["a", "b", "c"]).await;
    let in_use = InUse {
        digests: BTreeSet::from([a.digest.clone()]),
        references: BTreeSet::from(["ferrovirt/c:1".to_owned()]),
        since: None,
    };
    let collect = || fixture.store.collect(in_use.clone(), || false);
    assert!(collect().await.unwrap().is_empty(), "all were just used");
    assert_eq!(collect().await.unwrap(), [b.digest]);
    assert!(a.root.exists() && !b.root.exists() && c.root.exists());
    let unfinished = std::fs::read_dir(fixture.store_path().join("tmp")).unwrap();
    assert_eq!(unfinished.count(), 0);

    let again = fixture.ensure("ferrovirt/b:1").await.unwrap();
    assert_eq!(read(&again, "hello"), "b");
}

/// The times of the image's marker.
fn last_use(image: &Image) -> std::fs::Metadata {
    std::fs::metadata(image.root.with_file_name("image.json")).unwrap()
}

#[tokio::test]
async fn longest_unused_images_are_removed_first_until_it_is_enough() {
    let fixture = Fixture::new().await;
    let images = images(&fixture, ["a", "b", "c"]).await;
    for (image, hours) in images.iter().zip([2, 3, 1]) {
        let before = last_use(image).modified().unwrap() - Duration::from_hours(hours);
        let marker = image.root.with_file_name("image.json");
        let file = std::fs::File::options().write(true).open(marker).unwrap();
        file.set_modified(before).unwrap();
    }
    let never = fixture.store.collect(InUse::default(), || true).await;
    assert!(never.unwrap().is_empty());
    let [a, b, c] = images;
    let left = [a.root.clone(), b.root.clone(), c.root.clone()];
    let is_enough = move || left.iter().filter(|root| root.exists()).count() < 2;
    let removed = fixture.store.collect(InUse::default(), is_enough).await;
    assert_eq!(removed.unwrap(), [b.digest, a.digest]);
    let recent = InUse {
        since: last_use(&c).modified().ok(),
        ..InUse::default()
    };
    let removed = fixture.store.collect(recent, || false).await;
    assert!(removed.unwrap().is_empty());
    assert!(c.root.exists());
}

#[tokio::test]
async fn invalid_layout_fails_registration_and_is_ignored_later() {
    let fixture = Fixture::new().await;
    write_layout(&fixture.layout("good.oci"), NAME, "one");
    let broken = fixture.layout("broken.oci");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("oci-layout"), "{}").unwrap();
    std::fs::write(broken.join("index.json"), "{").unwrap();
    assert!(fixture.ensure(NAME).await.is_ok());
    let error = fixture
        .store
        .add_layouts(fixture.layout(""))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("broken.oci"), "{error}");
}

#[tokio::test]
async fn owners_and_modes_are_preserved() {
    use std::os::unix::fs::MetadataExt as _;
    let fixture = Fixture::new().await;
    let mut writer = LayoutWriter::create(fixture.layout("a.oci"), 99).unwrap();
    let disk = Entry {
        path: "disk/disk.qcow2".to_owned(),
        mode: 0o440,
        owner: Owner { uid: 107, gid: 107 },
        content: Content::Bytes(vec![0; 300_000]),
    };
    writer
        .add_entries(vec![disk], Compression::Zstd(3))
        .unwrap();
    writer.finish(NAME, &ImageConfig::default()).unwrap();
    let image = fixture.ensure(NAME).await.unwrap();
    let found = image.root.join("disk/disk.qcow2").metadata().unwrap();
    assert_eq!(
        (found.uid(), found.gid(), found.mode() & 0o7777),
        (107, 107, 0o440)
    );
    assert_eq!((found.size(), found.mtime()), (300_000, 99));
    assert!(
        found.blocks() * 512 < found.size(),
        "blocks of zeros take space"
    );
}
