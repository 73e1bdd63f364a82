//! The keeper of one guest.
