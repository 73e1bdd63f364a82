//! One module for each group of commands.

pub(crate) mod console;
pub(crate) mod guest;
pub(crate) mod power;
pub(crate) mod version;
pub(crate) mod vnc;
pub(crate) mod why;
