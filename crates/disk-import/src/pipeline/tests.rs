//! Files of all formats through the pipeline.

use std::path::Path;
use std::process::Command;

use reasons::Reason;
use tempfile::TempDir;

use super::*;
use crate::decompress::tests::compress;

const MIB: usize = 1 << 20;

struct Volume(TempDir);

impl Volume {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn pipeline(&self, size: usize, checksum: Option<&str>) -> Pipeline {
        let (claim, scratch) = (self.path("claim"), self.path("scratch"));
        fs::create_dir_all(&claim).unwrap();
        fs::create_dir_all(&scratch).unwrap();
        let size = size as u64;
        let import = Import {
            place: Place::Directory { path: claim, size },
            content: Content::Image,
            scratch,
            checksum: checksum.map(|text| text.parse().unwrap()),
            converter: Converter::direct(),
        };
        Pipeline::new(import).unwrap()
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(dir)).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    fn import(&self, file: &[u8], size: usize) -> Result<Vec<u8>, ImportError> {
        let mut pipeline = self.pipeline(size, None);
        let pushed = push_all(&mut pipeline, file);
        let finished = pushed.and_then(|()| pipeline.finish());
        let names = self.names("claim");
        match finished {
            Ok(found) => {
                assert_eq!(names, ["disk.img"]);
                assert_eq!(found, size as u64);
                Ok(fs::read(self.path("claim/disk.img")).unwrap())
            }
            Err(error) => {
                assert_eq!(names, [""; 0], "something half done is left: {error}");
                Err(error)
            }
        }
    }
}

fn push_all(pipeline: &mut Pipeline, file: &[u8]) -> Result<(), ImportError> {
    for piece in file.chunks(10_000) {
        pipeline.push(piece, Some(file.len() as u64))?;
    }
    Ok(())
}

/// A disk with some data, of 3 MiB.
fn disk() -> Vec<u8> {
    let mut disk = vec![0; 3 * MIB];
    for (n, byte) in disk[MIB..][..100_000].iter_mut().enumerate() {
        *byte = u8::try_from(n * n % 251).unwrap();
    }
    disk[0] = 0xeb;
    disk
}

fn grown(mut disk: Vec<u8>, size: usize) -> Vec<u8> {
    disk.resize(size, 0);
    disk
}

