//! Unpacks valid and malicious layers.

use std::os::unix::fs::MetadataExt as _;

use crate::fixture::{Fixture, NAME, Tar, read, reason};
use image_store::{Credentials, ImageStore, Limits, PullPolicy};

#[tokio::test]
async fn attributes_of_entries_are_set() {
    let fixture = Fixture::new().await;
    let layer = Tar::new()
        .directory("d/")
        .file("d/f", "content")
        .symlink("d/s", "f")
        .hard_link("d/h", "d/f")
        .entry("d/pipe", tar::EntryType::Fifo, None, "")
        .entry("d/null", tar::EntryType::Char, None, "")
        .done();
    let image = fixture.unpack(vec![layer]).await.unwrap();
    let stat = |path: &str| image.root.join(path).symlink_metadata().unwrap();
    let file = stat("d/f");
    assert_eq!(
        (file.uid(), file.gid(), file.mode() & 0o7777),
        (107, 36, 0o640)
    );
    assert_eq!((file.mtime(), file.nlink()), (1000, 2));
    assert_eq!((stat("d").mtime(), stat("d").uid()), (1000, 107));
    assert_eq!((stat("d/s").uid(), stat("d/s").mtime()), (107, 1000));
    assert_eq!(stat("d/pipe").mode() & 0o170_000, 0o010_000);
    assert!(
        !image.root.join("d/null").exists(),
        "device nodes are left out"
    );
}

#[tokio::test]
async fn upper_layers_replace_and_hide_entries() {
    let fixture = Fixture::new().await;
    let lower = Tar::new()
        .file("keep", "lower")
        .file("gone", "lower")
        .file("replaced", "lower")
        .directory("was-dir/")
        .file("was-dir/x", "lower")
        .file("was-file", "lower")
        .directory("opaque/")
        .file("opaque/old", "lower")
        .directory("opaque/sub/")
        .file("opaque/sub/old", "lower")
        .done();
    let upper = Tar::new()
        .file(".wh.gone", "")
        .file("replaced", "upper")
        .file("was-dir", "upper")
        .directory("was-file/")
        .file("was-file/x", "upper")
        // Entries of the same layer stay, before and after the opaque whiteout.
        .directory("opaque/sub/")
        .file("opaque/sub/new", "upper")
        .file("opaque/.wh..wh..opq", "")
        .file("opaque/new", "upper")
        .file("both", "upper")
        .file(".wh.both", "")
        .done();
    let image = fixture.unpack(vec![lower, upper]).await.unwrap();
    for (path, expected) in [
        ("keep", Some("lower")),
        ("gone", None),
        ("replaced", Some("upper")),
        ("was-dir", Some("upper")),
        ("was-file/x", Some("upper")),
        ("opaque/old", None),
        ("opaque/sub/old", None),
        ("opaque/sub/new", Some("upper")),
        ("opaque/new", Some("upper")),
        ("both", Some("upper")),
        (".wh.gone", None),
        ("opaque/.wh..wh..opq", None),
    ] {
        let found = std::fs::read_to_string(image.root.join(path)).ok();
        assert_eq!(found.as_deref(), expected, "{path}");
    }
}

#[tokio::test]
async fn paths_with_dots_are_refused() {
    for layer in [
        Tar::new().file("../escaped", "x").done(),
        Tar::new().file("a/../../escaped", "x").done(),
        Tar::new()
            .file("real", "x")
            .hard_link("link", "../../../../etc/passwd")
            .done(),
    ] {
        let fixture = Fixture::new().await;
        let text = reason(fixture.unpack(vec![layer]).await);
        assert!(
            text.starts_with("ErrImagePull") && text.contains("\"..\""),
            "{text}"
        );
        fixture.assert_no_leftovers();
    }
}

#[tokio::test]
async fn links_stay_inside_the_tree() {
    let fixture = Fixture::new().await;
    let outside = fixture.directory.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "untouched").unwrap();
    let target = outside.to_str().unwrap();
    let through = |path: &str| format!("{path}/secret");
    let layer = Tar::new()
        .symlink("absolute", target)
        .file(&through("absolute"), "written")
        .symlink("climbing", "../../../../../../../../../../../tmp")
        .file("climbing/ferrovirt-image-store-escape", "written")
        // A link under a later file's own name is replaced, not followed.
        .symlink("victim", &format!("{target}/secret"))
        .file("victim", "written")
        // A hard link to a link makes a second link, not one to what it points to.
        .symlink("pointer", &format!("{target}/secret"))
        .hard_link("second", "pointer")
        .file("second", "written")
        // The absolute path of an entry is one below the root.
        .file("/rooted", "inside")
        .done();
    // Whether or not the image is refused, files outside are unchanged.
    let result = fixture.unpack(vec![layer]).await;
    assert_eq!(
        std::fs::read_to_string(outside.join("secret")).unwrap(),
        "untouched"
    );
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert!(!std::path::Path::new("/tmp/ferrovirt-image-store-escape").exists());
    if let Ok(image) = result {
        assert_eq!(read(&image, "rooted"), "inside");
        assert_eq!(read(&image, "victim"), "written");
    }
}

