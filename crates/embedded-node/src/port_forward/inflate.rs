//! Header blocks of SPDY: one zlib stream per direction for the whole connection, which begins
//! with a dictionary that both ends know.
//!
//! **Invariant**: a block takes no more memory than [`LONGEST_BLOCK`], whatever it was made of.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::Malformed;

/// Of header names and values.
const LONGEST_BLOCK: usize = 16 << 10;
/// How far back a stream may refer.
const WINDOW: usize = 32 << 10;
/// Method, flags, and the sum of the dictionary.
const ZLIB_HEADER: usize = 6;
/// As both ends of the protocol must have it: names with their lengths before them, then a text.
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

/// Reads the header blocks of a connection, one after the other.
pub(super) struct Inflate {
    state: Box<DecompressorOxide>,
    /// What was written last, around and around.
    window: Vec<u8>,
    at: usize,
    /// What is still to come of the header of the stream.
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

    /// The text behind the next block.
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
            if text.len() + fresh.len() > LONGEST_BLOCK {
                return Err(Malformed("headers are too long"));
            }
            text.extend_from_slice(fresh);
            self.at = end % WINDOW;
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if packed.is_empty() => return Ok(text),
                _ => return Err(Malformed("headers cannot be unpacked")),
            }
        }
    }
}

/// Packs a header block as it is, without making it any shorter: there is next to nothing in ours.
pub(super) fn packed(text: &[u8], is_first: bool) -> Vec<u8> {
    // Method and flags of a stream without a dictionary.
    let mut out = if is_first {
        vec![0x78, 0x01]
    } else {
        Vec::new()
    };
    // An empty piece at the end makes the reader give out what it has.
    for piece in text.chunks(usize::from(u16::MAX)).chain([&[][..]]) {
        let length = u16::try_from(piece.len()).unwrap_or_default();
        out.push(0);
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out
}

fn dictionary() -> Vec<u8> {
    let mut all = Vec::new();
    for name in NAMES.split(' ') {
        // The one that has a blank in it.
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
    fn dictionary_is_the_one_that_all_agreed_on() {
        let all = dictionary();
        assert_eq!(all.len(), 1423);
        let (mut low, mut high) = (1_u32, 0_u32);
        for byte in &all {
            low = (low + u32::from(*byte)) % 65521;
            high = (high + low) % 65521;
        }
        // The sum that stands in the header of every such stream.
        assert_eq!(high << 16 | low, 0xe3c6_a7c2);
    }

    #[test]
    fn what_is_packed_here_is_read_by_anybody() {
        let first = packed(b"one", true);
        let second = packed(b"two", false);
        // Without a dictionary the header of the stream has two bytes.
        let mut read = Inflate::new();
        read.header = 2;
        assert_eq!(read.block(&first).expect("a block"), b"one");
        assert_eq!(read.block(&second).expect("a block"), b"two");
    }

    #[test]
    fn blocks_have_a_bound_and_nonsense_is_refused() {
        let mut read = Inflate::new();
        read.header = 0;
        let long = vec![b'a'; LONGEST_BLOCK + 1];
        read.block(&packed(&long, false)).expect_err("too long");
        let mut read = Inflate::new();
        read.header = 0;
        read.block(&[0x07, 0xff, 0xff])
            .expect_err("no such kind of block");
    }
}
