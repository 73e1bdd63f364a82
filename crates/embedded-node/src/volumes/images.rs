//! The record of the images of a pod's volumes.
//!
//! Invariant: it is written before the volume is used, and goes with the pod's directory.

use std::{fs, io, path::Path};

use image_store::Digest;

use crate::Failure;

use super::{FAILED, payload};

/// In the directory of a pod: a file for each image volume, with the digest of its image.
const RECORDS: &str = "volumes/kubernetes.io~image";

/// Records the image of a volume.
pub(super) fn record(pod_dir: &Path, volume: &str, image: &Digest) -> Result<(), Failure> {
    payload::check_path(volume)?;
    let records = pod_dir.join(RECORDS);
    fs::create_dir_all(&records)
        .and_then(|()| fs::write(records.join(volume), image.as_str()))
        .map_err(|error| {
            let what = format!("record the image of volume {volume:?}: is the disk full?");
            Failure::of(FAILED, &what, &error)
        })
}

/// The images of a pod's volumes.
pub(crate) fn recorded(pod_dir: &Path) -> io::Result<Vec<Digest>> {
    let records = match fs::read_dir(pod_dir.join(RECORDS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        records => records?,
    };
    let mut images = Vec::new();
    for record in records {
        match fs::read_to_string(record?.path()) {
            Ok(text) => images.extend(text.trim().parse::<Digest>().ok()),
            // The pod may be removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(images)
}
