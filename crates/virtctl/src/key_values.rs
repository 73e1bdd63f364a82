//! Flags of the form `KEY=VALUE,KEY=VALUE`.

use std::str::FromStr;

use serde_json::{Map, Value};

/// One pair; clap splits the list at commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: String,
    pub value: String,
}

impl FromStr for KeyValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Self {
                key: key.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err(format!("{text:?} is not of the form KEY=VALUE")),
        }
    }
}

/// An object of strings.
pub(crate) fn object(pairs: &[KeyValue]) -> Value {
    let fields = pairs.iter();
    let fields = fields.map(|pair| (pair.key.clone(), Value::from(pair.value.as_str())));
    fields.collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_parse() {
        let pair: KeyValue = "a/b=c=d".parse().unwrap();
        assert_eq!((&*pair.key, &*pair.value), ("a/b", "c=d"));
        assert!("a".parse::<KeyValue>().is_err());
        assert!("=a".parse::<KeyValue>().is_err());
    }
}
