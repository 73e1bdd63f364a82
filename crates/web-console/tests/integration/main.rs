//! The server of the console, and the page in a real browser, in front of our own API server with our
//! webhooks. The tests play the controllers and the devices of guests.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails so")]

mod browser;
mod downloads;
mod files;
mod serving;
mod support;
