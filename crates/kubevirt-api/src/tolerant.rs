//! Deserializers that accept everything that Go's decoder accepts.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the default, so that `disks: null` means "no disks".
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
