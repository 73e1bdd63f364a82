//! The page in headless Chromium.
//!
//! Needs the Debian packages `chromium` and `chromium-driver`; `scripts/setup.sh test` installs them.
//! With `FERROVIRT_SCREENSHOTS=FOLDER` the pictures of the guide are made again.

mod appearance;
mod create;
mod devices;
mod driver;
mod list;
mod machine;
mod modules;
mod pictures;
mod rights;

pub(crate) use driver::Browser;
