//! The `CustomResourceDefinition` manifests, as generated and checked in under `deploy/crds`.
