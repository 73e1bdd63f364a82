//! SPDY header blocks: one zlib stream per direction and connection, with a preset dictionary.
//!
//! **Invariant**: a block takes at most [`MAX_BLOCK`] of memory, whatever its input.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::Malformed;

/// Bytes of header names and values.
const MAX_BLOCK: usize = 16 << 10;
/// The window size of zlib.
const WINDOW: usize = 32 << 10;
/// Method, flags and checksum of the dictionary.
const ZLIB_HEADER: usize = 6;
/// The dictionary of the protocol: names, each with its length, then a text.
const NAMES: &str = "options head post put delete trace accept accept-charset accept-encoding \
    accept-language accept-ranges age allow authorization cache-control connection content-base \
    content-encoding content-language content-length content-location content-md5 content-range \
    content-type date etag expect expires from host if-match if-modified-since if-none-match \
    if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate \
    proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url \
    public set-cookie keep-alive origin";
const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416\
    417502504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad \
    Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not \
    Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 \
    Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,\
    deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// Decompresses the header blocks of a connection in order.
pub(super) struct Inflate {
    state: Box<DecompressorOxide>,
    /// Ring buffer of the latest output.
    window: Vec<u8>,
    at: usize,
    /// Remaining bytes of the zlib header.
    header: usize,
}

impl std::fmt::Debug for Inflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflate")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl Inflate {
    pub(super) fn new() -> Self {
        let mut window = dictionary();
        let at = window.len();
        window.resize(WINDOW, 0);
        Self {
            state: Box::default(),
            window,
            at,
            header: ZLIB_HEADER,
        }
    }

    /// Decompresses the next block.
    pub(super) fn block(&mut self, mut packed: &[u8]) -> Result<Vec<u8>, Malformed> {
        let skipped = self.header.min(packed.len());
        packed = packed.get(skipped..).unwrap_or_default();
        self.header -= skipped;
        let mut text = Vec::new();
        loop {
            let flags = TINFL_FLAG_HAS_MORE_INPUT;
            let (status, read, written) =
                decompress(&mut self.state, packed, &mut self.window, self.at, flags);
            packed = packed.get(read..).unwrap_or_default();
            let end = self.at.saturating_add(written);
            let fresh = self.window.get(self.at..end).unwrap_or_default();
            if text.len() + fresh.len() > MAX_BLOCK {
                return Err(Malformed("headers are too long"));
            }
            text.extend_from_slice(fresh);
            self.at = end % WINDOW;
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if packed.is_empty() => return Ok(text),
                _ => return Err(Malformed("headers cannot be decompressed")),
            }
        }
    }
}

/// Position of a block in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    First,
    Later,
}

/// Encodes a header block uncompressed, as ours are nearly empty.
pub(super) fn packed(text: &[u8], position: Position) -> Vec<u8> {
    let mut out = match position {
        // Method and flags of a stream without a dictionary.
        Position::First => vec![0x78, 0x01],
        Position::Later => Vec::new(),
    };
    // An empty chunk at the end flushes the reader's output.
    for chunk in text.chunks(usize::from(u16::MAX)).chain([&[][..]]) {
        let length = u16::try_from(chunk.len()).unwrap_or_default();
        out.push(0);
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend_from_slice(chunk);
    }
    out
}

fn dictionary() -> Vec<u8> {
    let mut all = Vec::new();
    for name in NAMES.split(' ') {
        // `200_OK` stands for a name with a blank.
        let name = name.replace('_', " ");
        let length = u32::try_from(name.len()).unwrap_or_default();
        all.extend(length.to_be_bytes());
        all.extend_from_slice(name.as_bytes());
    }
    all.extend_from_slice(TEXT.as_bytes());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionary_has_the_checksum_of_the_protocol() {
        let all = dictionary();
        assert_eq!(all.len(), 1423);
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in &all {
            low = (low + u32::from(*byte)) % 65521;
            high = (high + low) % 65521;
        }
        // Every stream has this checksum in its header.
        assert_eq!(high << 16 | low, 0xe3c6_a7c2);
    }

    #[test]
    fn packed_blocks_are_read_back() {
        let first = packed(b"one", Position::First);
        let second = packed(b"two", Position::Later);
        // Without a dictionary the header of the stream has two bytes.
        let mut read = Inflate::new();
        read.header = 2;
        assert_eq!(read.block(&first).expect("a block"), b"one");
        assert_eq!(read.block(&second).expect("a block"), b"two");
    }

    #[test]
    fn oversized_and_malformed_blocks_are_refused() {
        let mut read = Inflate::new();
        read.header = 0;
        let long = vec![b'a'; MAX_BLOCK + 1];
        read.block(&packed(&long, Position::Later))
            .expect_err("too long");
        let mut read = Inflate::new();
        read.header = 0;
        read.block(&[0x07, 0xff, 0xff])
            .expect_err("invalid block type");
    }
}
