//! Layout directories and archives as a source of images, and the store around them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::fixture::{Bench, NAME, entry, read, reason, write_layout};
use image_store::{
    Compression, Content, Credentials, Entry, ImageConfig, ImageStore, LayoutWriter, Owner,
    PullPolicy,
};

#[tokio::test]
async fn a_layout_directory_becomes_a_tree_with_its_configuration() {
    let bench = Bench::new().await;
    let digest = write_layout(&bench.layout("a.oci"), NAME, "one");
    let image = bench.ensure("docker.io/ferrovirt/test:1").await.unwrap();
    assert_eq!(image.digest, digest);
    assert_eq!(read(&image, "hello"), "one");
    assert_eq!(image.config.entrypoint, ["/hello"]);
    let user = image.user().unwrap();
    assert_eq!((user.uid, user.gid), (107, 36));
}

#[tokio::test]
async fn a_replaced_layout_is_noticed_and_the_same_one_is_not_unpacked_again() {
    let bench = Bench::new().await;
    write_layout(&bench.layout("a.oci"), NAME, "one");
    let first = bench.ensure(NAME).await.unwrap();
    assert_eq!(bench.ensure(NAME).await.unwrap(), first);
    write_layout(&bench.layout("a.oci"), NAME, "two");
    let second = bench.ensure(NAME).await.unwrap();
    assert_ne!(first.digest, second.digest);
    assert_eq!(read(&second, "hello"), "two");
    assert_eq!(read(&first, "hello"), "one");
}

#[tokio::test]
async fn an_archive_is_read_in_place() {
    let bench = Bench::new().await;
    let place = bench.directory.path().join("a.oci");
    let digest = write_layout(&place, NAME, "packed");
    let mut archive = tar::Builder::new(std::fs::File::create(bench.layout("a.tar")).unwrap());
    archive.append_dir_all(".", &place).unwrap();
    archive.finish().unwrap();
    let image = bench.ensure(NAME).await.unwrap();
    assert_eq!(image.digest, digest);
    assert_eq!(read(&image, "hello"), "packed");
}

#[tokio::test]
async fn all_compressions_unpack_to_the_same_tree() {
    for compression in [Compression::Plain, Compression::Gzip, Compression::Zstd(3)] {
        let bench = Bench::new().await;
        let mut writer = LayoutWriter::create(bench.layout("a.oci"), 1).unwrap();
        writer
            .add_entries(vec![entry("f", &"x".repeat(100_000))], compression)
            .unwrap();
        writer.finish(NAME, &ImageConfig::default()).unwrap();
        let image = bench.ensure(NAME).await.unwrap();
        assert_eq!(read(&image, "f").len(), 100_000, "{compression:?}");
    }
}

#[tokio::test]
async fn layouts_are_the_same_bits_from_the_same_input() {
    let bench = Bench::new().await;
    let tree = bench.directory.path().join("tree");
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
    let first = build(&bench.layout("a.oci"));
    let second = build(&bench.layout("a.oci"));
    assert_eq!(first, second);
    let image = bench.ensure(NAME).await.unwrap();
    assert_eq!(read(&image, "a.first"), "linked");
    assert_eq!(read(&image, "a/link"), "deep");
    let inode =
        |path| std::os::unix::fs::MetadataExt::ino(&image.root.join(path).metadata().unwrap());
    assert_eq!(inode("a.first"), inode("a/z"));
}

#[tokio::test]
async fn missing_images_and_bad_names_have_the_kubelets_reasons() {
    let bench = Bench::new().await;
    let anonymous = Credentials::anonymous();
    let absent = bench
        .store
        .ensure("ferrovirt/absent:1", PullPolicy::Never, &anonymous)
        .await;
    let text = reason(absent);
    assert!(
        text.starts_with("ErrImageNeverPull: image docker.io/ferrovirt/absent:1"),
        "{text}"
    );
    for name in ["", "UPPER/case", "a b", "x@sha256:12"] {
        let text = reason(bench.ensure(name).await);
        assert!(text.starts_with("InvalidImageName: "), "{name}: {text}");
    }
}

