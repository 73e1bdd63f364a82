//! A reader that counts and hashes the bytes it returns.
//!
//! A blob is read once, directly by its consumer, and verified only after the last byte. So
//! consumers must discard their result when [`VerifiedReader::finish`] returns `false`.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;

/// Reads at most `size` bytes of `inner`.
pub(crate) struct VerifiedReader<R> {
    inner: R,
    left: u64,
    hasher: Sha256,
}

impl<R: Read> VerifiedReader<R> {
    pub(crate) fn new(inner: R, size: u64) -> Self {
        Self {
            inner,
            left: size,
            hasher: Sha256::new(),
        }
    }

    /// Reads the remaining bytes. Returns whether size and digest match.
    pub(crate) fn finish(mut self, expected: &Digest) -> io::Result<bool> {
        io::copy(&mut self, &mut io::sink())?;
        let longer = self.inner.read(&mut [0])? > 0;
        Ok(self.left == 0 && !longer && Digest::finish(self.hasher) == *expected)
    }
}

impl<R: Read> Read for VerifiedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let Some(window) = buffer.get_mut(..wanted) else {
            return Ok(0);
        };
        let read = self.inner.read(window)?;
        self.hasher.update(window.get(..read).unwrap_or_default());
        self.left = self
            .left
            .saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_digest_must_match() {
        let digest = Digest::of(b"hello");
        let cases: [(&[u8], u64, bool); 5] = [
            (b"hello", 5, true),
            (b"hellO", 5, false),
            (b"hello!", 5, false),
            (b"hello", 6, false),
            (b"hell", 5, false),
        ];
        for (bytes, size, expected) in cases {
            let reader = VerifiedReader::new(bytes, size);
            assert_eq!(
                reader.finish(&digest).unwrap(),
                expected,
                "{bytes:?} {size}"
            );
        }
    }
}
