//! What the fuzz targets check: one function for each parser of untrusted bytes.
//!
//! `cargo xtask fuzz` builds a program of each for libFuzzer (`fuzz/`, a workspace of its own). A test of
//! xtask runs all over their seeds and over `inputs/`, which has former findings, without libFuzzer.
//!
//! A parser that is private to its crate, or whose crate is slow to build, is included as a file. Some of
//! these files name their neighbours by the root of their crate, so those are modules here. They have tests of
//! their own, which run in their crates.

#![cfg(not(test))]

#[path = "../../image-store/src/config.rs"]
mod config;
#[path = "../../image-store/src/digest.rs"]
mod digest;
#[path = "../../virt-launcher/src/domain_list.rs"]
mod domain_list;
#[path = "../../image-store/src/error/unpack.rs"]
mod error;
#[path = "../../disk-import/src/error.rs"]
mod import_error;
#[path = "../../image-store/src/tree.rs"]
mod tree;
#[path = "../../image-store/src/verified.rs"]
mod verified;

pub mod agent;
pub mod answer;
pub mod apply;
pub mod decode;
pub mod dhcp;
pub mod disk_image;
pub mod dns;
pub mod frame;
pub mod import;
pub mod ipv6;
pub mod jwt;
pub mod layer;
pub mod libvirt;
pub mod manifest;
pub mod patch;
pub mod path;
pub mod protobuf;
pub mod quantity;
pub mod query;
pub mod resolv_conf;
pub mod review;
pub mod schema;
pub mod spdy;
pub mod websocket;

use import_error::ImportError;

/// A target; any bytes are fine, and a panic is a finding.
pub type Target = fn(&[u8]);

/// All targets, by the name of their program.
pub static ALL: &[(&str, Target)] = &[
    ("agent", agent::run),
    ("answer", answer::run),
    ("apply", apply::run),
    ("decode", decode::run),
    ("dhcp", dhcp::run),
    ("disk_image", disk_image::run),
    ("dns", dns::run),
    ("frame", frame::run),
    ("import", import::run),
    ("ipv6", ipv6::run),
    ("jwt", jwt::run),
    ("layer", layer::run),
    ("libvirt", libvirt::run),
    ("manifest", manifest::run),
    ("patch", patch::run),
    ("path", path::run),
    ("protobuf", protobuf::run),
    ("quantity", quantity::run),
    ("query", query::run),
    ("resolv_conf", resolv_conf::run),
    ("review", review::run),
    ("schema", schema::run),
    ("spdy", spdy::run),
    ("websocket", websocket::run),
];