#[tokio::test]
async fn a_damaged_layer_is_refused_and_leaves_nothing() {
    let bench = Bench::new().await;
    write_layout(&bench.layout("a.oci"), NAME, "one");
    let blobs = bench.layout("a.oci").join("blobs/sha256");
    for blob in std::fs::read_dir(&blobs).unwrap() {
        let path = blob.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let text = reason(bench.ensure(NAME).await);
    assert!(
        text.starts_with("ErrImagePull") && text.contains("digest"),
        "{text}"
    );
    bench.assert_no_leftovers();
}

#[tokio::test]
async fn many_callers_share_one_unpacking() {
    let bench = Bench::new().await;
    write_layout(&bench.layout("a.oci"), NAME, "one");
    let calls = (0..20).map(|_| bench.ensure(NAME));
    let images = futures::future::try_join_all(calls).await.unwrap();
    assert!(images.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(
        std::fs::read_dir(bench.store_path().join("trees"))
            .unwrap()
            .count(),
        1
    );
}

#[tokio::test]
async fn an_opened_store_sweeps_what_a_killed_process_left() {
    let bench = Bench::new().await;
    let half = bench.store_path().join("tmp/0/tree/rootfs");
    std::fs::create_dir_all(&half).unwrap();
    let store = ImageStore::open(bench.store_path()).unwrap();
    assert!(!half.exists());
    write_layout(&bench.layout("a.oci"), NAME, "one");
    store.add_layouts(bench.layout("")).await.unwrap();
    let image = store
        .ensure(NAME, PullPolicy::Never, &Credentials::anonymous())
        .await
        .unwrap();
    assert_eq!(read(&image, "hello"), "one");
}

#[tokio::test]
async fn collection_spares_what_is_kept_and_what_was_just_given_out() {
    let bench = Bench::new().await;
    write_layout(&bench.layout("a.oci"), "ferrovirt/a:1", "a");
    write_layout(&bench.layout("b.oci"), "ferrovirt/b:1", "b");
    let a = bench.ensure("ferrovirt/a:1").await.unwrap();
    let b = bench.ensure("ferrovirt/b:1").await.unwrap();
    let keep = BTreeSet::from([a.digest.clone()]);
    assert!(bench.store.retain(&keep).await.unwrap().is_empty());
    assert_eq!(bench.store.retain(&keep).await.unwrap(), [b.digest]);
    assert!(a.root.exists() && !b.root.exists());
    assert_eq!(
        std::fs::read_dir(bench.store_path().join("tmp"))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test]
async fn a_broken_layout_is_an_error_when_added_and_ignored_when_it_appears_later() {
    let bench = Bench::new().await;
    write_layout(&bench.layout("good.oci"), NAME, "one");
    let broken = bench.layout("broken.oci");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("oci-layout"), "{}").unwrap();
    std::fs::write(broken.join("index.json"), "{").unwrap();
    assert!(bench.ensure(NAME).await.is_ok());
    let error = bench.store.add_layouts(bench.layout("")).await.unwrap_err();
    assert!(error.to_string().contains("broken.oci"), "{error}");
}

#[tokio::test]
async fn owners_and_modes_of_written_entries_arrive() {
    use std::os::unix::fs::MetadataExt as _;
    let bench = Bench::new().await;
    let mut writer = LayoutWriter::create(bench.layout("a.oci"), 99).unwrap();
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
    let image = bench.ensure(NAME).await.unwrap();
    let found = image.root.join("disk/disk.qcow2").metadata().unwrap();
    assert_eq!(
        (found.uid(), found.gid(), found.mode() & 0o7777),
        (107, 107, 0o440)
    );
    assert_eq!((found.size(), found.mtime()), (300_000, 99));
    assert!(
        found.blocks() * 512 < found.size(),
        "blocks of zeros take room"
    );
}
