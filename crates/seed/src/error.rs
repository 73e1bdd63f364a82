//! Errors of rendering a seed image.

/// Why an image cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    #[error("put {path:?} on the seed image: not a relative path of at most seven plain names")]
    Name { path: String },
    #[error("put {path:?} on the seed image: the name is used twice")]
    Duplicate { path: String },
    #[error("label the seed image {label:?}: not 1 to 16 printable ASCII characters")]
    Label { label: String },
    #[error("render the seed image: its content exceeds 4 GiB")]
    TooLarge,
}
