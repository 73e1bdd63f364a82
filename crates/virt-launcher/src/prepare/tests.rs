use std::fs;

use launcher_channel::{Backing, FileSource, Prepare, SeedFile};

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
