//! A writer of ISO 9660 images with Joliet names.
//!
//! Two directory trees describe the same file contents: the primary tree with short upper-case names,
//! which every reader supports, and the Joliet tree with the given names. The image has no times and
//! no owners: each date is a constant.

use std::collections::{BTreeMap, BTreeSet};

use crate::directory::{Entry, Tree};
use crate::error::SeedError;

const SECTOR: usize = 2048;
/// In sectors. Disks with blocks of 4096 bytes take only images of whole blocks.
const ALIGNMENT: u32 = 2;
/// System area, then the two volume descriptors and their terminator.
const FIRST_FREE: u32 = 19;
/// 1 January 1980, midnight, in the seven bytes of a directory record.
const RECORD_DATE: [u8; 7] = [80, 1, 1, 0, 0, 0, 0];

/// Renders an image with that volume label. File names are relative paths with `/`.
pub fn iso9660(label: &str, files: &[(&str, &[u8])]) -> Result<Vec<u8>, SeedError> {
    if label.is_empty() || label.len() > 16 || !label.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return Err(SeedError::Label {
            label: label.to_owned(),
        });
    }
    let tree = Tree::of(files.iter().map(|(name, _)| *name))?;
    let mut next = FIRST_FREE;
    let primary = Volume::lay_out(&tree, primary_names(&tree)?, &mut next)?;
    let joliet = Volume::lay_out(&tree, joliet_names(&tree)?, &mut next)?;
    let contents = place_files(files, &mut next)?;
    next = next.next_multiple_of(ALIGNMENT);

    let mut image = Image::default();
    image.pad_to(16)?;
    image.put(&primary.descriptor(Naming::Primary, label, next));
    image.put(&joliet.descriptor(Naming::Joliet, label, next));
    image.put(&[&[255][..], b"CD001", &[1]].concat());
    for volume in [&primary, &joliet] {
        image.put(&volume.path_table(u32::to_le_bytes, u16::to_le_bytes));
        image.put(&volume.path_table(u32::to_be_bytes, u16::to_be_bytes));
        for directory in 0..volume.directories.len() {
            image.put(&volume.directory(&tree, directory, &contents));
        }
    }
    for (extent, (_, bytes)) in contents.iter().zip(files) {
        image.pad_to(extent.sector)?;
        image.put(bytes);
    }
    image.pad_to(next)?;
    Ok(image.bytes)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    Primary,
    Joliet,
}

/// The sectors of a file, directory or table, and its length in bytes.
#[derive(Debug, Clone, Copy)]
struct Extent {
    sector: u32,
    bytes: u32,
}

/// A directory of one of the trees: its identifier and its records in order.
struct Named {
    identifier: Vec<u8>,
    /// Number of the parent in the path table, which counts from one.
    parent_number: u16,
    records: Vec<(Vec<u8>, Entry)>,
}

struct Volume {
    names: Vec<Named>,
    directories: Vec<Extent>,
    path_table_bytes: u32,
    path_table_little: u32,
    path_table_big: u32,
}

impl Volume {
    fn lay_out(tree: &Tree, names: Vec<Named>, next: &mut u32) -> Result<Self, SeedError> {
        let path_table_bytes = names
            .iter()
            .map(|name| even(8 + name.identifier.len()))
            .sum::<usize>();
        let path_table_little = take(next, path_table_bytes)?.sector;
        let path_table = take(next, path_table_bytes)?;
        let directories = names
            .iter()
            .map(|name| take(next, directory_bytes(name)))
            .collect::<Result<_, _>>()?;
        debug_assert_eq!(tree.directories.len(), names.len());
        Ok(Self {
            names,
            directories,
            path_table_bytes: path_table.bytes,
            path_table_little,
            path_table_big: path_table.sector,
        })
    }

