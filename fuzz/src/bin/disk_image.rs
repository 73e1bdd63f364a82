//! Headers of disk images.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| disk_image::fuzz_probe(bytes));
