//! The console in the browser.
//!
//! - [`assets`] holds the files of the page, from `static/`;
//! - `headers` sets the security headers of every response;
//! - [`Sessions`] exchanges a link that works once for the key of a browser tab;
//! - `origin` rejects requests that another site or name caused;
//! - `paths` lists the requests that are passed to the API server, `forward` passes them;
//! - [`serve`] runs the server.
//!
//! **Invariants**: the server has no rights of its own: it forwards with the client it was given, which has
//! the identity of the user who started it. Every request except for the files needs the key, in a header
//! that a browser never adds by itself. Only requests that the page makes are forwarded, so no content
//! that a pod serves is reachable under the page's origin. Nothing is loaded from elsewhere.

pub mod assets;
mod forward;
mod headers;
mod origin;
mod paths;
mod respond;
mod server;
mod sessions;

pub use server::{Console, Explain, Subject, router, serve};
pub use sessions::{Link, Sessions};
