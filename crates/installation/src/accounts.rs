//! Service accounts and signers.

/// Service accounts of the components.
pub const API_ACCOUNT: &str = "kubevirt-apiserver";
pub const CONTROLLER_ACCOUNT: &str = "kubevirt-controller";
pub const HANDLER_ACCOUNT: &str = "kubevirt-handler";
/// The signer of virt-handlers' certificates.
pub const HANDLER_SIGNER: &str = "ferrovirt.io/virt-handler";
