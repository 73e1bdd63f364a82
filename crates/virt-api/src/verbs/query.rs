//! Parameters in the query of a request.

use crate::refusal::Refusal;

/// The values that Go's clients send for a boolean.
const TRUE: [&str; 6] = ["1", "t", "T", "true", "TRUE", "True"];
const FALSE: [&str; 7] = ["0", "f", "F", "false", "FALSE", "False", ""];

/// The first value of a parameter; a name alone is a flag that is set.
pub(super) fn value<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let mut pairs = query.unwrap_or_default().split('&');
    pairs.find_map(|pair| match pair.split_once('=') {
        Some((key, value)) => (key == name).then_some(value),
        None => (pair == name).then_some("true"),
    })
}

/// A flag of the query, false if it is not there.
pub(super) fn flag(query: Option<&str>, name: &str) -> Result<bool, Refusal> {
    let value = value(query, name).unwrap_or_default();
    if TRUE.contains(&value) {
        Ok(true)
    } else if FALSE.contains(&value) {
        Ok(false)
    } else {
        let message =
            format!("query parameter {name}: {value:?} is not a boolean: give true or false");
        Err(Refusal::bad_request(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_go_reads_them() {
        let read = |query: &str| flag(Some(query), "moveCursor").map_err(|refusal| refusal.message);
        for yes in [
            "moveCursor=true",
            "moveCursor=1",
            "a=b&moveCursor=T",
            "moveCursor",
        ] {
            assert_eq!(read(yes), Ok(true), "{yes}");
        }
        for no in [
            "",
            "moveCursor=false",
            "moveCursor=",
            "move=true",
            "xmoveCursor=true",
        ] {
            assert_eq!(read(no), Ok(false), "{no}");
        }
        assert_eq!(
            read("moveCursor=yes"),
            Err(
                "query parameter moveCursor: \"yes\" is not a boolean: give true or false"
                    .to_owned()
            )
        );
        assert_eq!(flag(None, "moveCursor"), Ok(false));
    }
}
