use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::process::Command;

use proptest::prelude::*;
use reasons::Reason;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;

const MIB: u64 = 1 << 20;
const CLUSTER: u64 = 64 << 10;

/// A claim with backups, and one to restore to.
struct Claims {
    dir: tempfile::TempDir,
}

/// What an increment changes: a cluster, and the byte that fills it; 0 zeros it.
type Change = (u64, u8);

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.expect("QEMU's tools are installed");
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
}

impl Claims {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["backup", "target"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("backup")
    }

    fn target(&self, size: u64) -> Place {
        Place::Directory {
            path: self.dir.path().join("target"),
            size,
        }
    }

    fn disk(&self) -> PathBuf {
        self.dir.path().join("target/disk.img")
    }

    fn file(&self, directory: &str) -> PathBuf {
        self.root().join(directory).join("root.qcow2")
    }

    /// Makes a directory with one file, as a backup does.
    fn back_up(&self, directory: &str, parent: Option<&str>, size: u64, changes: &[Change]) {
        fs::create_dir(self.root().join(directory)).unwrap();
        let path = self.file(directory);
        let path = path.to_str().unwrap();
        run(
            "qemu-img",
            &["create", "-q", "-f", "qcow2", path, &size.to_string()],
        );
        for (cluster, byte) in changes {
            let at = cluster * CLUSTER;
            let length = CLUSTER.min(size - at);
            let write = match byte {
                0 => format!("write -z {at} {length}"),
                byte => format!("write -P {byte} {at} {length}"),
            };
            run("qemu-io", &["-f", "qcow2", "-c", &write, path]);
        }
        self.describe(directory, parent, |_| {});
    }

    /// Writes the manifest, with a change.
    fn describe(&self, directory: &str, parent: Option<&str>, change: impl FnOnce(&mut Value)) {
        let content = fs::read(self.file(directory)).unwrap();
        let mut manifest = json!({
            "version": 1, "type": if parent.is_some() { "Incremental" } else { "Full" },
            "parent": parent, "checkpoint": directory, "namespace": "n", "name": "vm", "uid": "u", "quiesced": true,
            "volumes": [{
                "volume": "root", "file": "root.qcow2", "bytes": content.len(),
                "sha256": hex::encode(Sha256::digest(&content)),
            }],
        });
        change(&mut manifest);
        let path = self.root().join(directory).join("backup.json");
        fs::write(path, manifest.to_string()).unwrap();
    }

    fn restore(&self, directory: &str, size: u64) -> Result<Restored, ImportError> {
        restore(&self.root(), directory, "root", &self.target(size))
    }

    fn refuses(&self, directory: &str, expected: &str) {
        let error = self.restore(directory, 64 * MIB).unwrap_err();
        let message = error_chain(&error);
        assert!(message.contains(expected), "{message}");
        assert_eq!(error.reason(), Reason::BackupNotUsable, "{message}");
        assert!(!error.is_transient(), "{message}");
        let left = fs::read_dir(self.dir.path().join("target")).unwrap();
        assert_eq!(left.count(), 0, "{message}");
        let inspected = inspect(
            &self.root(),
            directory,
            &["root".to_owned()],
            Depth::Content,
        );
        // Before anything is written.
        assert_eq!(error_chain(&inspected.unwrap_err()), message);
    }
}

/// The disk after those changes, in their order.
fn expected(size: u64, changes: &[&[Change]]) -> Vec<u8> {
    let mut disk = vec![0; usize::try_from(size).unwrap()];
    for (cluster, byte) in changes.iter().copied().flatten() {
        let at = usize::try_from(cluster * CLUSTER).unwrap();
        let end = (at + usize::try_from(CLUSTER).unwrap()).min(disk.len());
        disk[at..end].fill(*byte);
    }
    disk
}

