//! Flags whose value is a list of parameters: `src:disk,bootorder:1`.

use std::collections::BTreeMap;

use crate::failure::Usage;

/// The parameters of one flag. Each is taken out by its name; [`Parameters::finish`] refuses the rest.
#[derive(Debug)]
pub(super) struct Parameters {
    flag: &'static str,
    text: String,
    values: BTreeMap<String, String>,
    known: Vec<&'static str>,
}

impl Parameters {
    pub(super) fn parse(flag: &'static str, text: &str) -> Result<Self, Usage> {
        let mut parsed = Self {
            flag,
            text: text.to_owned(),
            values: BTreeMap::new(),
            known: vec![],
        };
        for parameter in text.split(',') {
            let Some((name, value)) = parameter.split_once(':') else {
                return Err(parsed.wrong(&format!(
                    "{parameter:?} has no colon: write NAME:VALUE,NAME:VALUE"
                )));
            };
            if parsed
                .values
                .insert(name.to_owned(), value.to_owned())
                .is_some()
            {
                return Err(parsed.wrong(&format!("{name} is given twice: give it once")));
            }
        }
        Ok(parsed)
    }

    /// An error about this flag.
    pub(super) fn wrong(&self, message: &str) -> Usage {
        Usage::new(format!("{} {}: {message}", self.flag, self.text))
    }

    pub(super) fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        self.values.remove(name)
    }

    pub(super) fn required(&mut self, name: &'static str) -> Result<String, Usage> {
        match self.take(name) {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(self.wrong(&format!("{name} is missing: add {name}:VALUE"))),
        }
    }

    /// The name of an object in the VM's own namespace.
    pub(super) fn local_source(&mut self, kind: &str) -> Result<String, Usage> {
        let source = self.required("src")?;
        match source.split_once('/') {
            None => Ok(source),
            Some((_, name)) => Err(self.wrong(&format!(
                "a {kind} of another namespace cannot be used: write src:{name}"
            ))),
        }
    }

    pub(super) fn boot_order(&mut self) -> Result<Option<u32>, Usage> {
        let Some(text) = self.take("bootorder") else {
            return Ok(None);
        };
        match text.parse() {
            Ok(order @ 1..) => Ok(Some(order)),
            _ => Err(self.wrong(&format!("bootorder {text:?} is not a number from 1"))),
        }
    }

    pub(super) fn size(&mut self) -> Result<Option<String>, Usage> {
        let Some(size) = self.take("size") else {
            return Ok(None);
        };
        quantity::Amount::parse_text(&size).map_err(|err| self.wrong(&format!("size: {err}")))?;
        Ok(Some(size))
    }

    /// Ends the parsing: parameters that nothing asked for are wrong.
    pub(super) fn finish(self) -> Result<(), Usage> {
        let Some(unknown) = self.values.keys().next() else {
            return Ok(());
        };
        Err(self.wrong(&format!(
            "unknown parameter {unknown:?}: use {}",
            self.known.join(", ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Parameters, Usage> {
        Parameters::parse("--flag", text)
    }

    #[test]
    fn values_may_contain_colons() {
        let mut parameters = parse("src:host:5000/image:1,bootorder:2,size:1Gi").unwrap();
        assert_eq!(parameters.required("src").unwrap(), "host:5000/image:1");
        assert_eq!(parameters.boot_order().unwrap(), Some(2));
        assert_eq!(parameters.size().unwrap().as_deref(), Some("1Gi"));
        parameters.finish().unwrap();
    }

    #[test]
    fn errors_name_the_flag_and_the_remedy() {
        let error = |text: &str| {
            let checked = parse(text).and_then(|mut parameters| {
                parameters.local_source("claim")?;
                parameters.boot_order()?;
                parameters.size()?;
                parameters.finish()
            });
            checked.unwrap_err().to_string()
        };
        for (text, message) in [
            ("src", "\"src\" has no colon: write NAME:VALUE,NAME:VALUE"),
            ("src:a,src:b", "src is given twice: give it once"),
            ("name:a", "src is missing: add src:VALUE"),
            ("src:", "src is missing: add src:VALUE"),
            (
                "src:n/a",
                "a claim of another namespace cannot be used: write src:a",
            ),
            (
                "src:a,bootorder:0",
                "bootorder \"0\" is not a number from 1",
            ),
            (
                "src:a,bootorder:x",
                "bootorder \"x\" is not a number from 1",
            ),
            (
                "src:a,size:x",
                "size: \"x\" is not a quantity; write a number such as 2, 500m, 128Mi or 2G",
            ),
            (
                "src:a,sise:x",
                "unknown parameter \"sise\": use src, bootorder, size",
            ),
        ] {
            assert_eq!(error(text), format!("--flag {text}: {message}"));
        }
    }
}