    fn descriptor(&self, naming: Naming, label: &str, sectors: u32) -> Vec<u8> {
        let text = |value: &str, width: usize| match naming {
            Naming::Primary => pad(value.as_bytes().to_vec(), b" ", width),
            Naming::Joliet => pad(utf16_be(value), &[0, b' '], width),
        };
        let mut out = Vec::with_capacity(SECTOR);
        out.push(if naming == Naming::Primary { 1 } else { 2 });
        out.extend(b"CD001\x01\0");
        out.extend(text("", 32));
        // Some readers would show padding blanks as part of a Joliet label.
        out.extend(match naming {
            Naming::Primary => text(label, 32),
            Naming::Joliet => pad(utf16_be(label), &[0], 32),
        });
        out.extend([0; 8]);
        out.extend(both_u32(sectors));
        let escapes: &[u8] = if naming == Naming::Joliet {
            b"%/E"
        } else {
            b""
        };
        out.extend(pad(escapes.to_vec(), &[0], 32));
        out.extend(both_u16(1));
        out.extend(both_u16(1));
        out.extend(both_u16(2048));
        out.extend(both_u32(self.path_table_bytes));
        out.extend(self.path_table_little.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.path_table_big.to_be_bytes());
        out.extend([0; 4]);
        out.extend(record(&[0], self.directories[0], true));
        // Set, publisher, preparer and application, then three file identifiers: all blank.
        for width in [128, 128, 128, 128, 37, 37, 37] {
            out.extend(text("", width));
        }
        for _ in 0..4 {
            out.extend(b"0000000000000000\0");
        }
        out.push(1);
        out
    }

    fn path_table(&self, wide: fn(u32) -> [u8; 4], narrow: fn(u16) -> [u8; 2]) -> Vec<u8> {
        let mut out = Vec::new();
        for (index, named) in self.names.iter().enumerate() {
            out.push(byte(named.identifier.len()));
            out.push(0);
            out.extend(wide(self.directories[index].sector));
            out.extend(narrow(named.parent_number));
            out.extend(&named.identifier);
            if !out.len().is_multiple_of(2) {
                out.push(0);
            }
        }
        out
    }

    fn directory(&self, tree: &Tree, index: usize, files: &[Extent]) -> Vec<u8> {
        let mut out = record(&[0], self.directories[index], true);
        let parent = tree.directories[index].parent;
        out.extend(record(&[1], self.directories[parent], true));
        for (identifier, entry) in &self.names[index].records {
            let rendered = match entry {
                Entry::File(file) => record(identifier, files[*file], false),
                Entry::Directory(child) => record(identifier, self.directories[*child], true),
            };
            if out.len() % SECTOR + rendered.len() > SECTOR {
                out.resize(out.len().next_multiple_of(SECTOR), 0);
            }
            out.extend(rendered);
        }
        out
    }
}

/// The growing image; every part starts at a sector.
#[derive(Default)]
struct Image {
    bytes: Vec<u8>,
}

impl Image {
    fn put(&mut self, part: &[u8]) {
        self.bytes.extend(part);
        // An empty part has a sector of its own, as in the layout.
        let end = self.bytes.len().next_multiple_of(SECTOR);
        let end = if part.is_empty() { end + SECTOR } else { end };
        self.bytes.resize(end, 0);
    }

    fn pad_to(&mut self, sector: u32) -> Result<(), SeedError> {
        let end = usize::try_from(sector).map_err(|_| SeedError::TooLarge)? * SECTOR;
        debug_assert!(self.bytes.len() <= end, "parts overlap");
        self.bytes.resize(end, 0);
        Ok(())
    }
}

fn place_files(files: &[(&str, &[u8])], next: &mut u32) -> Result<Vec<Extent>, SeedError> {
    files
        .iter()
        .map(|(_, content)| take(next, content.len()))
        .collect()
}

/// Reserves whole sectors, but at least one.
fn take(next: &mut u32, bytes: usize) -> Result<Extent, SeedError> {
    let sector = *next;
    let sectors = u32::try_from(bytes.div_ceil(SECTOR).max(1)).map_err(|_| SeedError::TooLarge)?;
    let after = sector.checked_add(sectors).ok_or(SeedError::TooLarge)?;
    // Every byte of the image has a 32-bit offset.
    if u64::from(after) * 2048 > u64::from(u32::MAX) {
        return Err(SeedError::TooLarge);
    }
    *next = after;
    let bytes = u32::try_from(bytes).map_err(|_| SeedError::TooLarge)?;
    Ok(Extent { sector, bytes })
}