#[test]
fn chain_becomes_one_disk() {
    let claims = Claims::new();
    let size = 3 * MIB + 512;
    let full: &[Change] = &[(0, 1), (1, 1), (5, 1), (48, 9)];
    let first: &[Change] = &[(1, 2), (5, 0), (20, 2)];
    let second: &[Change] = &[(20, 3), (21, 3), (0, 0)];
    claims.back_up("a", None, size, full);
    claims.back_up("b", Some("a"), size, first);
    claims.back_up("c", Some("b"), size, second);
    for (directory, changes) in [
        ("a", &[full][..]),
        ("b", &[full, first]),
        ("c", &[full, first, second]),
    ] {
        let done = claims.restore(directory, size).unwrap();
        let whole = Restored {
            bytes: size,
            verified: true,
        };
        assert_eq!(done, whole);
        assert!(
            fs::read(claims.disk()).unwrap() == expected(size, changes),
            "{directory}"
        );
    }
    for depth in [Depth::Headers, Depth::Content] {
        let found = inspect(&claims.root(), "c", &[], depth).unwrap();
        assert_eq!(found, BTreeMap::from([("root".to_owned(), size)]));
    }
    // The same on a device, whose old bytes do not show through.
    let device = claims.dir.path().join("device");
    fs::write(&device, vec![7; 4 << 20]).unwrap();
    let place = Place::Device(device.clone());
    restore(&claims.root(), "c", "root", &place).unwrap();
    let mut all = expected(size, &[full, first, second]);
    all.resize(4 << 20, 0);
    assert!(fs::read(device).unwrap() == all);
}

#[test]
fn disk_has_the_size_that_it_had_last() {
    let claims = Claims::new();
    let full: &[Change] = &[(0, 1), (31, 1)];
    claims.back_up("a", None, 2 * MIB, full);
    claims.back_up("smaller", Some("a"), MIB, &[]);
    claims.back_up("larger", Some("smaller"), 3 * MIB, &[(47, 2)]);
    claims.restore("smaller", MIB).unwrap();
    assert!(fs::read(claims.disk()).unwrap() == expected(MIB, &[&full[..1]]));
    claims.restore("larger", 3 * MIB).unwrap();
    let grown = expected(3 * MIB, &[&full[..1], &[(47, 2)]]);
    assert!(fs::read(claims.disk()).unwrap() == grown);
    // A claim may be larger, and must not be smaller.
    claims.restore("smaller", 2 * MIB).unwrap();
    assert_eq!(fs::metadata(claims.disk()).unwrap().len(), 2 * MIB);
    let error = claims.restore("larger", 2 * MIB).unwrap_err();
    assert_eq!(error.reason(), Reason::DiskDoesNotFit);
    let device = claims.dir.path().join("device");
    fs::write(&device, vec![7; 1 << 20]).unwrap();
    let place = Place::Device(device.clone());
    let error = restore(&claims.root(), "larger", "root", &place).unwrap_err();
    assert_eq!(error.reason(), Reason::DiskDoesNotFit);
    assert!(fs::read(device).unwrap().iter().all(|byte| *byte == 7));
    // The old disk is there until the new one is complete.
    assert_eq!(fs::metadata(claims.disk()).unwrap().len(), 2 * MIB);
}

#[test]
fn backups_without_checksums_are_restored_and_reported() {
    let claims = Claims::new();
    claims.back_up("a", None, MIB, &[(0, 1)]);
    claims.back_up("b", Some("a"), MIB, &[(1, 1)]);
    claims.describe("a", None, |manifest| {
        manifest["volumes"][0]
            .as_object_mut()
            .unwrap()
            .remove("sha256");
    });
    assert!(!claims.restore("b", MIB).unwrap().verified);
}

#[test]
fn disk_that_the_parent_lacks_is_not_restored() {
    let claims = Claims::new();
    claims.back_up("a", None, MIB, &[(0, 1)]);
    claims.describe("a", None, |manifest| manifest["volumes"] = json!([]));
    claims.back_up("b", Some("a"), MIB, &[(1, 1)]);
    claims.refuses("b", "directory a has no volume root");
}

