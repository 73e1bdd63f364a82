//! The program on a terminal, with servers that the tests play: what it does about signals and bad input.

#![cfg(test)]
#![cfg(unix)]

mod bad_input;
mod place;
mod signals;
