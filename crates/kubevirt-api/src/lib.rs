//! The wire types of KubeVirt's API.
