//! OCI images: layouts, registries, unpacked trees.
