//! Writes the disk that a chain describes: each part is that of the newest file that holds it.

use super::layer::{Extent, Layer};
use crate::ImportError;
use crate::disk::Disk;

const CHUNK: u64 = 1 << 20;

/// The size of the disk, which is that of the newest file: a disk may have grown since the older ones.
pub(super) fn size(layers: &[Layer]) -> u64 {
    layers.first().map_or(0, Layer::size)
}

/// The bytes that the disk needs at most: all but zeros. Reads all tables, so that none fails later.
pub(super) fn data_bytes(layers: &mut [Layer]) -> Result<u64, ImportError> {
    let size = size(layers);
    let (mut at, mut data) = (0, 0);
    while at < size {
        let part = newest(layers, at, size - at)?;
        if part.source.is_some() {
            data += part.length;
        }
        at += part.length;
    }
    Ok(data)
}

/// `layers` begins with the newest. `on_write` gets how much of the disk is done.
pub(super) fn write(
    layers: &mut [Layer],
    disk: &mut Disk,
    mut on_write: impl FnMut(u64),
) -> Result<(), ImportError> {
    let size = size(layers);
    let mut buffer = Vec::new();
    let mut at = 0;
    let mut zeros = 0;
    while at < size {
        let Part { source, length } = newest(layers, at, size - at)?;
        let Some((index, offset)) = source else {
            zeros += length;
            at += length;
            continue;
        };
        if zeros > 0 {
            disk.skip(zeros)?;
            zeros = 0;
        }
        let length = length.min(CHUNK);
        buffer.resize(usize::try_from(length).unwrap_or_default(), 0);
        if let Some(layer) = layers.get(index) {
            layer.read(offset, &mut buffer)?;
        }
        disk.write(&buffer)?;
        at += length;
        on_write(at);
    }
    if zeros > 0 {
        disk.skip(zeros)?;
    }
    on_write(size);
    Ok(())
}

/// A part of the disk.
struct Part {
    /// The index of the file that holds it, and where; `None` if it is zeros.
    source: Option<(usize, u64)>,
    length: u64,
}

fn newest(layers: &mut [Layer], at: u64, left: u64) -> Result<Part, ImportError> {
    let mut length = left;
    let mut source = None;
    for (index, layer) in layers.iter_mut().enumerate() {
        // The disk ended here when that file was made: what older ones have behind its end was lost then.
        if at >= layer.size() {
            break;
        }
        let (extent, same) = layer.find(at)?;
        length = length.min(same);
        match extent {
            Extent::Absent => {}
            Extent::Zeros => break,
            Extent::Data(offset) => {
                source = Some((index, offset));
                break;
            }
        }
    }
    Ok(Part { source, length })
}
