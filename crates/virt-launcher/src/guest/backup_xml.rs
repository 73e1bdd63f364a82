//! The XML of a backup: which disks are copied, and to which files. Pure.

use serde::Serialize;

/// A disk and its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    /// The device name in the guest.
    pub(super) target: String,
    pub(super) path: String,
}

#[derive(Serialize)]
#[serde(rename = "domainbackup")]
struct Backup<'a> {
    #[serde(rename = "@mode")]
    mode: &'static str,
    disks: Disks<'a>,
}

#[derive(Serialize)]
struct Disks<'a> {
    disk: Vec<Disk<'a>>,
}

#[derive(Serialize)]
struct Disk<'a> {
    #[serde(rename = "@name")]
    name: &'a str,
    #[serde(rename = "@backup")]
    backup: &'static str,
    #[serde(rename = "@type")]
    kind: &'static str,
    driver: Driver,
    target: Target<'a>,
}

#[derive(Serialize)]
struct Driver {
    #[serde(rename = "@type")]
    format: &'static str,
}

#[derive(Serialize)]
struct Target<'a> {
    #[serde(rename = "@file")]
    file: &'a str,
}

/// Disks that are not listed are not copied.
pub(super) fn render<'a>(copies: &'a [Copy]) -> Result<String, quick_xml::SeError> {
    let disk = |copy: &'a Copy| {
        let Copy { target, path } = copy;
        Disk {
            name: target,
            backup: "yes",
            kind: "file",
            driver: Driver { format: "qcow2" },
            target: Target { file: path },
        }
    };
    let backup = Backup {
        mode: "push",
        disks: Disks {
            disk: copies.iter().map(disk).collect(),
        },
    };
    quick_xml::se::to_string(&backup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_is_a_qcow2_file() {
        let copy = |target: &str, path: &str| Copy {
            target: target.to_owned(),
            path: path.to_owned(),
        };
        let xml = render(&[copy("vda", "/b/root.qcow2"), copy("sda", "/b/a&b.qcow2")]).unwrap();
        let disk = |name, file| {
            format!(
                "<disk name=\"{name}\" backup=\"yes\" type=\"file\"><driver type=\"qcow2\"/>\
                 <target file=\"{file}\"/></disk>"
            )
        };
        let expected = format!(
            "<domainbackup mode=\"push\"><disks>{}{}</disks></domainbackup>",
            disk("vda", "/b/root.qcow2"),
            disk("sda", "/b/a&amp;b.qcow2")
        );
        assert_eq!(xml, expected);
    }
}
