//! The archive format of a kernel's first file system ("newc").

use image_store::{Content, Entry};

/// A kernel wants each header and each content to begin at a multiple of four bytes.
const ALIGNMENT: usize = 4;
const END: &str = "TRAILER!!!";

/// Writes entries, in their order, as an archive. All files carry time 0 and belong to root.
pub(crate) fn archive(entries: &[Entry]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    for (number, entry) in (1..).zip(entries) {
        let (kind, content) = match &entry.content {
            Content::Directory => (0o040_000, Vec::new()),
            Content::Bytes(bytes) => (0o100_000, bytes.clone()),
            Content::File(path) => (0o100_000, std::fs::read(path)?),
            Content::Symlink(target) => (0o120_000, target.clone().into_bytes()),
            Content::HardLink(_) => {
                return Err(std::io::Error::other("hard links are not supported here"));
            }
        };
        member(&mut out, number, kind | entry.mode, (&entry.path, &content));
    }
    member(&mut out, 0, 0, (END, &[]));
    Ok(out)
}

fn member(out: &mut Vec<u8>, inode: u32, mode: u32, (name, content): (&str, &[u8])) {
    let fields = [
        inode.into(),
        mode.into(),
        0,
        0,
        1,
        0,
        length(content.len()),
        0,
        0,
        0,
        0,
        length(name.len() + 1),
        0,
    ];
    out.extend_from_slice(b"070701");
    for field in fields {
        out.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(content);
    pad(out);
}

fn length(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
}

#[cfg(test)]
mod tests {
    use image_store::Owner;

    use super::*;

    #[test]
    fn members_are_aligned_and_the_end_is_marked() {
        let entry = Entry {
            path: "init".to_owned(),
            mode: 0o755,
            owner: Owner::ROOT,
            content: Content::Bytes(b"hello".to_vec()),
        };
        let archive = archive(&[entry]).unwrap();
        assert_eq!(archive.len() % ALIGNMENT, 0);
        let text = String::from_utf8_lossy(&archive);
        assert!(text.starts_with("07070100000001000081ed"), "{text}");
        assert!(text.contains("init\0") && text.contains(END));
    }
}
