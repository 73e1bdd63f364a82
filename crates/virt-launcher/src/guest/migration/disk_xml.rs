//! The XML of a guest for a pod in which a disk is in another file or device. Pure.

use crate::guest::domain_xml::LiveDisk;
use crate::xml::{self, Step, Walk};

/// Where a disk is in this pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// As the plan for this pod has it.
    pub(super) disk: LiveDisk,
    /// The guest sees only so many bytes of it.
    pub(super) only_bytes: Option<u64>,
}

/// The XML with the disk at another place; `None` if there is no such disk, or it has no medium.
pub(super) fn with_place(xml: &str, place: &Place) -> Result<Option<String>, xml::Error> {
    let mut walk = Walk::new(xml);
    while let Some(step) = walk.next()? {
        let Step::Start(tag) = step else { continue };
        if walk.path() != "/domain/devices/disk" {
            continue;
        }
        let inner = walk.inner_xml(&tag)?;
        if LiveDisk::parse(inner)?.target == place.disk.target {
            return Ok(replaced(xml, inner, place));
        }
    }
    Ok(None)
}

fn replaced(xml: &str, inner: &str, place: &Place) -> Option<String> {
    let at = inner.as_ptr().addr().checked_sub(xml.as_ptr().addr())?;
    let (head, rest) = xml.split_at_checked(at)?;
    let tail = rest.get(inner.len()..)?;
    let (before, tag) = head.split_at_checked(head.rfind("<disk")?)?;
    let kind = if place.disk.is_device {
        "block"
    } else {
        "file"
    };
    let tag = with_attribute(tag, "type", Some(kind));
    let inner = with_source(&with_driver(inner, &place.disk), place)?;
    Some([before, &tag, &inner, tail].concat())
}

/// Another storage may not offer what the guest had before.
fn with_driver(inner: &str, disk: &LiveDisk) -> String {
    let Some(start) = inner.find("<driver") else {
        return inner.to_owned();
    };
    let (head, rest) = inner.split_at(start);
    let Some(end) = rest.find('>') else {
        return inner.to_owned();
    };
    let (tag, tail) = rest.split_at(end);
    let tag = with_attribute(tag, "cache", disk.cache.as_deref());
    let tag = with_attribute(&tag, "io", disk.io.as_deref());
    [head, &tag, tail].concat()
}

/// The first source is that of the disk itself; those of files that it is based on follow.
fn with_source(inner: &str, place: &Place) -> Option<String> {
    const END: &str = "</source>";
    let (head, rest) = inner.split_at_checked(inner.find("<source")?)?;
    let close = rest.find('>')?;
    let is_empty = rest.get(..close)?.ends_with('/');
    let length = if is_empty {
        close + 1
    } else {
        rest.find(END)? + END.len()
    };
    let tail = rest.get(length..)?;
    let path = place.disk.source.as_deref()?;
    let path = quick_xml::escape::escape(path);
    let attribute = if place.disk.is_device { "dev" } else { "file" };
    let slices = place.only_bytes.map(|bytes| {
        format!("<slices><slice type=\"storage\" offset=\"0\" size=\"{bytes}\"/></slices>")
    });
    let slices = slices.unwrap_or_default();
    Some(format!(
        "{head}<source {attribute}=\"{path}\">{slices}{END}{tail}"
    ))
}

/// A start tag with another value of an attribute, or without it. The end of the tag may be missing.
fn with_attribute(tag: &str, name: &str, value: Option<&str>) -> String {
    let mut tag = tag.to_owned();
    if let Some(start) = tag.find(&format!(" {name}=")) {
        let quote_at = start + name.len() + " =".len();
        let quote = tag.get(quote_at..).and_then(|rest| rest.chars().next());
        let end = quote.and_then(|quote| tag.get(quote_at + 1..)?.find(quote));
        if let Some(end) = end {
            tag.replace_range(start..=quote_at + 1 + end, "");
        }
    }
    let Some(value) = value else { return tag };
    let value = quick_xml::escape::escape(value);
    let name_end = tag
        .find(|sign: char| sign.is_ascii_whitespace() || sign == '/' || sign == '>')
        .unwrap_or(tag.len());
    tag.insert_str(name_end, &format!(" {name}=\"{value}\""));
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = "<domain type='kvm'>\n <devices>\n  <disk type='file' device='disk'>\n   \
        <driver name='qemu' type='raw' cache='none' io='native' discard='unmap'/>\n   \
        <source file='/vmi-disks/other/disk.img' index='2'/>\n   <backingStore/>\n   \
        <target dev='vda' bus='virtio'/>\n  </disk>\n  <disk type='file' device='disk'>\n   \
        <driver name='qemu' type='raw' cache='none' io='native'/>\n   \
        <source file='/vmi-disks/root/disk.img' index='1'>\n    <slices>\n     \
        <slice type='storage' offset='0' size='512'/>\n    </slices>\n   </source>\n   \
        <target dev='vdb' bus='virtio'/>\n   <alias name='ua-root'/>\n  </disk>\n </devices>\n</domain>";

    fn place(target: &str, source: Option<&str>, is_device: bool) -> Place {
        Place {
            disk: LiveDisk {
                target: target.to_owned(),
                source: source.map(ToOwned::to_owned),
                is_device,
                cache: Some("writethrough".to_owned()),
                ..LiveDisk::default()
            },
            only_bytes: None,
        }
    }

    #[test]
    fn only_the_place_of_the_disk_changes() {
        let device = place("vdb", Some("/dev/root"), true);
        let found = with_place(XML, &device).unwrap().unwrap();
        let (_, second) = XML.split_once("</disk>").unwrap();
        let (_, tail) = second.split_once("</source>").unwrap();
        assert!(
            found.starts_with(XML.split_once("</disk>").unwrap().0),
            "{found}"
        );
        assert!(found.ends_with(tail), "{found}");
        assert!(
            found.contains("<disk type=\"block\" device='disk'>"),
            "{found}"
        );
        let driver = "<driver cache=\"writethrough\" name='qemu' type='raw'/>";
        assert!(found.contains(driver), "{found}");
        assert!(
            found.contains("<source dev=\"/dev/root\"></source>"),
            "{found}"
        );
        assert!(!found.contains("512"), "{found}");
    }

    #[test]
    fn guest_sees_no_more_of_a_longer_place_than_it_had() {
        let longer = Place {
            only_bytes: Some(1024),
            ..place("vda", Some("/a&b"), false)
        };
        let found = with_place(XML, &longer).unwrap().unwrap();
        let source = "<source file=\"/a&amp;b\"><slices><slice type=\"storage\" offset=\"0\" \
                      size=\"1024\"/></slices></source>";
        assert!(found.contains(source), "{found}");
        assert!(found.contains("discard='unmap'"), "{found}");
        crate::guest::domain_xml::LiveDomain::parse(&found).unwrap();
    }

    #[test]
    fn disk_that_is_not_there_is_none() {
        assert_eq!(
            with_place(XML, &place("vdc", Some("/x"), false)).unwrap(),
            None
        );
        assert_eq!(with_place(XML, &place("vda", None, false)).unwrap(), None);
        with_place("<domain><devices>", &place("vda", None, false)).unwrap();
        with_place("<domain><a></domain>", &place("vda", None, false)).unwrap_err();
    }
}
