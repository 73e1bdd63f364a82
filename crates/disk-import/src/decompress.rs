//! Decompresses a stream of bytes that are pushed in.
//!
//! **Invariants**: memory is bounded whatever the input announces; a stream that ends early is an
//! error. The length of the output is bounded by the stage behind.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use liblzma::write::XzDecoder;
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder};
use zstd::stream::zio;

/// Enough for the highest levels of `xz` and of `zstd` without `--long`.
const XZ_MEMORY: u64 = 128 << 20;
/// A window of 128 MiB.
const ZSTD_WINDOW_LOG: u32 = 27;
/// The bytes that tell formats apart.
pub(crate) const MAGIC_LENGTH: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Xz,
    Zstd,
}

impl Compression {
    /// By the first [`MAGIC_LENGTH`] bytes, or fewer if there are no more.
    pub(crate) fn of(head: &[u8]) -> Self {
        if head.starts_with(b"\x1f\x8b\x08") {
            Self::Gzip
        } else if head.starts_with(b"\xfd7zXZ\0") {
            Self::Xz
        } else if head.starts_with(b"\x28\xb5\x2f\xfd") {
            Self::Zstd
        } else {
            Self::None
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "uncompressed",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }
}

/// Writes what it decompresses to the next stage.
pub(crate) enum Decompressor<W: Write> {
    None(W),
    Gzip(Box<MultiGzDecoder<W>>),
    Xz(Box<XzDecoder<W>>),
    Zstd(Box<zio::Writer<W, ZstdDecoder<'static>>>),
}

impl<W: Write> Decompressor<W> {
    pub(crate) fn new(compression: Compression, to: W) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::None(to),
            Compression::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(to))),
            Compression::Xz => {
                let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)?;
                Self::Xz(Box::new(XzDecoder::new_stream(to, stream)))
            }
            Compression::Zstd => {
                let mut decoder = ZstdDecoder::new()?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG))?;
                Self::Zstd(Box::new(zio::Writer::new(to, decoder)))
            }
        })
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::None(to) => to.write_all(bytes),
            Self::Gzip(to) => to.write_all(bytes),
            Self::Xz(to) => to.write_all(bytes),
            Self::Zstd(to) => to.write_all(bytes),
        }
    }

    /// The next stage, which has got everything.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Self::None(to) => Ok(to),
            Self::Gzip(to) => to.finish(),
            Self::Xz(to) => to.finish(),
            Self::Zstd(mut to) => {
                to.finish()?;
                Ok(to.into_inner().0)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn compress(compression: Compression, bytes: &[u8]) -> Vec<u8> {
        match compression {
            Compression::None => bytes.to_vec(),
            Compression::Gzip => {
                let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                to.write_all(bytes).unwrap();
                to.finish().unwrap()
            }
            Compression::Xz => {
                let mut to = liblzma::write::XzEncoder::new(Vec::new(), 1);
                to.write_all(bytes).unwrap();
                to.finish().unwrap()
            }
            Compression::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        }
    }

    fn decompress(bytes: &[u8], piece: usize) -> io::Result<Vec<u8>> {
        let head = &bytes[..bytes.len().min(MAGIC_LENGTH)];
        let mut to = Decompressor::new(Compression::of(head), Vec::new())?;
        for piece in bytes.chunks(piece) {
            to.push(piece)?;
        }
        to.finish()
    }

    const ALL: [Compression; 4] = [
        Compression::None,
        Compression::Gzip,
        Compression::Xz,
        Compression::Zstd,
    ];

    fn sample() -> Vec<u8> {
        let numbers = (0..100_000_u32).map(|n| n.wrapping_mul(n) >> 7);
        numbers.flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn every_format_is_recognised_and_decompressed() {
        let plain = sample();
        for compression in ALL {
            let packed = compress(compression, &plain);
            for piece in [1, 7, 65_536, usize::MAX] {
                let found = decompress(&packed, piece).unwrap();
                assert!(found == plain, "{compression:?} in pieces of {piece}");
            }
            // Two files, one after the other.
            let twice = [packed.clone(), packed].concat();
            let found = decompress(&twice, 1000).unwrap();
            assert!(
                found == [plain.clone(), plain.clone()].concat(),
                "{compression:?}"
            );
        }
    }

    #[test]
    fn stream_that_ends_early_is_an_error() {
        let plain = sample();
        for compression in &ALL[1..] {
            let packed = compress(*compression, &plain);
            for missing in [1, 4, 8, packed.len() / 2, packed.len() - MAGIC_LENGTH] {
                let cut = &packed[..packed.len() - missing];
                assert!(
                    decompress(cut, 1000).is_err(),
                    "{compression:?} - {missing}"
                );
            }
        }
    }

    #[test]
    fn large_window_is_refused() {
        // A frame with a window of 2 GiB: descriptor, window 31, an empty last block.
        let frame = [
            0x28,
            0xb5,
            0x2f,
            0xfd,
            0x00,
            (31 - 10) << 3,
            0x01,
            0x00,
            0x00,
        ];
        assert!(decompress(&frame, 100).is_err());
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes: Vec<u8>, which in 1_usize..4, at: usize, piece in 1_usize..50) {
            let mut packed = compress(ALL[which], b"some bytes some bytes some bytes");
            let at = at % packed.len();
            packed.splice(at.., bytes);
            drop(decompress(&packed, piece));
        }
    }
}
