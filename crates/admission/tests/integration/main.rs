//! The rules, the examples, and fields that the types do not know. The tests of hostile input are
//! their own binary, `tests/hostile.rs`.

mod coverage;
mod examples;
mod newer_fields;
mod rules;
