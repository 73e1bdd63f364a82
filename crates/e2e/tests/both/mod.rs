//! Tests that run in either environment.

mod api_shapes;
mod bad_input;
mod container_disks;
mod crashes;
mod deletion;
mod filesystems;
mod first_light;
mod guest_failures;
mod hooks;
mod manual_deletion;
mod missing_requirements;
mod networks;
mod pools;
mod power;
mod replica_sets;
mod stolen_node;
mod strategies;
mod usb;
mod volumes;
