//! Independent programs read the images: `bsdtar` (libarchive) uses the Joliet names, `isoinfo`
//! (genisoimage) both trees.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::process::Command;

use proptest::prelude::*;
use seed::{SeedError, iso9660};

/// An image in a temporary directory, for programs that read it.
struct OnDisk {
    directory: tempfile::TempDir,
}

impl OnDisk {
    fn new(image: &[u8]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("image.iso"), image).unwrap();
        Self { directory }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Vec<u8> {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.directory.path())
            .output()
            .unwrap_or_else(|error| {
                panic!("run {program} (apt packages libarchive-tools and genisoimage): {error}")
            });
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    fn extracted(&self, name: &str) -> Vec<u8> {
        self.run("bsdtar", &["-xOf", "image.iso", name])
    }
}

#[test]
fn image_fits_disks_with_blocks_of_4096_bytes() {
    let big = vec![7_u8; 3 * 2048];
    for length in [0, 1, 2048, 2049, 4096, 3 * 2048] {
        let image = iso9660("cidata", &[("user-data", &big[..length])]).unwrap();
        assert_eq!(image.len() % 4096, 0, "a file of {length} bytes");
        // The descriptor counts all sectors.
        let sectors = u32::from_le_bytes(image[16 * 2048 + 80..][..4].try_into().unwrap());
        assert_eq!(image.len(), usize::try_from(sectors).unwrap() * 2048);
    }
}

#[test]
fn names_and_contents_are_read_back() {
    let big = vec![7_u8; 5000];
    let files: [(&str, &[u8]); 5] = [
        ("user-data", b"#cloud-config\n"),
        ("meta-data", b"{}"),
        ("network-config", b""),
        ("openstack/latest/meta_data.json", &big),
        ("openstack/content/0000", b"x"),
    ];
    let image = OnDisk::new(&iso9660("cidata", &files).unwrap());
    for (name, content) in files {
        assert_eq!(image.extracted(name), content, "{name}");
        let joliet = image.run(
            "isoinfo",
            &["-J", "-i", "image.iso", "-x", &format!("/{name}")],
        );
        assert_eq!(joliet, content, "{name} as isoinfo reads it");
    }
    let short = image.run("isoinfo", &["-i", "image.iso", "-x", "/USER_DAT.;1"]);
    assert_eq!(short, b"#cloud-config\n");
    let description = String::from_utf8(image.run("isoinfo", &["-d", "-i", "image.iso"])).unwrap();
    assert!(description.contains("Volume id: cidata"), "{description}");
    let label = image.run("blkid", &["-p", "-o", "value", "-s", "LABEL", "image.iso"]);
    assert_eq!(label, b"cidata\n");
}

#[test]
fn large_directory_spans_sectors() {
    let names: Vec<String> = (0..200)
        .map(|n| format!("configuration-file-{n}.yaml"))
        .collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|n| (n.as_str(), n.as_bytes())).collect();
    let image = OnDisk::new(&iso9660("cfgdata", &files).unwrap());
    image.run("bsdtar", &["-xf", "image.iso"]);
    for name in &names {
        let content = std::fs::read_to_string(image.directory.path().join(name)).unwrap();
        assert_eq!(&content, name);
    }
    let listing = image.run("isoinfo", &["-i", "image.iso", "-f"]);
    assert_eq!(String::from_utf8(listing).unwrap().lines().count(), 200);
}

#[test]
fn same_input_gives_the_same_bytes() {
    let files: [(&str, &[u8]); 1] = [("user-data", b"a")];
    assert_eq!(iso9660("cidata", &files), iso9660("cidata", &files));
}

#[test]
fn unusable_names_are_refused() {
    let path = |path: &str| path.to_owned();
    let name = |bad: &str| SeedError::Name { path: path(bad) };
    let cases: [(&[&str], SeedError); 8] = [
        (&[""], name("")),
        (&["/a"], name("/a")),
        (&["a/../b"], name("a/../b")),
        (&["a;1"], name("a;1")),
        (&["a\n"], name("a\n")),
        (&["1/2/3/4/5/6/7/8"], name("1/2/3/4/5/6/7/8")),
        (&["a", "a"], SeedError::Duplicate { path: path("a") }),
        (&["a", "a/b"], SeedError::Duplicate { path: path("a/b") }),
    ];
    for (paths, expected) in cases {
        let files: Vec<(&str, &[u8])> = paths.iter().map(|p| (*p, &b""[..])).collect();
        assert_eq!(iso9660("cidata", &files), Err(expected), "{paths:?}");
    }
    for label in ["", "much-too-long-label", "ä"] {
        let label = label.to_owned();
        assert_eq!(iso9660(&label, &[]), Err(SeedError::Label { label }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_tree_is_read_back(files in prop::collection::btree_map(
        "([a-z][a-z0-9_.-]{0,20}/){0,3}[A-Za-z][A-Za-z0-9_.-]{0,30}x",
        prop::collection::vec(any::<u8>(), 0..3000),
        0..12,
    )) {
        let list: Vec<(&str, &[u8])> = files.iter().map(|(n, c)| (n.as_str(), c.as_slice())).collect();
        match iso9660("config-2", &list) {
            Ok(image) => {
                let image = OnDisk::new(&image);
                image.run("bsdtar", &["-xf", "image.iso"]);
                for (name, content) in &files {
                    prop_assert_eq!(&std::fs::read(image.directory.path().join(name)).unwrap(), content);
                }
            }
            // A generated name may be both a file and a directory.
            Err(error) => assert!(matches!(error, SeedError::Duplicate { .. }), "{error}"),
        }
    }
}

#[test]
fn joliet_label_is_padded_with_zeros() {
    let image = iso9660("cidata", &[("meta-data", b"x")]).unwrap();
    let label = &image[17 * 2048 + 40..17 * 2048 + 72];
    let text: Vec<u8> = "cidata".bytes().flat_map(|letter| [0, letter]).collect();
    assert_eq!(label[..12], text);
    assert_eq!(label[12..], [0; 20]);
}