fn directory_bytes(named: &Named) -> usize {
    let mut used = 2 * record_bytes(1);
    for (identifier, _) in &named.records {
        let more = record_bytes(identifier.len());
        if used % SECTOR + more > SECTOR {
            used = used.next_multiple_of(SECTOR);
        }
        used += more;
    }
    used.next_multiple_of(SECTOR)
}

fn record_bytes(identifier: usize) -> usize {
    even(33 + identifier)
}

fn record(identifier: &[u8], extent: Extent, is_directory: bool) -> Vec<u8> {
    let length = record_bytes(identifier.len());
    let mut out = vec![byte(length), 0];
    out.extend(both_u32(extent.sector));
    out.extend(both_u32(extent.bytes));
    out.extend(RECORD_DATE);
    out.extend([if is_directory { 2 } else { 0 }, 0, 0]);
    out.extend(both_u16(1));
    out.push(byte(identifier.len()));
    out.extend(identifier);
    out.resize(length, 0);
    out
}

fn primary_names(tree: &Tree) -> Result<Vec<Named>, SeedError> {
    name_all(tree, |directory| {
        let mut used = BTreeSet::new();
        directory
            .iter()
            .map(|(name, entry)| (short_name(name, *entry, &mut used), *entry))
            .collect()
    })
}

fn joliet_names(tree: &Tree) -> Result<Vec<Named>, SeedError> {
    name_all(tree, |directory| {
        directory
            .iter()
            .map(|(name, entry)| (utf16_be(name), *entry))
            .collect()
    })
}

fn name_all(
    tree: &Tree,
    rename: impl Fn(&BTreeMap<String, Entry>) -> Vec<(Vec<u8>, Entry)>,
) -> Result<Vec<Named>, SeedError> {
    let mut identifiers = vec![vec![0]; tree.directories.len()];
    let mut all = Vec::with_capacity(tree.directories.len());
    for directory in &tree.directories {
        let mut records = rename(&directory.entries);
        records.sort();
        for (identifier, entry) in &records {
            if let Entry::Directory(child) = entry {
                identifiers[*child].clone_from(identifier);
            }
        }
        let parent_number = u16::try_from(directory.parent + 1).map_err(|_| SeedError::TooLarge)?;
        all.push((parent_number, records));
    }
    Ok(identifiers
        .into_iter()
        .zip(all)
        .map(|(identifier, (parent_number, records))| Named {
            identifier,
            parent_number,
            records,
        })
        .collect())
}

/// An unused upper-case name of eight and three characters.
fn short_name(name: &str, entry: Entry, used: &mut BTreeSet<String>) -> Vec<u8> {
    let clean = |part: &str, width: usize| -> String {
        part.chars()
            .map(|c| match c.to_ascii_uppercase() {
                c if c.is_ascii_uppercase() || c.is_ascii_digit() => c,
                _ => '_',
            })
            .take(width)
            .collect()
    };
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let (stem, extension) = (clean(stem, 8), clean(extension, 3));
    let mut candidate = stem.clone();
    let mut number = 0_u32;
    while candidate.is_empty() || !used.insert(format!("{candidate}.{extension}")) {
        number += 1;
        let tail = number.to_string();
        let kept: String = stem
            .chars()
            .take(8_usize.saturating_sub(tail.len()))
            .collect();
        candidate = format!("{kept}{tail}");
    }
    match entry {
        Entry::File(_) => format!("{candidate}.{extension};1").into_bytes(),
        Entry::Directory(_) if extension.is_empty() => candidate.into_bytes(),
        Entry::Directory(_) => format!("{candidate}_{extension}").into_bytes(),
    }
}

fn utf16_be(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

fn pad(mut bytes: Vec<u8>, filler: &[u8], width: usize) -> Vec<u8> {
    while bytes.len() < width {
        bytes.extend(filler);
    }
    bytes.truncate(width);
    bytes
}

fn both_u32(value: u32) -> [u8; 8] {
    let [a, b, c, d] = value.to_le_bytes();
    [a, b, c, d, d, c, b, a]
}

fn both_u16(value: u16) -> [u8; 4] {
    let [a, b] = value.to_le_bytes();
    [a, b, b, a]
}

fn even(length: usize) -> usize {
    length.next_multiple_of(2)
}

fn byte(value: usize) -> u8 {
    u8::try_from(value).expect("names are at most 64 units long, so records fit a byte")
}
