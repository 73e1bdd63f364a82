//! Links, addresses, namespaces and nftables of the host.
