//! Builds, checks and measures the workspace.

fn main() {}