fn qemu_img(words: &[&str], from: &Path, to: &Path) {
    let mut command = Command::new("qemu-img");
    let output = command.args(words).arg(from).arg(to).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The disk as `qemu-img` writes it.
fn image(volume: &Volume, words: &[&str]) -> Vec<u8> {
    let (raw, other) = (volume.path("raw"), volume.path("other"));
    fs::write(&raw, disk()).unwrap();
    qemu_img(&[&["convert", "-f", "raw"], words].concat(), &raw, &other);
    fs::read(other).unwrap()
}

#[test]
fn raw_disks_are_imported_from_every_compression() {
    for compression in [
        Compression::None,
        Compression::Gzip,
        Compression::Xz,
        Compression::Zstd,
    ] {
        let volume = Volume::new();
        let found = volume.import(&compress(compression, &disk()), 4 * MIB);
        assert!(found.unwrap() == grown(disk(), 4 * MIB), "{compression:?}");
    }
    let tiny = Volume::new().import(b"x", 512).unwrap();
    assert_eq!(tiny, grown(b"x".to_vec(), 512));
}

#[test]
fn other_formats_are_converted() {
    for words in [
        &["-O", "qcow2"][..],
        &["-O", "qcow2", "-c"],
        &["-O", "vmdk"],
        &["-O", "vmdk", "-o", "subformat=streamOptimized"],
        &["-O", "vpc", "-o", "force_size"],
        &["-O", "vhdx"],
        &["-O", "vdi"],
    ] {
        let volume = Volume::new();
        let file = image(&volume, words);
        let found = volume.import(&file, 4 * MIB);
        let found = found.unwrap_or_else(|error| panic!("{words:?}: {error:?}"));
        assert!(found == grown(disk(), 4 * MIB), "{words:?}");
        assert_eq!(volume.names("scratch"), [""; 0]);
    }
    let volume = Volume::new();
    let file = compress(Compression::Gzip, &image(&volume, &["-O", "qcow2"]));
    assert!(volume.import(&file, 3 * MIB).unwrap() == disk());
}

#[test]
fn disk_larger_than_the_volume_is_refused() {
    let check = |file: &[u8]| {
        let error = Volume::new().import(file, 2 * MIB).unwrap_err();
        assert_eq!(error.reason(), Reason::DiskDoesNotFit, "{error:?}");
    };
    check(&disk());
    check(&image(&Volume::new(), &["-O", "qcow2"]));
    check(&image(&Volume::new(), &["-O", "vhdx"]));
    for compression in [Compression::Gzip, Compression::Xz, Compression::Zstd] {
        check(&compress(compression, &vec![0; 20 * MIB]));
    }
}

#[test]
fn damaged_files_are_refused() {
    let check = |what: &str, file: &[u8]| {
        let error = Volume::new().import(file, 4 * MIB).expect_err(what);
        assert_eq!(
            error.reason(),
            Reason::DiskImageInvalid,
            "{what}: {error:?}"
        );
        assert!(!error.is_transient(), "{what}");
    };
    let qcow2 = image(&Volume::new(), &["-O", "qcow2"]);
    check("empty", b"");
    check("header only", &qcow2[..104]);
    check("tables only", &qcow2[..5 << 16]);
    let packed = image(&Volume::new(), &["-O", "qcow2", "-c"]);
    check("without clusters", &packed[..5 << 16]);
    // The table of clusters leads nowhere.
    let mut damaged = qcow2.clone();
    damaged[40..48].copy_from_slice(&(1_u64 << 50).to_be_bytes());
    check("table", &damaged);
    let packed = compress(Compression::Gzip, &qcow2);
    check("cut", &packed[..packed.len() - 9]);
    let packed = compress(Compression::Xz, &qcow2);
    check("cut xz", &packed[..packed.len() / 2]);
}

#[test]
fn images_that_refer_to_other_files_are_refused() {
    let volume = Volume::new();
    let (base, overlay) = (volume.path("base"), volume.path("overlay"));
    fs::write(&base, disk()).unwrap();
    let words = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"];
    qemu_img(&words, &base, &overlay);
    let error = volume.import(&fs::read(overlay).unwrap(), 4 * MIB);
    assert_eq!(error.unwrap_err().reason(), Reason::DiskImageForbidden);
}

#[test]
fn wrong_checksum_leaves_no_disk() {
    let volume = Volume::new();
    let wrong = format!("sha256:{}", "0".repeat(64));
    let mut pipeline = volume.pipeline(4 * MIB, Some(&wrong));
    push_all(&mut pipeline, &disk()).unwrap();
    let error = pipeline.finish().unwrap_err();
    assert_eq!(error.reason(), Reason::ImportChecksumMismatch);
    assert_eq!(volume.names("claim"), [""; 0]);
}

#[test]
fn file_that_comes_again_replaces_the_first_attempt() {
    let volume = Volume::new();
    let mut pipeline = volume.pipeline(4 * MIB, None);
    push_all(&mut pipeline, &vec![7; 2 * MIB]).unwrap();
    pipeline.reset().unwrap();
    push_all(&mut pipeline, &disk()).unwrap();
    pipeline.finish().unwrap();
    let found = fs::read(volume.path("claim/disk.img")).unwrap();
    assert!(found == grown(disk(), 4 * MIB));
}

#[test]
fn existing_disk_stays_until_another_is_complete() {
    let volume = Volume::new();
    let mut pipeline = volume.pipeline(4 * MIB, None);
    fs::write(volume.path("claim/disk.img"), "old").unwrap();
    pipeline.push(&disk(), None).unwrap();
    drop(pipeline);
    assert_eq!(fs::read(volume.path("claim/disk.img")).unwrap(), b"old");
    assert_eq!(volume.names("claim"), ["disk.img"]);
}

/// A guest wrote the first bytes of its disk.
#[test]
fn disk_that_begins_like_another_format_is_copied_as_it_is() {
    for start in [
        &b"QFI\xfb\0\0\0\x03"[..],
        b"\x1f\x8b\x08\0",
        b"\xfd7zXZ\0",
        b"KDMV",
        b"vhdxfile",
        b"<!doctype html>",
    ] {
        let volume = Volume::new();
        let mut file = disk();
        file[..start.len()].copy_from_slice(start);
        let mut pipeline = volume.pipeline(4 * MIB, None);
        pipeline.import.content = Content::Disk;
        push_all(&mut pipeline, &file).unwrap();
        pipeline.finish().unwrap();
        let found = fs::read(volume.path("claim/disk.img")).unwrap();
        assert!(found == grown(file, 4 * MIB), "{start:?}");
    }
}
