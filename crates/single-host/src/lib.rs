//! All of Ferrovirt on one host.
