//! The XML of a backup: which disks are copied, and to which files. Pure.

use std::path::Path;

use serde::Serialize;

/// A disk and its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copy {
    /// The device name in the guest.
    pub(super) target: String,
    /// Its volume, by whose name it is offered.
    pub(super) volume: String,
    pub(super) path: String,
}

#[derive(Serialize)]
#[serde(rename = "domainbackup")]
struct Backup<'a> {
    #[serde(rename = "@mode")]
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Server<'a>>,
    disks: Disks<'a>,
}

/// Where QEMU listens.
#[derive(Serialize)]
struct Server<'a> {
    #[serde(rename = "@transport")]
    transport: &'static str,
    #[serde(rename = "@socket")]
    socket: &'a str,
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
    #[serde(rename = "@exportname", skip_serializing_if = "Option::is_none")]
    export: Option<&'a str>,
    driver: Driver,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Target<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scratch: Option<Target<'a>>,
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
        let Copy { target, path, .. } = copy;
        Disk {
            name: target,
            backup: "yes",
            kind: "file",
            export: None,
            driver: Driver { format: "qcow2" },
            target: Some(Target { file: path }),
            scratch: None,
        }
    };
    let backup = Backup {
        mode: "push",
        server: None,
        disks: Disks {
            disk: copies.iter().map(disk).collect(),
        },
    };
    quick_xml::se::to_string(&backup)
}

/// The disks are offered as they are at this moment, by the names of their volumes. The files get what the guest
/// overwrites meanwhile.
pub(super) fn render_offer<'a>(
    copies: &'a [Copy],
    socket: &'a Path,
) -> Result<String, quick_xml::SeError> {
    let disk = |copy: &'a Copy| Disk {
        name: &copy.target,
        backup: "yes",
        kind: "file",
        export: Some(&copy.volume),
        driver: Driver { format: "qcow2" },
        target: None,
        scratch: Some(Target { file: &copy.path }),
    };
    let socket = socket.to_str().unwrap_or_default();
    let backup = Backup {
        mode: "pull",
        server: Some(Server {
            transport: "unix",
            socket,
        }),
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
    fn offer_names_its_socket_and_its_disks() {
        let copy = Copy {
            target: "vda".to_owned(),
            volume: "root".to_owned(),
            path: "/b/root.qcow2".to_owned(),
        };
        let xml = render_offer(&[copy], Path::new("/l/nbd.sock")).unwrap();
        let expected = "<domainbackup mode=\"pull\"><server transport=\"unix\" socket=\"/l/nbd.sock\"/>\
             <disks><disk name=\"vda\" backup=\"yes\" type=\"file\" exportname=\"root\">\
             <driver type=\"qcow2\"/><scratch file=\"/b/root.qcow2\"/></disk></disks></domainbackup>";
        assert_eq!(xml, expected);
    }

    #[test]
    fn every_copy_is_a_qcow2_file() {
        let copy = |target: &str, path: &str| Copy {
            target: target.to_owned(),
            volume: String::new(),
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
