//! Output files: whole, or not there.
//!
//! - [`Draft`] is a name beside the goal, for a file that another program writes;
//! - [`NewFile`] is a file that appears under its name when it is complete;
//! - [`Partial`] is the same for a download that may go on in another run of the program.
//!
//! **Invariant**: a regular file with the name that the user gave holds the old data or all of the new data,
//! also after a signal or a power cut. Devices and pipes are written as they are.

mod draft;
mod partial;

pub(crate) use draft::{Draft, NewFile, write};
pub(crate) use partial::{Partial, Version};
