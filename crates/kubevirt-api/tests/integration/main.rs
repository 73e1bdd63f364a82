//! Objects of every kind are read and written again without loss.

mod every_field;
mod groups;
mod round_trip;