#[tokio::test]
async fn entries_below_a_link_follow_it_inside_the_tree() {
    let fixture = Fixture::new().await;
    let lower = Tar::new()
        .directory("usr/")
        .directory("usr/lib/")
        .symlink("lib", "/usr/lib")
        .done();
    let upper = Tar::new().file("lib/libc.so", "code").done();
    let image = fixture.unpack(vec![lower, upper]).await.unwrap();
    assert_eq!(read(&image, "usr/lib/libc.so"), "code");
    assert!(
        image
            .root
            .join("lib")
            .symlink_metadata()
            .unwrap()
            .is_symlink()
    );
}

#[tokio::test]
async fn whiteouts_stay_inside_the_tree() {
    let fixture = Fixture::new().await;
    let outside = fixture.directory.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("kept"), "").unwrap();
    let lower = Tar::new().symlink("out", outside.to_str().unwrap()).done();
    let upper = Tar::new()
        .file("out/.wh.kept", "")
        .file("out/.wh..wh..opq", "")
        .file(".wh...", "")
        .file(".wh..", "")
        .done();
    fixture.unpack(vec![lower, upper]).await.unwrap();
    assert!(outside.join("kept").exists());
}

#[tokio::test]
async fn only_safe_extended_attributes_are_set() {
    // cap_net_bind_service, effective and permitted, revision 2.
    let capability: &[u8] = &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let fixture = Fixture::new().await;
    let layer = Tar::new()
        .extended(&[
            ("SCHILY.xattr.security.capability", capability),
            ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
        ])
        .file("program", "x")
        .done();
    let image = fixture.unpack(vec![layer]).await.unwrap();
    let path = image.root.join("program");
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(&path, "security.capability", &mut value).unwrap();
    assert_eq!(&value[..length], capability);
    assert!(rustix::fs::getxattr(&path, "trusted.overlay.redirect", &mut value).is_err());
}

#[tokio::test]
async fn image_beyond_its_limits_is_refused() {
    let fixture = Fixture::new().await;
    let mut many = Tar::new();
    for number in 0..20 {
        many = many.file(&format!("f{number}"), "x");
    }
    let cases = [
        (
            Limits {
                bytes: 1 << 20,
                entries: 10,
            },
            many.done(),
            "10 entries",
        ),
        (
            Limits {
                bytes: 100_000,
                entries: 10,
            },
            Tar::new().file("large", &"x".repeat(200_000)).done(),
            "100000 bytes",
        ),
        (
            Limits {
                bytes: 64 << 20,
                entries: 10,
            },
            // A name of three megabytes exceeds the limit for headers.
            {
                let name = "n".repeat(3 << 20);
                Tar::new()
                    .entry("l", tar::EntryType::GNULongName, None, &name)
                    .file("f", "")
                    .done()
            },
            "bytes",
        ),
    ];
    for (limits, layer, expected) in cases {
        // Writes the layout; the result with default limits does not matter.
        drop(fixture.unpack(vec![layer]).await);
        let root = fixture.directory.path().join("small");
        let store = ImageStore::open_with_limits(&root, limits).unwrap();
        store.add_layouts(fixture.layout("")).await.unwrap();
        let result = store
            .ensure(NAME, PullPolicy::Never, &Credentials::anonymous())
            .await;
        let text = reason(result);
        assert!(text.contains(expected), "{text}");
        assert_eq!(std::fs::read_dir(root.join("trees")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn truncated_layer_is_refused() {
    let fixture = Fixture::new().await;
    let mut layer = Tar::new().file("f", &"x".repeat(5000)).done();
    layer.truncate(2000);
    let text = reason(fixture.unpack(vec![layer]).await);
    assert!(text.starts_with("ErrImagePull"), "{text}");
    fixture.assert_no_leftovers();
}
