//! The page in headless Chromium.
//!
//! With `FERROVIRT_SCREENSHOTS=FOLDER` the pictures of the guide are made again.

mod appearance;
mod copies;
mod create;
mod devices;
mod edit;
mod exports;
mod list;
mod machine;
mod migrations;
mod modules;
mod networks;
mod pictures;
mod rights;
mod signin;
mod states;
mod upload;

pub(crate) use browser::Browser;
