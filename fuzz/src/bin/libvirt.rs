//! Frames and bodies of libvirt's protocol.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| libvirt::fuzz_decoders(bytes));