/// A directory of the same name is not enough.
#[test]
fn parent_is_the_backup_that_the_increment_was_made_on() {
    let claims = Claims::new();
    claims.back_up("a", None, MIB, &[(0, 1)]);
    claims.back_up("b", Some("a"), MIB, &[(1, 1)]);
    let sum = hex::encode(Sha256::digest(
        fs::read(claims.root().join("a/backup.json")).unwrap(),
    ));
    let name_parent = |sum: &str| {
        claims.describe("b", Some("a"), |manifest| {
            manifest["parentSha256"] = sum.into();
        });
    };
    name_parent(&sum);
    claims.restore("b", MIB).unwrap();
    fs::remove_file(claims.disk()).unwrap();
    name_parent("0");
    claims.refuses("b", "its parentSha256 has not 64 hexadecimal digits");
    name_parent(&"0".repeat(64));
    claims.refuses("b", "its sha256 is another one");
    name_parent(&sum);
    claims.describe("a", None, |manifest| manifest["quiesced"] = false.into());
    claims.refuses("b", "its sha256 is another one");
    claims.describe("b", Some("a"), |_| {});
    for (field, value, expected) in [
        ("uid", json!("other"), "another start of it"),
        ("name", json!("other"), "it is of another VM"),
        (
            "checkpoint",
            json!("c"),
            "its checkpoint is not its directory",
        ),
        (
            "checkpoint",
            json!(null),
            "its checkpoint is not its directory",
        ),
    ] {
        claims.describe("a", None, |manifest| manifest[field] = value);
        claims.refuses("b", expected);
        // On its own it is as good as before.
        claims.restore("a", MIB).unwrap();
        fs::remove_file(claims.disk()).unwrap();
    }
}

#[test]
fn size_of_the_disk_is_that_of_the_manifest() {
    let claims = Claims::new();
    claims.back_up("a", None, MIB, &[(0, 1)]);
    claims.describe("a", None, |manifest| {
        manifest["volumes"][0]["capacity"] = (2 * MIB).into();
    });
    claims.refuses(
        "a",
        "its disk has 1048576 bytes, and backup.json says 2097152",
    );
    claims.describe("a", None, |manifest| {
        manifest["volumes"][0]["capacity"] = MIB.into();
    });
    claims.restore("a", MIB).unwrap();
}

/// What is written is what was verified.
#[test]
fn file_that_changes_while_it_is_read_leaves_no_disk() {
    let claims = Claims::new();
    claims.back_up("a", None, MIB, &[(0, 1)]);
    claims.describe("a", None, |manifest| {
        manifest["volumes"][0]
            .as_object_mut()
            .unwrap()
            .remove("sha256");
    });
    let layers = chain::open(&claims.root(), "a", "root").unwrap();
    let file = fs::File::options().write(true).open(claims.file("a"));
    let file = file.unwrap();
    let length = file.metadata().unwrap().len();
    file.write_all_at(&[0], length).unwrap();
    let error = fill(layers, &claims.target(MIB)).unwrap_err();
    assert!(
        matches!(error, ImportError::BackupChanged { .. }),
        "{error}"
    );
    assert!(error.is_transient());
    assert!(!claims.disk().exists());
}

