//! What virt-handler shows to programs in guests.

use serving::{Identity, Trust};

/// The common name of the certificate, as in `KubeVirt`.
pub const VSOCK_CLIENT: &str = "kubevirt.io:system:client:vsock";
/// The feature gate without which no guest has a vsock.
pub const VSOCK_GATE: &str = "VSOCK";

/// A client's certificate with the name [`VSOCK_CLIENT`], and the authorities by which guests check it.
#[derive(Debug, Clone)]
pub struct GuestCredentials {
    pub identity: Identity,
    pub authorities: Trust,
}
