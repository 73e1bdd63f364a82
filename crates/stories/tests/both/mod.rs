//! Stories that are told on either home.

mod bad_input;
mod by_hand;
mod container_disks;
mod crashes;
mod deletion;
mod endings;
mod first_light;
mod lacking;
mod networks;
mod power;
mod replica_sets;
mod shapes;
mod strategies;
mod volumes;