#[test]
fn manifests_that_no_backup_has_are_refused() {
    let claims = Claims::new();
    claims.back_up("a", None, MIB, &[(0, 1)]);
    let cases: [(&str, Value, &str); 12] = [
        ("/version", json!(2), "its version is 2"),
        ("/type", json!("Other"), "unknown variant"),
        ("/type", json!("Incremental"), "needs a parent"),
        ("/parent", json!("a"), "a full backup has no parent"),
        (
            "/volumes/0/volume",
            json!("../root"),
            "is no name of a volume",
        ),
        (
            "/volumes/0/file",
            json!("../a/root.qcow2"),
            "is no name of a file",
        ),
        (
            "/volumes/0/file",
            json!("/etc/passwd"),
            "is no name of a file",
        ),
        ("/volumes/0/file", json!(".."), "is no name of a file"),
        ("/volumes/0/file", json!("none"), "is missing"),
        ("/volumes/0/bytes", json!(5), "backup.json says 5"),
        ("/volumes/0/sha256", json!("0"), "hexadecimal digits"),
        ("/volumes/0/sha256", json!("0".repeat(64)), "its sha256 is"),
    ];
    for (path, value, expected) in cases {
        claims.describe("a", None, |manifest| {
            *manifest.pointer_mut(path).unwrap() = value;
        });
        claims.refuses("a", expected);
    }
    let manifest = claims.root().join("a/backup.json");
    for (text, expected) in [
        ("", "EOF"),
        ("{\"version\": 1}", "missing field"),
        (&"[".repeat(1 << 16), "invalid type"),
        (&" ".repeat((1 << 20) + 1), "more than 1048576 bytes"),
    ] {
        fs::write(&manifest, text).unwrap();
        claims.refuses("a", expected);
    }
    fs::remove_file(&manifest).unwrap();
    claims.refuses("a", "so its backup is not complete");
    for name in ["", "..", "../backup/a", ".a", "/etc"] {
        claims.refuses(name, "is no name of a directory");
    }
    claims.refuses("none", "no directory none");
}

#[test]
fn chains_have_an_end() {
    let claims = Claims::new();
    claims.back_up("a", Some("b"), MIB, &[]);
    claims.back_up("b", Some("a"), MIB, &[]);
    claims.refuses("a", "builds on itself");
    claims.describe("a", Some("a"), |_| {});
    claims.refuses("a", "builds on itself");
    claims.describe("a", Some("../a"), |_| {});
    claims.refuses("b", "is no name of a directory");
    claims.describe("a", None, |manifest| manifest["name"] = "other".into());
    claims.refuses("b", "it is of another VM");
    for at in 0..MAX_CHAIN {
        let (own, parent) = (format!("l{at}"), format!("l{}", at + 1));
        fs::create_dir(claims.root().join(&own)).unwrap();
        fs::copy(claims.file("a"), claims.file(&own)).unwrap();
        claims.describe(&own, Some(&parent), |_| {});
    }
    claims.refuses("l1", "no directory l101");
    claims.refuses("l0", "more than 101 backups");
    // A hundred increments and the full one.
    claims.describe("l100", None, |_| {});
    claims.restore("l0", MIB).unwrap();
}

#[test]
fn links_and_other_kinds_of_files_are_refused() {
    let claims = Claims::new();
    claims.back_up("a", None, MIB, &[(0, 1)]);
    symlink("a", claims.root().join("link")).unwrap();
    claims.refuses("link", "no directory link");
    fs::write(claims.root().join("file"), "").unwrap();
    claims.refuses("file", "no directory file");
    let file = claims.file("a");
    let secret = claims.dir.path().join("secret.qcow2");
    fs::rename(&file, &secret).unwrap();
    symlink(&secret, &file).unwrap();
    claims.refuses("a", "or a symbolic link");
    fs::remove_file(&file).unwrap();
    run("mkfifo", &[file.to_str().unwrap()]);
    claims.refuses("a", "it is not a regular file");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    claims.refuses("a", "it is not a regular file");
    let manifest = claims.root().join("a/backup.json");
    fs::rename(&manifest, claims.dir.path().join("m")).unwrap();
    symlink("../../m", &manifest).unwrap();
    claims.refuses("a", "has no backup.json");
}

/// Makes a file of a backup by QEMU's tool, and describes it.
fn with_image(arguments: &[&str]) -> Claims {
    let claims = Claims::new();
    fs::create_dir(claims.root().join("a")).unwrap();
    let path = claims.file("a");
    let mut all = vec!["create", "-q", "-f", "qcow2"];
    all.extend_from_slice(arguments);
    all.extend_from_slice(&[path.to_str().unwrap(), "4M"]);
    run("qemu-img", &all);
    claims.describe("a", None, |_| {});
    claims
}

