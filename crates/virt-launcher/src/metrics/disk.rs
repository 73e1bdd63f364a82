//! The disk: a header of four numbers in network byte order (signature, busy flag, sum of the content's
//! bytes, length of the content), and the content.
//!
//! A reader takes the header before and after the content, and starts over if a flag is set or the sum has
//! changed. So two pages that follow each other never have the same sum.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const SIGNATURE: &[u8; 4] = b"mvbd";
const HEADER: usize = 16;
/// As in vhostmd.
const SIZE: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    /// The sum of the last page.
    sum: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Busy,
    Complete,
}

impl Disk {
    /// Keeps the content that an earlier launcher has written until the next page.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = options.open(path)?;
        file.set_len(u64::try_from(SIZE).unwrap_or(u64::MAX))?;
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        let sum = header
            .strip_prefix(SIGNATURE)
            .and_then(|rest| rest.get(4..8)?.try_into().ok());
        Ok(Self {
            file,
            sum: sum.map(u32::from_be_bytes),
        })
    }

    pub(super) fn write(&mut self, page: &[u8]) -> io::Result<()> {
        let mut content = page.to_vec();
        if self.sum == Some(sum(&content)) {
            content.push(b'\n');
        }
        if content.len() > SIZE - HEADER {
            return Err(io::Error::other("the metrics are larger than their disk"));
        }
        self.file.write_all_at(&header(State::Busy, &content), 0)?;
        self.file
            .write_all_at(&content, u64::try_from(HEADER).unwrap_or(u64::MAX))?;
        self.file
            .write_all_at(&header(State::Complete, &content), 0)?;
        self.sum = Some(sum(&content));
        Ok(())
    }
}

fn header(state: State, content: &[u8]) -> [u8; HEADER] {
    let busy = u32::from(state == State::Busy);
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let mut header = [0; HEADER];
    let numbers = [
        busy.to_be_bytes(),
        sum(content).to_be_bytes(),
        length.to_be_bytes(),
    ];
    for (place, bytes) in header
        .chunks_exact_mut(4)
        .zip([SIGNATURE].into_iter().chain(&numbers))
    {
        place.copy_from_slice(bytes);
    }
    header
}

fn sum(content: &[u8]) -> u32 {
    content
        .iter()
        .fold(0, |sum, byte| sum.wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a guest reads it.
    fn read(path: &Path) -> (u32, u32, Vec<u8>) {
        let disk = std::fs::read(path).unwrap();
        assert_eq!(disk.len(), SIZE);
        assert_eq!(&disk[..4], SIGNATURE);
        let number = |at: usize| u32::from_be_bytes(disk[at..at + 4].try_into().unwrap());
        let end = HEADER + usize::try_from(number(12)).unwrap();
        (number(4), number(8), disk[HEADER..end].to_vec())
    }

    #[test]
    fn page_has_a_header_with_its_sum_and_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/vhostmd0");
        let mut disk = Disk::open(&path).unwrap();
        disk.write(b"a longer page").unwrap();
        disk.write(b"page").unwrap();
        let sum = 112 + 97 + 103 + 101;
        assert_eq!(read(&path), (0, sum, b"page".to_vec()));
    }

    #[test]
    fn pages_with_the_same_sum_differ_in_their_headers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vhostmd0");
        let mut sums = Vec::new();
        let mut disk = Disk::open(&path).unwrap();
        for page in ["28", "37", "46"] {
            disk.write(page.as_bytes()).unwrap();
            let (busy, sum, content) = read(&path);
            assert_eq!(busy, 0);
            assert_eq!(String::from_utf8(content).unwrap().trim_end(), page);
            assert_ne!(sums.last(), Some(&sum));
            sums.push(sum);
            // The next launcher goes on with it.
            disk = Disk::open(&path).unwrap();
        }
    }

    #[test]
    fn header_of_a_page_that_is_written_is_busy() {
        let busy = header(State::Busy, b"ab");
        assert_eq!(busy, *b"mvbd\0\0\0\x01\0\0\0\xc3\0\0\0\x02");
    }

    #[test]
    fn page_that_does_not_fit_leaves_the_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vhostmd0");
        let mut disk = Disk::open(&path).unwrap();
        disk.write(b"page").unwrap();
        assert!(disk.write(&vec![b'x'; SIZE]).is_err());
        assert_eq!(read(&path).2, b"page");
    }
}
