//! Prints an error with its causes on one line, for logs, conditions, events and API responses.
//!
//! It must not know any error type: it reads `Display` and `source` only.

use std::error::Error;

/// The message of the error and of its sources, joined by colons. Leaves out a source whose text
/// the line already contains: many errors repeat their source.
pub fn error_chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
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
