//! Other objects that a volume names.

/// Another object that a volume names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference<'a> {
    pub object: Referenced,
    /// Empty if the volume should name the object and does not.
    pub name: &'a str,
    /// Path of the name below the volume's source.
    pub field: &'static str,
    /// The guest starts without the object, too.
    pub is_optional: bool,
}

/// The kind of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Referenced {
    Claim,
    DataVolume,
    Secret,
    ConfigMap,
    ServiceAccount,
}

impl<'a> Reference<'a> {
    /// An object that the volume must name.
    pub(super) fn new(object: Referenced, name: &'a str, field: &'static str) -> Self {
        Self {
            object,
            name,
            field,
            is_optional: false,
        }
    }

    /// An object that the volume may name.
    pub(super) fn named(
        object: Referenced,
        name: Option<&'a str>,
        field: &'static str,
    ) -> Option<Self> {
        let name = name.filter(|name| !name.is_empty());
        name.map(|name| Self::new(object, name, field))
    }

    pub(super) fn optional_if(self, optional: Option<bool>) -> Self {
        Self {
            is_optional: optional == Some(true),
            ..self
        }
    }
}
