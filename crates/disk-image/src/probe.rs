//! Describes an image by its first bytes.
//!
//! The layout is QEMU's published one (`docs/interop/qcow2`): versions 2 and 3, big endian.

/// The bytes of an image that [`probe`] needs: the header, its extensions and the backing file's
/// name are in the first cluster, and this is the usual cluster size.
pub const PROBE_LENGTH: usize = 64 << 10;
/// Virtual sizes are multiples of this.
pub const SECTOR: u64 = 512;

pub(crate) const MAGIC: [u8; 4] = *b"QFI\xfb";
pub(crate) const V3_HEADER: usize = 104;
const V2_HEADER: usize = 72;
/// The longest name the format allows.
pub(crate) const MAX_BACKING_NAME: usize = 1023;
pub(crate) const EXTENSION_BACKING_FORMAT: u32 = 0xe279_2aca;
const EXTENSION_DATA_FILE: u32 = 0x4441_5441;
const INCOMPATIBLE_DIRTY: u64 = 1;
const INCOMPATIBLE_CORRUPT: u64 = 1 << 1;
const INCOMPATIBLE_DATA_FILE: u64 = 1 << 2;
const INCOMPATIBLE_COMPRESSION: u64 = 1 << 3;
const INCOMPATIBLE_EXTENDED_L2: u64 = 1 << 4;
const INCOMPATIBLE_KNOWN: u64 = INCOMPATIBLE_DIRTY
    | INCOMPATIBLE_CORRUPT
    | INCOMPATIBLE_DATA_FILE
    | INCOMPATIBLE_COMPRESSION
    | INCOMPATIBLE_EXTENDED_L2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Qcow2,
    /// Anything without a known header.
    Raw,
}

impl Format {
    /// QEMU's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }
}

/// An image, as its first bytes describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub format: Format,
    /// The size of the guest's disk.
    pub virtual_size: u64,
    /// The name in the header, unchanged.
    pub backing_file: Option<String>,
    pub backing_format: Option<String>,
    pub has_data_file: bool,
    pub is_encrypted: bool,
    pub is_corrupt: bool,
    /// Incompatible feature bits that this parser does not know.
    pub unknown_features: u64,
}

/// The bytes are not a valid image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    #[error("the image is empty")]
    Empty,
    #[error("the qcow2 header ends too early")]
    Truncated,
    #[error("qcow2 version {0} is not supported")]
    Version(u32),
    #[error("the qcow2 header holds an impossible value: {0}")]
    Impossible(&'static str),
}

/// Why an image is refused as a container disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it has a backing file, {0:?}, which could be any file of the host")]
    BackingFile(String),
    #[error("it has an external data file, which could be any file of the host")]
    DataFile,
    #[error("it is encrypted")]
    Encrypted,
    #[error("it is marked as corrupt")]
    Corrupt,
    #[error("it uses unknown qcow2 features (bits {0:#x})")]
    UnknownFeatures(u64),
}

impl Description {
    /// Refuses what an untrusted image must not have.
    pub fn check_container_disk(&self) -> Result<(), Refusal> {
        let checks = [
            self.backing_file.clone().map(Refusal::BackingFile),
            self.has_data_file.then_some(Refusal::DataFile),
            self.is_encrypted.then_some(Refusal::Encrypted),
            self.is_corrupt.then_some(Refusal::Corrupt),
            (self.unknown_features != 0).then_some(Refusal::UnknownFeatures(self.unknown_features)),
        ];
        checks.into_iter().flatten().next().map_or(Ok(()), Err)
    }
}

/// Describes an image of `file_length` bytes by its first [`PROBE_LENGTH`] bytes, or all if it is
/// shorter.
pub fn probe(head: &[u8], file_length: u64) -> Result<Description, ProbeError> {
    if file_length == 0 {
        return Err(ProbeError::Empty);
    }
    if !head.starts_with(&MAGIC) {
        return Ok(Description {
            format: Format::Raw,
            virtual_size: file_length.next_multiple_of(SECTOR),
            backing_file: None,
            backing_format: None,
            has_data_file: false,
            is_encrypted: false,
            is_corrupt: false,
            unknown_features: 0,
        });
    }
    probe_qcow2(head)
}

