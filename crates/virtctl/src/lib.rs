//! The user's tool.
