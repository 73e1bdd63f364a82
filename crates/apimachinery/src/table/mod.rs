//! `meta.k8s.io/v1` tables: what `kubectl get` prints.

use jiff::Timestamp;
use serde_json::Value;

use crate::Violation;

/// The media type of a table.
pub const MEDIA_TYPE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// The columns of a kind.
#[derive(Debug, Clone)]
pub struct Layout {}

/// How much of each object a row carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl Layout {
    /// The columns of a built-in kind; Name and Age for one without columns of its own.
    pub fn built_in(group: &str, plural: &str) -> Self {
        drop((group, plural));
        Self {}
    }

    /// From a CRD version's `additionalPrinterColumns` (null for none: Name and Age). `at` is the
    /// field path that errors name.
    pub fn custom(columns: &Value, at: &str) -> Result<Self, Vec<Violation>> {
        drop((columns, at));
        Ok(Self {})
    }

    /// A `Table` of the objects. `list_meta` is the metadata of the list (resourceVersion,
    /// continue, remainingItemCount) or of the single object.
    pub fn render(
        &self,
        objects: &[Value],
        list_meta: &Value,
        include: IncludeObject,
        now: Timestamp,
    ) -> Value {
        drop((objects, list_meta, include, now));
        Value::Null
    }
}
