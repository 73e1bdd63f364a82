//! A browser for tests: headless Chromium, controlled by `WebDriver` over plain HTTP.
//!
//! Needs the Debian packages `chromium` and `chromium-driver`; `scripts/setup.sh test` installs them.
//!
//! **Invariant**: knows no page. Every wait has a condition and a limit, and a test that fails ends its
//! browser.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "for tests, which fail by panicking"
)]

mod driver;

pub use driver::Browser;
