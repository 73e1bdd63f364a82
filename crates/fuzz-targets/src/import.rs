//! What an importer reads from a web server: the first byte chooses. Headers of responses, of which a part
//! continues only the same version; compressed files, in pieces, of which the output is bounded; the format
//! of an image, and the tables of a qcow2 image.

use std::{
    fs::File,
    io::{self, Write},
};

use http::{HeaderName, HeaderValue, Response};
use rustix::fs::{MemfdFlags, memfd_create};

// Files of the importer are included: the whole crate would bring TLS and the network.
#[path = "../../disk-import/src/decompress.rs"]
mod decompress;
#[path = "../../disk-import/src/detect.rs"]
mod detect;
#[path = "../../disk-import/src/fetch/entity.rs"]
mod entity;
#[path = "../../disk-import/src/qcow2.rs"]
mod qcow2;

use decompress::{Compression, Decompressor, MAGIC_LENGTH};
use detect::Image;
use entity::{Entity, Part};

/// The room of the volume.
const ROOM: usize = 1 << 20;

pub fn run(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, rest)) => responses(rest),
        Some((1, rest)) => compressed(rest),
        Some((_, rest)) => image(rest),
        None => {}
    }
}

/// Two responses: lines with a name and a value, with an empty line between them.
fn responses(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (first, second) = text.split_once("\n\n").unwrap_or((&text, ""));
    let (first, second) = (response(first), response(second));
    let mut entity = Entity::whole(&first);
    let before = entity.clone();
    let Some(part) = Part::of(&second) else {
        return;
    };
    if entity.continues(&part, 7) {
        assert_eq!(entity.validator, before.validator);
        assert!(before.total.is_none() || entity.total == before.total);
    } else {
        assert_eq!(entity, before);
    }
}

fn response(text: &str) -> Response<()> {
    let mut response = Response::new(());
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let name = HeaderName::from_bytes(name.trim().as_bytes());
        let value = HeaderValue::from_bytes(value.trim().as_bytes());
        if let (Ok(name), Ok(value)) = (name, value) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// A volume that becomes full.
struct Volume(usize);

impl Write for Volume {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        if self.0 > ROOM {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// In pieces of the length of the first byte and in one piece: both succeed or both fail.
fn compressed(bytes: &[u8]) {
    let Some((length, bytes)) = bytes.split_first() else {
        return;
    };
    let head = &bytes[..bytes.len().min(MAGIC_LENGTH)];
    let read = |length: usize| -> io::Result<usize> {
        let mut to = Decompressor::new(Compression::of(head), Volume(0))?;
        for piece in bytes.chunks(length) {
            to.push(piece)?;
        }
        Ok(to.finish()?.0)
    };
    let pieces = read(usize::from(*length).max(1));
    let whole = read(bytes.len().max(1));
    assert_eq!(pieces.ok(), whole.ok(), "the same output");
}

fn image(bytes: &[u8]) {
    let Ok(Image::Other("qcow2")) = Image::detect(bytes) else {
        return;
    };
    let file = memfd_create("image", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = File::from(file);
    file.write_all(bytes).expect("memory");
    drop(qcow2::check_complete(&file));
}
