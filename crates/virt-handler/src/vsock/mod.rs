//! How guests and virt-handler know each other over the vsock.
//!
//! - [`GuestCredentials`] is what virt-handler shows to servers in guests, and the authorities that signed it;
//! - `bundle` answers guests that ask for these authorities;
//! - `server` accepts their connections, within bounds.
//!
//! **Invariant**: guests learn public certificates only, and all of it is off without the feature gate `VSOCK`.

mod bundle;
mod credentials;
mod server;
#[cfg(test)]
mod tests;

pub use credentials::{GuestCredentials, VSOCK_CLIENT, VSOCK_GATE};
pub(crate) use server::serve_guests;
