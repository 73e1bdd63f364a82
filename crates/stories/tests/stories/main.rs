//! The stories. They share one host, except for those that kill it.

#![cfg(test)]

mod bad_input;
mod crashes;
mod deletion;
mod first_light;
mod power;
mod strategies;
mod taking_down;
