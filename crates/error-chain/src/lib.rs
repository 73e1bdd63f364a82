//! Prints an error with its causes on one line, for logs, conditions, events and API responses.
//!
//! It must not know any error type: it reads `Display` and `source` only.

use std::error::Error;

/// The message of the error and of its sources, joined by colons. Leaves out a source whose text
/// the line already contains: many errors repeat their source. Leaves out the `Debug` form of a
/// source, which the errors of `kube` append in brackets.
pub fn error_chain(error: &dyn Error) -> String {
    let mut line = message(error);
    let mut source = error.source();
    while let Some(cause) = source {
        let text = message(cause);
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}

/// The error's own text.
fn message(error: &dyn Error) -> String {
    let text = error.to_string();
    match error.source() {
        Some(source) => text.replace(&format!(" ({source:?})"), ""),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.text)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            let source = self.source.as_deref()?;
            Some(source)
        }
    }

    /// An error in the form of `kube::Error::Api`.
    #[derive(Debug)]
    struct WithDump(Layer);

    impl fmt::Display for WithDump {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "ApiError: {} ({:?})", self.0, self.0)
        }
    }

    impl Error for WithDump {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn debug_form_of_a_source_is_left_out() {
        let error = WithDump(layers(&["forbidden"]));
        assert_eq!(error_chain(&error), "ApiError: forbidden");
    }

    fn layers(texts: &[&'static str]) -> Layer {
        let (text, rest) = texts.split_first().unwrap();
        Layer {
            text,
            source: (!rest.is_empty()).then(|| Box::new(layers(rest))),
        }
    }

    #[test]
    fn causes_follow_the_error_and_repetitions_are_left_out() {
        let cases: [(&[&str], &str); 3] = [
            (&["write a"], "write a"),
            (&["write a", "send", "refused"], "write a: send: refused"),
            (
                &["write a: send", "send", "refused"],
                "write a: send: refused",
            ),
        ];
        for (texts, expected) in cases {
            assert_eq!(error_chain(&layers(texts)), expected);
        }
    }
}
