//! What is known about the value of a parameter.

use kubevirt_api::template::Parameter;

/// Whether the value is generated, unless one is given.
pub fn is_generated(one: &Parameter) -> bool {
    default(one).is_none() && one.generate.is_some()
}

/// Whether the user of the template must provide the value.
pub fn is_open(one: &Parameter) -> bool {
    one.required == Some(true) && default(one).is_none() && one.generate.is_none()
}

/// The default value; an empty one is none.
pub(crate) fn default(one: &Parameter) -> Option<&str> {
    one.value.as_deref().filter(|value| !value.is_empty())
}
