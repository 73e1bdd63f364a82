//! The settings of an object, taken one by one; what is left is refused.

use serde_json::{Map, Value};

use super::DefinitionError;

/// The settings that are left to read.
pub(super) struct Settings {
    /// Of the object, with a final dot.
    pub(super) path: String,
    pub(super) left: Map<String, Value>,
}

impl Settings {
    pub(super) fn bad(
        &self,
        setting: &str,
        value: &Value,
        wanted: &'static str,
    ) -> DefinitionError {
        DefinitionError::BadValue {
            setting: format!("{}{setting}", self.path),
            value: value.to_string(),
            wanted,
        }
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, DefinitionError> {
        match self.left.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.bad(name, &other, "a text")),
        }
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, DefinitionError> {
        match self.left.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.bad(name, &other, "true or false")),
        }
    }

    pub(super) fn number(
        &mut self,
        name: &str,
        range: &std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u32>, DefinitionError> {
        let value = match self.left.remove(name) {
            // Plugins take zero for a missing number.
            None | Some(Value::Null) => return Ok(None),
            Some(value) if value == 0 => return Ok(None),
            Some(value) => value,
        };
        let number = value.as_u64().filter(|number| range.contains(number));
        match number.and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.bad(name, &value, "a number in its range")),
        }
    }

    pub(super) fn parsed<T: std::str::FromStr>(
        &mut self,
        name: &str,
        wanted: &'static str,
    ) -> Result<Option<T>, DefinitionError> {
        let Some(text) = self.text(name)?.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let parsed = text.parse();
        parsed
            .map(Some)
            .map_err(|_| self.bad(name, &text.into(), wanted))
    }

    pub(super) fn objects(&mut self, name: &str) -> Result<Vec<Self>, DefinitionError> {
        let Some(list) = self.left.remove(name).filter(|list| !list.is_null()) else {
            return Ok(Vec::new());
        };
        let objects: Vec<Map<String, Value>> = serde_json::from_value(list.clone())
            .map_err(|_| self.bad(name, &list, "a list of objects"))?;
        let settings = |(index, left)| Self {
            path: format!("{}{name}[{index}].", self.path),
            left,
        };
        Ok(objects.into_iter().enumerate().map(settings).collect())
    }

    /// Refuses what is left, unless it asks for nothing.
    pub(super) fn end(self) -> Result<(), DefinitionError> {
        let asks = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Bool(true) => true,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => !members.is_empty(),
        };
        match self.left.iter().find(|(_, value)| asks(value)) {
            None => Ok(()),
            Some((name, _)) => Err(DefinitionError::UnknownSetting {
                setting: format!("{}{name}", self.path),
            }),
        }
    }
}
