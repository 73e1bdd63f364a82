//! Headers of disk images.

pub fn run(bytes: &[u8]) {
    disk_image::fuzz_probe(bytes);
}
