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
fn steps_make_their_files_once_and_leave_them_alone_afterwards() {
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
        Prepare::Link {
            path: pod.path("link"),
            target: "/target".to_owned(),
        },
    ];
    all(&steps).unwrap();
    let before = fs::read(pod.path("noCloud.iso")).unwrap();
    assert!(before.windows(13).any(|window| window == b"from a secret"));
    fs::write(pod.path("second"), "changed").unwrap();
    fs::write(pod.path("new/dir/disk.qcow2"), "a guest was here").unwrap();
    all(&steps).unwrap();
    assert_eq!(fs::read(pod.path("noCloud.iso")).unwrap(), before);
    assert_eq!(
        fs::read(pod.path("new/dir/disk.qcow2")).unwrap(),
        b"a guest was here"
    );
    assert_eq!(
        fs::read_link(pod.path("link")).unwrap().to_str(),
        Some("/target")
    );
}

#[test]
fn a_strangers_image_names_no_file_outside_itself() {
    let check = |fill: &dyn Fn(&Pod), path: Option<&str>, reason: &str| {
        let pod = Pod::new();
        fs::write(pod.path("outside"), vec![1; 4096]).unwrap();
        fill(&pod);
        let err = all(&[pod.overlay(path)]).unwrap_err();
        assert_eq!(err.reason(), reason, "{err:?}");
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
        let under = disk_image::Under {
            path: pod.path("outside"),
            format: disk_image::Format::Raw,
        };
        let blueprint = disk_image::Blueprint::overlay(4096, under).unwrap();
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
fn a_missing_secret_may_still_come() {
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
    let err = all(&[step]).unwrap_err();
    assert!(
        matches!(err, PrepareError::MissingFile { .. }) && err.may_pass(),
        "{err:?}"
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
fn a_disk_on_a_claim_is_made_sparse_and_then_kept() {
    use std::os::unix::fs::MetadataExt;
    let pod = Pod::new();
    fs::create_dir(pod.path("claim")).unwrap();
    all(&[raw(&pod, CREATE)]).unwrap();
    let made = fs::metadata(pod.path("claim/disk.img")).unwrap();
    assert_eq!((made.len(), made.blocks()), (1 << 30, 0));
    fs::write(pod.path("claim/disk.img"), "a guest was here").unwrap();
    for access in [CREATE, DiskAccess::Write, DiskAccess::Read] {
        all(&[raw(&pod, access)]).unwrap();
    }
    let kept = fs::read(pod.path("claim/disk.img")).unwrap();
    assert_eq!(kept, b"a guest was here");
}

#[test]
fn a_disk_that_was_made_and_got_no_size_gets_one() {
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
fn a_disk_that_must_be_there_is_not_made() {
    let pod = Pod::new();
    fs::create_dir(pod.path("claim")).unwrap();
    for access in [DiskAccess::Write, DiskAccess::Read] {
        let err = all(&[raw(&pod, access)]).unwrap_err();
        assert!(err.may_pass(), "{err:?}");
    }
    assert!(!fs::exists(pod.path("claim/disk.img")).unwrap());
}

#[test]
fn a_disk_that_does_not_fit_is_not_given_a_size() {
    let pod = Pod::new();
    fs::create_dir(pod.path("claim")).unwrap();
    let too_large = DiskAccess::Create {
        bytes: 1 << 62,
        tolerated_percent: 10,
        reserve_bytes: 0,
    };
    let err = all(&[raw(&pod, too_large)]).unwrap_err();
    assert_eq!(err.reason(), "DiskDoesNotFit");
    assert_eq!(fs::metadata(pod.path("claim/disk.img")).unwrap().len(), 0);
}

#[test]
fn what_a_tenant_leaves_in_place_of_a_disk_is_not_followed() {
    let check = |leave: &dyn Fn(&Pod), reason: &str| {
        let pod = Pod::new();
        fs::create_dir(pod.path("claim")).unwrap();
        fs::write(pod.path("victim"), "precious").unwrap();
        leave(&pod);
        for access in [CREATE, DiskAccess::Write, DiskAccess::Read] {
            let err = all(&[raw(&pod, access)]).unwrap_err();
            assert_eq!(err.reason(), reason, "{access:?}");
        }
        let overlay = Prepare::Overlay {
            path: pod.path("over.qcow2"),
            backing: Backing::Claim {
                directory: pod.path("claim"),
                name: "disk.img".to_owned(),
            },
        };
        assert_eq!(all(&[overlay]).unwrap_err().reason(), reason);
        assert_eq!(fs::read(pod.path("victim")).unwrap(), b"precious");
    };
    let link = |pod: &Pod| {
        std::os::unix::fs::symlink(pod.path("victim"), pod.path("claim/disk.img")).unwrap();
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
fn an_overlay_over_a_claim_takes_it_for_raw_whatever_it_looks_like() {
    let pod = Pod::new();
    fs::create_dir(pod.path("claim")).unwrap();
    // A guest may write this into the first bytes of its own disk.
    let under = disk_image::Under {
        path: "/etc/shadow".to_owned(),
        format: disk_image::Format::Raw,
    };
    let blueprint = disk_image::Blueprint::overlay(4096, under).unwrap();
    disk_image::write_new(pod.path("claim/disk.img").as_ref(), &blueprint).unwrap();
    let step = Prepare::Overlay {
        path: pod.path("over.qcow2"),
        backing: Backing::Claim {
            directory: pod.path("claim"),
            name: "disk.img".to_owned(),
        },
    };
    all(&[step]).unwrap();
    let made = fs::File::open(pod.path("over.qcow2")).unwrap();
    let found = disk_image::probe_file(&made).unwrap();
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

/// As a kubelet writes them: the files below a directory of a date, links to them, and a link to
/// that directory.
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
fn files_of_a_config_map_become_an_image() {
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
fn an_optional_config_map_that_is_missing_is_an_empty_image() {
    let pod = Pod::new();
    fs::create_dir(pod.path("files")).unwrap();
    all(&[files_image(&pod)]).unwrap();
    assert!(fs::exists(pod.path("files.iso")).unwrap());
}

#[test]
fn files_that_are_not_mounted_yet_may_still_come() {
    let pod = Pod::new();
    let err = all(&[files_image(&pod)]).unwrap_err();
    assert!(err.may_pass(), "{err:?}");
}

#[test]
fn a_link_out_of_the_mounted_files_is_not_followed() {
    let pod = Pod::new();
    fs::create_dir(pod.path("files")).unwrap();
    fs::write(pod.path("victim"), "precious").unwrap();
    std::os::unix::fs::symlink(pod.path("victim"), pod.path("files/key")).unwrap();
    assert_eq!(
        all(&[files_image(&pod)]).unwrap_err().reason(),
        "PrepareFailed"
    );
    assert!(!fs::exists(pod.path("files.iso")).unwrap());
}

#[test]
fn more_files_than_objects_can_hold_are_refused() {
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