#[test]
fn images_that_refer_to_other_files_are_refused() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    secret.as_file().set_len(4 << 20).unwrap();
    let path = secret.path().to_str().unwrap();
    let claims = with_image(&["-F", "raw", "-b", path]);
    claims.refuses("a", "it has a backing file");
    let other = format!("data_file={path}");
    let claims = with_image(&["-o", &other]);
    claims.refuses("a", "it has an external data file");
}

#[test]
fn images_that_no_backup_writes_are_refused() {
    let claims = with_image(&["-o", "extended_l2=on,cluster_size=128k"]);
    claims.refuses("a", "qcow2 features that a backup does not have");
    let claims = with_image(&["-o", "cluster_size=4k"]);
    claims.refuses("a", "clusters are not of 64 KiB");
    let claims = with_image(&[]);
    fs::write(claims.file("a"), vec![1; 4096]).unwrap();
    claims.describe("a", None, |_| {});
    claims.refuses("a", "it is no qcow2 image");
    let claims = Claims::new();
    fs::create_dir(claims.root().join("a")).unwrap();
    let raw = claims.dir.path().join("raw");
    fs::write(&raw, vec![5; 1 << 20]).unwrap();
    let path = claims.file("a");
    let (raw, path) = (raw.to_str().unwrap(), path.to_str().unwrap());
    run(
        "qemu-img",
        &["convert", "-c", "-f", "raw", "-O", "qcow2", raw, path],
    );
    claims.describe("a", None, |_| {});
    claims.refuses("a", "it is compressed");
}

#[test]
fn headers_that_lie_are_refused() {
    // Offset in the header, bytes, expected.
    let cases: [(u64, &[u8], &str); 6] = [
        (24, &(1_u64 << 50).to_be_bytes(), "its disk is too large"),
        (
            24,
            &513_u64.to_be_bytes(),
            "the size of its disk is impossible",
        ),
        (
            24,
            &0_u64.to_be_bytes(),
            "the size of its disk is impossible",
        ),
        (
            24,
            &(1_u64 << 40).to_be_bytes(),
            "its first table is too short",
        ),
        (
            40,
            &(1_u64 << 40).to_be_bytes(),
            "a table is not in the file",
        ),
        (40, &0_u64.to_be_bytes(), "a table is not in the file"),
    ];
    for (at, bytes, expected) in cases {
        let claims = with_image(&[]);
        let file = fs::File::options()
            .write(true)
            .open(claims.file("a"))
            .unwrap();
        file.write_all_at(bytes, at).unwrap();
        claims.describe("a", None, |_| {});
        claims.refuses("a", expected);
    }
}

/// A file that is not what its backup wrote leaves no disk.
#[test]
fn damaged_files_leave_no_disk() {
    let claims = Claims::new();
    claims.back_up("a", None, 4 * MIB, &[(3, 1), (60, 1)]);
    let whole = fs::read(claims.file("a")).unwrap();
    fs::write(claims.file("a"), &whole[..whole.len() - 70_000]).unwrap();
    claims.refuses("a", "backup.json says");
    claims.describe("a", None, |_| {});
    claims.refuses("a", "it ends before its data does");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_tables_panic(
        changes in prop::collection::vec((0_usize..(5 << 16), any::<u8>()), 1..24),
    ) {
        let claims = with_image(&[]);
        let mut bytes = fs::read(claims.file("a")).unwrap();
        for (at, byte) in changes {
            // Headers and tables more often than the rest.
            let at = if at % 3 == 0 { at % 112 } else { at };
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        fs::write(claims.file("a"), bytes).unwrap();
        claims.describe("a", None, |_| {});
        let _any = claims.restore("a", 64 * MIB).is_ok();
    }
}
