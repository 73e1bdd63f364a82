//! Compares written and probed images with QEMU's own tools.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use disk_image::{
    BackingFile, Blueprint, BlueprintError, Format, ProbeError, Refusal, fuzz_probe, probe,
    probe_file, write_new,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn qemu_img(arguments: &[&str]) -> String {
    let output = Command::new("qemu-img")
        .args(arguments)
        .output()
        .expect("qemu-img is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "qemu-img {arguments:?}: {text}{errors}"
    );
    text
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

fn info(path: &Path) -> serde_json::Value {
    qemu_img(&["check", text(path)]);
    let printed = qemu_img(&["info", "--output=json", text(path)]);
    serde_json::from_str(&printed).expect("qemu-img prints JSON")
}

#[test]
fn empty_disks_of_every_size_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    for (at, size) in [1, 512, MIB, 512 * MIB, 512 * MIB + 1, 3 << 40]
        .into_iter()
        .enumerate()
    {
        let path = dir.path().join(format!("{at}.qcow2"));
        write_new(&path, &Blueprint::empty(size).unwrap()).unwrap();
        let info = info(&path);
        assert_eq!(info["virtual-size"], size.next_multiple_of(512), "{info}");
        assert_eq!(info["format"], "qcow2");
        let ours = probe_file(&File::open(&path).unwrap()).unwrap();
        assert_eq!(ours.virtual_size, size.next_multiple_of(512));
        assert_eq!(ours.check_container_disk(), Ok(()));
    }
}

#[test]
fn overlay_names_its_backing_file_and_has_its_content() {
    let dir = tempfile::tempdir().unwrap();
    for format in [Format::Raw, Format::Qcow2] {
        let base = dir.path().join(format!("base.{}", format.name()));
        let raw = dir.path().join("content");
        std::fs::write(&raw, vec![0x5a; 70_000]).unwrap();
        qemu_img(&[
            "convert",
            "-f",
            "raw",
            "-O",
            format.name(),
            text(&raw),
            text(&base),
        ]);
        let found = probe_file(&File::open(&base).unwrap()).unwrap();
        assert_eq!(found.format, format);
        let overlay = dir.path().join(format!("over-{}.qcow2", format.name()));
        let backing_file = BackingFile {
            path: text(&base).to_owned(),
            format,
        };
        write_new(
            &overlay,
            &Blueprint::overlay(found.virtual_size, backing_file).unwrap(),
        )
        .unwrap();

        let info = info(&overlay);
        assert_eq!(info["backing-filename"], text(&base));
        assert_eq!(info["backing-filename-format"], format.name());
        let back = dir.path().join("back");
        qemu_img(&["convert", "-O", "raw", text(&overlay), text(&back)]);
        assert_eq!(
            &std::fs::read(&back).unwrap()[..70_000],
            std::fs::read(&raw).unwrap()
        );
        let ours = probe_file(&File::open(&overlay).unwrap()).unwrap();
        assert_eq!(ours.backing_format.as_deref(), Some(format.name()));
        assert_eq!(
            ours.check_container_disk(),
            Err(Refusal::BackingFile(text(&base).to_owned()))
        );
    }
}

#[test]
fn disk_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.qcow2");
    write_new(&path, &Blueprint::empty(8 * MIB).unwrap()).unwrap();
    let output = Command::new("qemu-io")
        .args([
            "-f",
            "qcow2",
            "-c",
            "write -P 7 1M 3M",
            "-c",
            "read -P 7 1M 3M",
            text(&path),
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert_eq!(info(&path)["virtual-size"], 8 * MIB);
}

#[test]
fn images_with_other_files_or_encryption_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let make = |name: &str, options: &str| {
        qemu_img(&[
            "create",
            "-q",
            "-f",
            "qcow2",
            "-o",
            options,
            text(&path(name)),
            "1M",
        ]);
        probe_file(&File::open(path(name)).unwrap())
            .unwrap()
            .check_container_disk()
    };
    assert_eq!(make("v2", "compat=0.10"), Ok(()));
    assert_eq!(make("v3", "compat=1.1,compression_type=zstd"), Ok(()));
    assert_eq!(
        make("subclusters", "extended_l2=on,cluster_size=128k"),
        Ok(())
    );
    let outside = format!("data_file={}", text(&path("data.raw")));
    assert_eq!(make("outside", &outside), Err(Refusal::DataFile));

    let mut encrypted = std::fs::read(path("v3")).unwrap();
    encrypted[35] = 2;
    let length = encrypted.len().try_into().unwrap();
    let encrypted = probe(&encrypted, length).unwrap();
    assert_eq!(encrypted.check_container_disk(), Err(Refusal::Encrypted));

    let mut unknown = std::fs::read(path("v3")).unwrap();
    unknown[72] = 0x80;
    let length = unknown.len().try_into().unwrap();
    let unknown = probe(&unknown, length).unwrap();
    assert_eq!(
        unknown.check_container_disk(),
        Err(Refusal::UnknownFeatures(1 << 63))
    );
}

#[test]
fn malformed_headers_are_errors_and_other_bytes_are_raw() {
    assert_eq!(probe(&[], 0), Err(ProbeError::Empty));
    assert_eq!(probe(b"QFI\xfb", 4), Err(ProbeError::Truncated));
    assert_eq!(probe(b"QFI\xfb\0\0\0\x09", 8), Err(ProbeError::Truncated));
    let raw = probe(b"\xeb\x63", 1025).unwrap();
    assert_eq!((raw.format, raw.virtual_size), (Format::Raw, 1536));
}

#[test]
fn blueprints_that_qemu_would_misread_are_refused() {
    assert_eq!(Blueprint::empty(0), Err(BlueprintError::Size(0)));
    assert!(matches!(
        Blueprint::empty(u64::MAX),
        Err(BlueprintError::Size(_))
    ));
    let backing_file = |path: &str| BackingFile {
        path: path.to_owned(),
        format: Format::Raw,
    };
    assert!(matches!(
        Blueprint::overlay(MIB, backing_file("nbd:localhost:1")),
        Err(BlueprintError::NameIsProtocol(_))
    ));
    assert_eq!(
        Blueprint::overlay(MIB, backing_file("")),
        Err(BlueprintError::NameLength(0))
    );
    assert!(Blueprint::overlay(MIB, backing_file("/a:b/disk")).is_ok());
}

proptest! {
    #[test]
    fn parser_never_panics(tail in proptest::collection::vec(any::<u8>(), 0..300), version in 2_u8..4) {
        let mut bytes = b"QFI\xfb\0\0\0".to_vec();
        bytes.push(version);
        bytes.extend_from_slice(&tail);
        fuzz_probe(&bytes);
        fuzz_probe(&tail);
    }

    #[test]
    fn written_image_is_probed_with_the_same_values(size in 1_u64..(1 << 45), name in "/[a-z:/]{1,80}") {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let backing_file = BackingFile { path: name.clone(), format: Format::Qcow2 };
        let blueprint = Blueprint::overlay(size, backing_file).unwrap();
        write_new(&path, &blueprint).unwrap();
        let found = probe_file(&File::open(&path).unwrap()).unwrap();
        prop_assert_eq!(found.virtual_size, blueprint.virtual_size());
        prop_assert_eq!(found.backing_file, Some(name));
        prop_assert_eq!(found.backing_format.as_deref(), Some("qcow2"));
    }
}
