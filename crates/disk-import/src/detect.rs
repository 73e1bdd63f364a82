//! The format of an image, by its first bytes.

use disk_image::{Format, PROBE_LENGTH, probe};

use crate::ImportError;

/// The bytes that [`Image::detect`] needs, if there are as many.
pub(crate) const HEAD: usize = PROBE_LENGTH;

/// An image that may be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Image {
    /// The bytes of the disk.
    Raw,
    /// A format that `qemu-img` converts, by its name for it.
    Other(&'static str),
}

impl Image {
    /// Refuses images that refer to other files.
    pub(crate) fn detect(head: &[u8]) -> Result<Self, ImportError> {
        if head.is_empty() {
            return Err(ImportError::Empty);
        }
        if head.starts_with(b"QFI\xfb") {
            return qcow2(head);
        }
        if head.starts_with(b"KDMV") {
            return vmdk(head);
        }
        if is_vmdk_description(head) {
            return Err(ImportError::Reference(
                "it is only the description of a VMDK, whose data is in other files: use one \
                 stream-optimized or monolithic sparse file",
            ));
        }
        if head.starts_with(b"vhdxfile") {
            return Ok(Self::Other("vhdx"));
        }
        if head.starts_with(b"conectix") {
            return vhd(head);
        }
        if head.get(0x40..0x44) == Some(&0xbeda_107f_u32.to_le_bytes()) {
            return Ok(Self::Other("vdi"));
        }
        if is_web_page(head) {
            return Err(ImportError::WebPage);
        }
        Ok(Self::Raw)
    }
}

fn qcow2(head: &[u8]) -> Result<Image, ImportError> {
    let found = probe(head, head.len() as u64)?;
    found.check_container_disk()?;
    match found.format {
        Format::Qcow2 => Ok(Image::Other("qcow2")),
        Format::Raw => Ok(Image::Raw),
    }
}

/// A VMDK whose data is in the same file, and which is no difference to another one.
fn vmdk(head: &[u8]) -> Result<Image, ImportError> {
    let number = |at: usize| {
        let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
        bytes.copied().map(u64::from_le_bytes)
    };
    let short = || ImportError::Damaged("the header of the VMDK ends too early".to_owned());
    let capacity = number(12).ok_or_else(short)?;
    let description = number(28).ok_or_else(short)?.saturating_mul(512);
    let length = number(36).ok_or_else(short)?.saturating_mul(512);
    if capacity == 0 {
        return Err(ImportError::Reference("its data is in other files"));
    }
    let start = usize::try_from(description).unwrap_or(usize::MAX);
    let end = usize::try_from(description.saturating_add(length)).unwrap_or(usize::MAX);
    let Some(text) = head.get(start..end.min(head.len())) else {
        return Err(ImportError::Damaged(
            "the description of the VMDK is not at its beginning".to_owned(),
        ));
    };
    let text = String::from_utf8_lossy(text).to_lowercase();
    if text.contains("parentfilenamehint") {
        return Err(ImportError::Reference("it is a difference to another VMDK"));
    }
    Ok(Image::Other("vmdk"))
}

fn is_vmdk_description(head: &[u8]) -> bool {
    let text = head.get(..head.len().min(64)).unwrap_or_default();
    String::from_utf8_lossy(text)
        .trim_start()
        .to_lowercase()
        .starts_with("# disk descriptorfile")
}

/// The header of a dynamic VHD is a copy of its last bytes; its type is at 60.
fn vhd(head: &[u8]) -> Result<Image, ImportError> {
    match head.get(60..64) {
        Some([0, 0, 0, 4]) => Err(ImportError::Reference("it is a difference to another VHD")),
        Some(_) => Ok(Image::Other("vpc")),
        None => Err(ImportError::Damaged(
            "the header of the VHD ends too early".to_owned(),
        )),
    }
}

fn is_web_page(head: &[u8]) -> bool {
    let text = head.get(..head.len().min(256)).unwrap_or_default();
    let text = String::from_utf8_lossy(text).trim_start().to_lowercase();
    ["<!doctype html", "<html"]
        .iter()
        .any(|start| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reasons::Reason;

    use super::*;

    fn vmdk_with(capacity: u64, text: &str) -> Vec<u8> {
        let mut head = vec![0; 2048];
        head[..4].copy_from_slice(b"KDMV");
        head[12..20].copy_from_slice(&capacity.to_le_bytes());
        head[28..36].copy_from_slice(&1_u64.to_le_bytes());
        head[36..44].copy_from_slice(&2_u64.to_le_bytes());
        head[512..512 + text.len()].copy_from_slice(text.as_bytes());
        head
    }

    fn vhd_of(kind: u8) -> Vec<u8> {
        let mut head = b"conectix".to_vec();
        head.resize(512, 0);
        head[63] = kind;
        head
    }

    #[test]
    fn formats_are_detected_and_references_refused() {
        let check = |head: &[u8], expected: Result<Image, Reason>| {
            let found = Image::detect(head).map_err(|error| error.reason());
            let shown = String::from_utf8_lossy(&head[..head.len().min(20)]).into_owned();
            assert_eq!(found, expected, "{shown:?}");
        };
        let mut vdi = vec![0; 512];
        vdi[0x40..0x44].copy_from_slice(&[0x7f, 0x10, 0xda, 0xbe]);
        check(b"", Err(Reason::DiskImageInvalid));
        check(b"x", Ok(Image::Raw));
        check(&[0; 512], Ok(Image::Raw));
        check(&vdi, Ok(Image::Other("vdi")));
        check(b"vhdxfile", Ok(Image::Other("vhdx")));
        check(&vhd_of(3), Ok(Image::Other("vpc")));
        check(&vhd_of(4), Err(Reason::DiskImageForbidden));
        check(b"conectix", Err(Reason::DiskImageInvalid));
        check(&vmdk_with(8, "CID=1"), Ok(Image::Other("vmdk")));
        check(&vmdk_with(0, ""), Err(Reason::DiskImageForbidden));
        check(
            &vmdk_with(8, "parentFileNameHint=\"/etc/shadow\""),
            Err(Reason::DiskImageForbidden),
        );
        check(b"KDMV", Err(Reason::DiskImageInvalid));
        check(
            b"# Disk DescriptorFile\nRW 1 FLAT \"/etc/shadow\"",
            Err(Reason::DiskImageForbidden),
        );
        check(b"QFI\xfb", Err(Reason::DiskImageInvalid));
        check(
            b"\n <!DOCTYPE HTML><title>Sign in",
            Err(Reason::ImportSourceNotUsable),
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, which in 0_usize..5) {
            let magic: &[u8] = [&b"QFI\xfb\0\0\0\x03"[..], b"KDMV", b"conectix", b"# Disk", b"<"][which];
            let bytes = [magic, &bytes].concat();
            drop(Image::detect(&bytes));
        }
    }
}
