//! The log lines of a program: what to log, and in which format, on standard error.
//!
//! In JSON, a span has its own name under `name`; so spans of this workspace have no field of that
//! name: the object of a span is its field `object`.

use std::{collections::BTreeMap, fmt, io, str::FromStr};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// The environment variable of the format.
pub const FORMAT_VARIABLE: &str = "FERROVIRT_LOG_FORMAT";

/// The format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Format {
    /// The environment variables with which another program of ours logs in this format; none for the default.
    pub fn variables(self) -> BTreeMap<String, String> {
        let set = (self != Self::default()).then(|| (FORMAT_VARIABLE.to_owned(), self.to_string()));
        set.into_iter().collect()
    }
}

/// A format that is neither `text` nor `json`.
#[derive(Debug, thiserror::Error)]
#[error("the log format is text or json")]
pub struct UnknownFormat;

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(UnknownFormat),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub format: Format,
    /// Colours in text, for terminals.
    pub colours: bool,
    /// The name of the module that logs.
    pub modules: bool,
}

/// A filter that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("parse the log filter {filter:?}")]
pub struct FilterError {
    filter: String,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

/// Starts logging to standard error. `filter` has the syntax of `tracing_subscriber`'s `EnvFilter`.
/// Call it once.
pub fn start(filter: &str, style: Style) -> Result<(), FilterError> {
    let filter = EnvFilter::builder()
        .parse(filter)
        .map_err(|source| FilterError {
            filter: filter.to_owned(),
            source,
        })?;
    install(filter, style, io::stderr);
    Ok(())
}

fn install<W>(filter: EnvFilter, style: Style, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(style.colours && style.format == Format::Text)
        .with_target(style.modules);
    match style.format {
        Format::Text => lines.init(),
        Format::Json => lines.json().init(),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc};

    use parking_lot::Mutex;
    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn variables_select_the_format_in_another_program() {
        assert_eq!(Format::Text.variables(), BTreeMap::new());
        let found = Format::Json.variables();
        let value = found.get(FORMAT_VARIABLE).expect("the variable is set");
        assert_eq!(value.parse::<Format>().ok(), Some(Format::Json));
    }

    #[test]
    fn json_lines_have_the_name_and_the_fields_of_a_span() {
        let lines = Lines::default();
        let style = Style {
            format: Format::Json,
            colours: true,
            modules: true,
        };
        let writer = lines.clone();
        install(EnvFilter::new("info"), style, move || writer.clone());
        let span = tracing::info_span!("reconcile", object = "vm1");
        span.in_scope(|| tracing::warn!(reason = "Conflict", "reconcile failed"));
        tracing::debug!("filtered out");
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["fields"]["message"], "reconcile failed");
        assert_eq!(line["fields"]["reason"], "Conflict");
        assert_eq!(line["span"]["name"], "reconcile");
        assert_eq!(line["span"]["object"], "vm1");
        assert_eq!(line["target"], "logging::tests");
    }

    #[test]
    fn formats_are_text_and_json() {
        for format in [Format::Text, Format::Json] {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        assert!("xml".parse::<Format>().is_err());
    }

    #[test]
    fn malformed_filter_is_an_error() {
        let style = Style {
            format: Format::Text,
            colours: false,
            modules: false,
        };
        let error = start("a=b=c", style).unwrap_err();
        assert_eq!(error.to_string(), "parse the log filter \"a=b=c\"");
    }
}
