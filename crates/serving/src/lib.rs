//! TLS servers and clients that know their peer.
