use std::fs;

use launcher_channel::{Backing, DiskAccess, FileSource, Prepare, SeedFile};

use super::{PrepareError, all};

struct Pod(tempfile::TempDir);

impl Pod {
    fn new() -> Self {
        let pod = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(pod.0.path().join("image/disk")).unwrap();
        pod
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn overlay(&self, path: Option<&str>) -> Prepare {
        let backing = Backing::ImageRoot {
            root: self.path("image"),
            path: path.map(ToOwned::to_owned),
        };
        Prepare::Overlay {
            path: self.path("new/dir/disk.qcow2"),
            backing,
        }
    }
}

#[test]
fn files_are_created_once_and_then_left_unchanged() {
    let pod = Pod::new();
    fs::write(pod.path("image/disk/any.img"), vec![1; 4096]).unwrap();
    fs::write(pod.path("second"), "from a secret").unwrap();
    let seed_file = |name: &str, source| SeedFile {
        name: name.to_owned(),
        source,
    };
    let steps = [
        pod.overlay(None),
        Prepare::EmptyDisk {
            path: pod.path("empty.qcow2"),
            bytes: 1 << 20,
        },
        Prepare::Seed {
            path: pod.path("noCloud.iso"),
            label: "cidata".to_owned(),
            files: vec![
                seed_file("meta-data", FileSource::Text("{}".to_owned())),
                seed_file(
                    "user-data",
                    FileSource::FirstOf(vec![pod.path("first"), pod.path("second")]),
                ),
            ],
        },
        Prepare::Text {
            path: pod.path("text/data.ign"),
            text: "{}".to_owned(),
        },
        Prepare::Link {
            path: pod.path("link"),
            target: "/target".to_owned(),
        },
    ];
    all(&steps).unwrap();
    let before = fs::read(pod.path("noCloud.iso")).unwrap();
    assert!(before.windows(13).any(|window| window == b"from a secret"));
    fs::write(pod.path("second"), "changed").unwrap();
    fs::write(pod.path("new/dir/disk.qcow2"), "written by a guest").unwrap();
    all(&steps).unwrap();
    assert_eq!(fs::read(pod.path("noCloud.iso")).unwrap(), before);
    assert_eq!(
        fs::read(pod.path("new/dir/disk.qcow2")).unwrap(),
        b"written by a guest"
    );
    assert_eq!(
        fs::read_link(pod.path("link")).unwrap().to_str(),
        Some("/target")
    );
}

#[test]
fn untrusted_image_cannot_reach_outside_files() {
    let check = |fill: &dyn Fn(&Pod), path: Option<&str>, reason: &str| {
        let pod = Pod::new();
        fs::write(pod.path("outside"), vec![1; 4096]).unwrap();
        fill(&pod);
        let error = all(&[pod.overlay(path)]).unwrap_err();
        assert_eq!(error.reason(), reason, "{error:?}");
        assert!(!fs::exists(pod.path("new/dir/disk.qcow2")).unwrap());
    };
    let link = |pod: &Pod| {
        std::os::unix::fs::symlink(pod.path("outside"), pod.path("image/disk/link")).unwrap();
    };
    check(&link, Some("/disk/link"), "PrepareFailed");
    check(&link, None, "ContainerDiskMissing");
    check(&|_| (), Some("../outside"), "PrepareFailed");
    check(&|_| (), None, "ContainerDiskMissing");
    let two = |pod: &Pod| {
        fs::write(pod.path("image/disk/a"), "a").unwrap();
        fs::write(pod.path("image/disk/b"), "b").unwrap();
    };
    check(&two, None, "ContainerDiskMissing");
    let names_a_file = |pod: &Pod| {
        let backing_file = disk_image::BackingFile {
            path: pod.path("outside"),
            format: disk_image::Format::Raw,
        };
        let blueprint = disk_image::Blueprint::overlay(4096, backing_file).unwrap();
        disk_image::write_new(pod.path("image/disk/evil").as_ref(), &blueprint).unwrap();
    };
    check(&names_a_file, None, "DiskImageForbidden");
    check(
        &|pod| fs::write(pod.path("image/disk/cut"), "QFI\u{fb}").unwrap(),
        Some("disk/none"),
        "PrepareFailed",
    );
}

#[test]
fn missing_secret_is_transient() {
    let pod = Pod::new();
    let file = SeedFile {
        name: "user-data".to_owned(),
        source: FileSource::FirstOf(vec![pod.path("no")]),
    };
    let step = Prepare::Seed {
        path: pod.path("seed.iso"),
        label: "cidata".to_owned(),
        files: vec![file],
    };
    let error = all(&[step]).unwrap_err();
    assert!(
        matches!(error, PrepareError::MissingFile { .. }) && error.is_transient(),
        "{error:?}"
    );
}

fn raw(pod: &Pod, access: DiskAccess) -> Prepare {
    Prepare::RawDisk {
        directory: pod.path("claim"),
        name: "disk.img".to_owned(),
        access,
    }
}

const CREATE: DiskAccess = DiskAccess::Create {
    bytes: 1 << 30,
    tolerated_percent: 10,
    reserve_bytes: 0,
};

#[test]
fn disk_on_a_claim_is_created_sparse_and_then_kept() {
    use std::os::unix::fs::MetadataExt;
    let pod = Pod::new();
    fs::create_dir(pod.path("claim")).unwrap();
    all(&[raw(&pod, CREATE)]).unwrap();
    let created = fs::metadata(pod.path("claim/disk.img")).unwrap();
    assert_eq!((created.len(), created.blocks()), (1 << 30, 0));
    fs::write(pod.path("claim/disk.img"), "written by a guest").unwrap();
    for access in [CREATE, DiskAccess::Write, DiskAccess::Read] {
        all(&[raw(&pod, access)]).unwrap();
    }
    let kept = fs::read(pod.path("claim/disk.img")).unwrap();
    assert_eq!(kept, b"written by a guest");
}

#[test]
fn empty_disk_gets_its_size() {
    let pod = Pod::new();
    fs::create_dir(pod.path("claim")).unwrap();
    fs::write(pod.path("claim/disk.img"), "").unwrap();
    all(&[raw(&pod, CREATE)]).unwrap();
    assert_eq!(
        fs::metadata(pod.path("claim/disk.img")).unwrap().len(),
        1 << 30
    );
}

#[test]
fn required_disk_is_not_created() {
    let pod = Pod::new();
    fs::create_dir(pod.path("claim")).unwrap();
    for access in [DiskAccess::Write, DiskAccess::Read] {
        let error = all(&[raw(&pod, access)]).unwrap_err();
        assert!(error.is_transient(), "{error:?}");
    }
    assert!(!fs::exists(pod.path("claim/disk.img")).unwrap());
}

#[test]
fn disk_that_does_not_fit_gets_no_size() {
    let pod = Pod::new();
    fs::create_dir(pod.path("claim")).unwrap();
    let too_large = DiskAccess::Create {
        bytes: 1 << 62,
        tolerated_percent: 10,
        reserve_bytes: 0,
    };
    let error = all(&[raw(&pod, too_large)]).unwrap_err();
    assert_eq!(error.reason(), "DiskDoesNotFit");
    assert_eq!(fs::metadata(pod.path("claim/disk.img")).unwrap().len(), 0);
}

#[test]
fn links_and_pipes_in_place_of_a_disk_are_refused() {
    let check = |leave: &dyn Fn(&Pod), reason: &str| {
        let pod = Pod::new();
        fs::create_dir(pod.path("claim")).unwrap();
        fs::write(pod.path("target"), "precious").unwrap();
        leave(&pod);
        for access in [CREATE, DiskAccess::Write, DiskAccess::Read] {
            let error = all(&[raw(&pod, access)]).unwrap_err();
            assert_eq!(error.reason(), reason, "{access:?}");
        }
        let overlay = Prepare::Overlay {
            path: pod.path("over.qcow2"),
            backing: Backing::Claim {
                directory: pod.path("claim"),
                name: "disk.img".to_owned(),
            },
        };
        assert_eq!(all(&[overlay]).unwrap_err().reason(), reason);
        assert_eq!(fs::read(pod.path("target")).unwrap(), b"precious");
    };
    let link = |pod: &Pod| {
        std::os::unix::fs::symlink(pod.path("target"), pod.path("claim/disk.img")).unwrap();
    };
    check(&link, "PrepareFailed");
    let pipe = |pod: &Pod| {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        let path = pod.path("claim/disk.img");
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    };
    check(&pipe, "DiskNotAFile");
}

#[test]
fn disk_on_a_claim_is_raw_whatever_its_header() {
    let pod = Pod::new();
    fs::create_dir(pod.path("claim")).unwrap();
    // A guest can write this into the first bytes of its own disk.
    let backing_file = disk_image::BackingFile {
        path: "/etc/shadow".to_owned(),
        format: disk_image::Format::Raw,
    };
    let blueprint = disk_image::Blueprint::overlay(4096, backing_file).unwrap();
    disk_image::write_new(pod.path("claim/disk.img").as_ref(), &blueprint).unwrap();
    let step = Prepare::Overlay {
        path: pod.path("over.qcow2"),
        backing: Backing::Claim {
            directory: pod.path("claim"),
            name: "disk.img".to_owned(),
        },
    };
    all(&[step]).unwrap();
    let created = fs::File::open(pod.path("over.qcow2")).unwrap();
    let found = disk_image::probe_file(&created).unwrap();
    let size = fs::metadata(pod.path("claim/disk.img")).unwrap().len();
    assert_eq!(found.backing_format.as_deref(), Some("raw"));
    assert_eq!(found.backing_file, Some(pod.path("claim/disk.img")));
    assert_eq!(found.virtual_size, size);
}

fn files_image(pod: &Pod) -> Prepare {
    Prepare::FilesImage {
        path: pod.path("files.iso"),
        label: "cfgdata".to_owned(),
        directory: pod.path("files"),
    }
}

/// Writes files as a kubelet does: below a dated directory, with links to them and to that
/// directory.
fn write_as_kubelet(pod: &Pod, files: &[(&str, &str)]) {
    use std::os::unix::fs::symlink;
    fs::create_dir_all(pod.path("files/..2026_11_21")).unwrap();
    symlink("..2026_11_21", pod.path("files/..data")).unwrap();
    for (name, content) in files {
        let (top, below) = name.split_once('/').unwrap_or((name, ""));
        if !below.is_empty() {
            fs::create_dir_all(pod.path(&format!("files/..2026_11_21/{top}"))).unwrap();
        }
        fs::write(pod.path(&format!("files/..2026_11_21/{name}")), content).unwrap();
        symlink(format!("..data/{top}"), pod.path(&format!("files/{top}"))).unwrap();
    }
}

fn holds(image: &[u8], text: &[u8]) -> bool {
    image.windows(text.len()).any(|window| window == text)
}

#[test]
fn config_map_files_become_an_image() {
    let pod = Pod::new();
    write_as_kubelet(&pod, &[("app.conf", "colour = blue"), ("sub/key", "deep")]);
    all(&[files_image(&pod)]).unwrap();
    let image = fs::read(pod.path("files.iso")).unwrap();
    for text in [&b"CFGDATA"[..], b"cfgdata", b"colour = blue", b"deep"] {
        let upper = holds(&image, text) || holds(&image, &text.to_ascii_lowercase());
        assert!(upper, "{}", String::from_utf8_lossy(text));
    }
    assert!(!holds(&image, b"2026_11_21"));
}

#[test]
fn missing_optional_config_map_is_an_empty_image() {
    let pod = Pod::new();
    fs::create_dir(pod.path("files")).unwrap();
    all(&[files_image(&pod)]).unwrap();
    assert!(fs::exists(pod.path("files.iso")).unwrap());
}

#[test]
fn unmounted_files_are_transient() {
    let pod = Pod::new();
    let error = all(&[files_image(&pod)]).unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}

#[test]
fn link_out_of_the_mounted_files_is_refused() {
    let pod = Pod::new();
    fs::create_dir(pod.path("files")).unwrap();
    fs::write(pod.path("target"), "precious").unwrap();
    std::os::unix::fs::symlink(pod.path("target"), pod.path("files/key")).unwrap();
    assert_eq!(
        all(&[files_image(&pod)]).unwrap_err().reason(),
        "PrepareFailed"
    );
    assert!(!fs::exists(pod.path("files.iso")).unwrap());
}

#[test]
fn oversized_directory_is_refused() {
    let pod = Pod::new();
    fs::create_dir(pod.path("files")).unwrap();
    for number in 0..5 {
        fs::write(pod.path(&format!("files/{number}")), vec![0; 1 << 20]).unwrap();
    }
    assert_eq!(
        all(&[files_image(&pod)]).unwrap_err().reason(),
        "SeedFileTooLarge"
    );
}
