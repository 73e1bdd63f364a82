//! The console in the browser.
//!
//! - [`assets`] holds the files of the page, from `static/`;
//! - `headers` sets the security headers of every response;
//! - [`Access`] is how users sign in: one by links, or all with tokens;
//! - [`Sessions`] exchanges a link that works once for the key of a browser tab;
//! - `origin` rejects requests that another site or name caused;
//! - `paths` lists the requests that are passed to the API server, `forward` passes them;
//! - `explain` finds why a VM does not run, `upload` passes files to the upload proxy;
//! - `download` passes files of exports to the browser, by `tickets` that work once, `described` in paths that
//!   [`TicketKey`] lets other replicas read, and a `relay` that gives up;
//! - [`serve`] and [`router`] run the server.
//!
//! **Invariants**: the server has no rights of its own: it forwards with the client it was given, which has
//! the identity of the user who started it, or with the token of the request. Every request except for the files
//! needs the key or token, in a header that a browser never adds by itself; a download needs a ticket that such a
//! request got. Only requests that the page makes are
//! forwarded, so no content that a pod serves is reachable under the page's origin. Nothing is loaded from
//! elsewhere.

mod access;
pub mod assets;
mod described;
mod download;
mod explain;
mod forward;
mod headers;
mod origin;
mod paths;
mod relay;
mod remote;
mod respond;
mod seal;
mod server;
mod sessions;
mod tickets;
mod upload;

pub use access::Access;
pub use origin::Hosts;
pub use seal::TicketKey;
pub use server::{Console, router, serve};
pub use sessions::{Link, Sessions};
