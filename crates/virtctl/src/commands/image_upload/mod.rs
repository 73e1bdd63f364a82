//! `image-upload`: a local image as a data volume or claim, through the upload proxy of CDI.
//!
//! The steps: make the volume, wait until it can be written, ask for a token, send the file, wait until it
//! is processed. The proxy cannot resume: a retry sends the whole file again, with a new token.

mod cli;
mod run;
mod send;
mod volume;
mod wait;

pub(crate) use cli::{Disk, ImageUpload};
pub(crate) use run::image_upload;
