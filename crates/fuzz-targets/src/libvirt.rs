//! Frames and bodies of libvirt's protocol.

pub fn run(bytes: &[u8]) {
    libvirt::fuzz_decoders(bytes);
}