fn probe_qcow2(head: &[u8]) -> Result<Description, ProbeError> {
    let version = u32_at(head, 4)?;
    let cluster_bits = u32_at(head, 20)?;
    let virtual_size = u64_at(head, 24)?;
    if !(9..=21).contains(&cluster_bits) {
        return Err(ProbeError::Impossible("cluster size"));
    }
    if virtual_size > i64::MAX.unsigned_abs() {
        return Err(ProbeError::Impossible("virtual size"));
    }
    let (incompatible, header_length) = match version {
        2 => (0, V2_HEADER),
        3 => (u64_at(head, 72)?, header_length_v3(head)?),
        other => return Err(ProbeError::Version(other)),
    };
    let extensions = Extensions::read(head, header_length, 1 << cluster_bits)?;
    Ok(Description {
        format: Format::Qcow2,
        virtual_size,
        backing_file: backing_file(head)?,
        backing_format: extensions.backing_format,
        has_data_file: incompatible & INCOMPATIBLE_DATA_FILE != 0 || extensions.names_data_file,
        is_encrypted: u32_at(head, 32)? != 0,
        is_corrupt: incompatible & INCOMPATIBLE_CORRUPT != 0,
        unknown_features: incompatible & !INCOMPATIBLE_KNOWN,
    })
}

fn header_length_v3(head: &[u8]) -> Result<usize, ProbeError> {
    let length = usize::try_from(u32_at(head, 100)?).unwrap_or(usize::MAX);
    if length < V3_HEADER || !length.is_multiple_of(8) || length > PROBE_LENGTH {
        return Err(ProbeError::Impossible("length of the header"));
    }
    Ok(length)
}

fn backing_file(head: &[u8]) -> Result<Option<String>, ProbeError> {
    let offset = u64_at(head, 8)?;
    if offset == 0 {
        return Ok(None);
    }
    let length = usize::try_from(u32_at(head, 16)?).unwrap_or(usize::MAX);
    if length > MAX_BACKING_NAME {
        return Err(ProbeError::Impossible("length of the backing file's name"));
    }
    let start = usize::try_from(offset).map_err(|_| ProbeError::Truncated)?;
    let name = slice(head, start, length)?;
    Ok(Some(String::from_utf8_lossy(name).into_owned()))
}

#[derive(Default)]
struct Extensions {
    backing_format: Option<String>,
    names_data_file: bool,
}

impl Extensions {
    /// Walks the list after the header: kind, length, data padded to eight; kind 0 ends it.
    fn read(head: &[u8], header_length: usize, cluster: usize) -> Result<Self, ProbeError> {
        let backing = usize::try_from(u64_at(head, 8)?).unwrap_or(usize::MAX);
        let end = if backing == 0 {
            cluster
        } else {
            backing.min(cluster)
        };
        let mut found = Self::default();
        let mut at = header_length;
        while at + 8 <= end.min(head.len()) {
            let kind = u32_at(head, at)?;
            let length = usize::try_from(u32_at(head, at + 4)?).unwrap_or(usize::MAX);
            if kind == 0 {
                break;
            }
            if length > end - at - 8 {
                return Err(ProbeError::Impossible("length of a header extension"));
            }
            let data = slice(head, at + 8, length)?;
            match kind {
                EXTENSION_BACKING_FORMAT => {
                    found.backing_format = Some(String::from_utf8_lossy(data).into_owned());
                }
                EXTENSION_DATA_FILE => found.names_data_file = true,
                _ => {}
            }
            at += 8 + length.next_multiple_of(8);
        }
        Ok(found)
    }
}

fn slice(head: &[u8], start: usize, length: usize) -> Result<&[u8], ProbeError> {
    let end = start.checked_add(length).ok_or(ProbeError::Truncated)?;
    head.get(start..end).ok_or(ProbeError::Truncated)
}

fn u32_at(head: &[u8], at: usize) -> Result<u32, ProbeError> {
    let bytes = head
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .ok_or(ProbeError::Truncated)?;
    Ok(u32::from_be_bytes(*bytes))
}

fn u64_at(head: &[u8], at: usize) -> Result<u64, ProbeError> {
    let bytes = head
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .ok_or(ProbeError::Truncated)?;
    Ok(u64::from_be_bytes(*bytes))
}
