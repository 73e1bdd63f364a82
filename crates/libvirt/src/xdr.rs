//! The part of XDR (RFC 4506) that libvirt uses: big endian, all values padded to four bytes.

use crate::{DomainUuid, ProtocolError};

/// The longest string that is read or written.
pub(crate) const MAX_STRING: usize = 4 << 20;

/// Appends values to a body.
#[derive(Debug, Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn i32(mut self, value: i32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// The length, the bytes, and zeros up to the next multiple of four. Bytes that are too many for
    /// their length field make the frame exceed its own bound, and are refused there.
    pub(crate) fn opaque(mut self, bytes: &[u8]) -> Self {
        self = self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn string(self, text: &str) -> Self {
        self.opaque(text.as_bytes())
    }

    pub(crate) fn optional_string(self, text: Option<&str>) -> Self {
        match text {
            None => self.u32(0),
            Some(text) => self.u32(1).string(text),
        }
    }

    pub(crate) fn uuid(mut self, uuid: DomainUuid) -> Self {
        self.0.extend_from_slice(&uuid.0);
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads values from the front of a body.
#[derive(Debug, Clone)]
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], ProtocolError> {
        let (head, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(ProtocolError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(ProtocolError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ProtocolError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, ProtocolError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ProtocolError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn uuid(&mut self) -> Result<DomainUuid, ProtocolError> {
        self.array().map(DomainUuid)
    }

    /// The number of items, at most `limit`.
    pub(crate) fn count(&mut self, limit: usize) -> Result<usize, ProtocolError> {
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if count > limit {
            Err(ProtocolError::TooMany { count, limit })
        } else {
            Ok(count)
        }
    }

    /// As many bytes as their length says, at most as long as a string.
    pub(crate) fn opaque(&mut self) -> Result<&'a [u8], ProtocolError> {
        let length = self.count(MAX_STRING)?;
        let bytes = self.bytes(length)?;
        self.bytes(length.next_multiple_of(4) - length)?;
        Ok(bytes)
    }

    /// A text. Invalid UTF-8 is replaced, not refused: messages may quote a guest's bytes.
    pub(crate) fn string(&mut self) -> Result<String, ProtocolError> {
        Ok(String::from_utf8_lossy(self.opaque()?).into_owned())
    }

    pub(crate) fn optional_string(&mut self) -> Result<Option<String>, ProtocolError> {
        match self.u32()? {
            0 => Ok(None),
            1 => self.string().map(Some),
            _ => Err(ProtocolError::Malformed(
                "an optional value is neither absent nor present",
            )),
        }
    }

    /// Checks that nothing is left: a longer body has an unknown layout.
    pub(crate) fn finish(self) -> Result<(), ProtocolError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(ProtocolError::Malformed("bytes are left over"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoded_values_are_decoded_back(a: u32, b: i32, text: String, maybe: Option<String>, uuid: [u8; 16]) {
            let bytes = Encoder::new()
                .u32(a).i32(b).string(&text).optional_string(maybe.as_deref()).uuid(DomainUuid(uuid)).finish();
            prop_assert_eq!(bytes.len() % 4, 0);
            let mut from = Decoder::new(&bytes);
            prop_assert_eq!(from.u32(), Ok(a));
            prop_assert_eq!(from.i32(), Ok(b));
            prop_assert_eq!(from.string(), Ok(text));
            prop_assert_eq!(from.optional_string(), Ok(maybe));
            prop_assert_eq!(from.uuid(), Ok(DomainUuid(uuid)));
            prop_assert_eq!(from.finish(), Ok(()));
        }

        #[test]
        fn decoders_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            crate::fuzz_decoders(&bytes);
        }
    }

    #[test]
    fn length_without_its_bytes_is_refused() {
        let claims_four_gigabytes = u32::MAX.to_be_bytes();
        assert!(matches!(
            Decoder::new(&claims_four_gigabytes).string(),
            Err(ProtocolError::TooMany { .. })
        ));
        assert_eq!(
            Decoder::new(&[0, 0, 0, 9, 1]).string(),
            Err(ProtocolError::Truncated)
        );
    }
}
