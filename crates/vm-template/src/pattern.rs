//! Patterns of generated values, such as `web-[a-z0-9]{6}`.

use std::collections::BTreeSet;

use crate::references::is_of_name;

/// Length of a generated piece.
const LENGTHS: std::ops::RangeInclusive<u32> = 1..=255;
/// Maximum of generated characters of all parameters of a template together.
pub const MAX_GENERATED: usize = 64 << 10;
/// Maximum of pieces in a pattern.
const MAX_PIECES: usize = 64;
const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// The digits are the last ten.
const DIGITS: usize = 52;
/// `\A`, in the order of ASCII.
const SIGNS: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// Why a pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("a length in braces is a number from 1 to 255")]
    Length,
    #[error("there are more than {MAX_PIECES} generated pieces")]
    Pieces,
    #[error(
        "the generated values of all parameters exceed {} KiB; shorten patterns",
        MAX_GENERATED >> 10
    )]
    TooLong,
    #[error("[{class}]: after \\, use one of w, d, a and A")]
    Escape { class: String },
    #[error("[{class}]: a range must ascend, such as a-z")]
    Range { class: String },
    #[error("[{class}]: contains no character")]
    Empty { class: String },
}

/// The value with the first character of each class, which is always the same.
pub fn example(pattern: &str, budget: &mut usize) -> Result<String, PatternError> {
    generate(pattern, budget, &mut |_count| 0)
}

/// A value of the pattern; `choose` picks one of so many characters, from 0. `budget` is what is left of
/// [`MAX_GENERATED`].
pub fn generate(
    pattern: &str,
    budget: &mut usize,
    choose: &mut dyn FnMut(usize) -> usize,
) -> Result<String, PatternError> {
    let mut made = String::new();
    let mut rest = pattern;
    let mut pieces = 0;
    while let Some(piece) = Piece::first(rest) {
        pieces += 1;
        if pieces > MAX_PIECES {
            return Err(PatternError::Pieces);
        }
        let length = piece.length.parse::<u32>().ok();
        let length = length.filter(|length| LENGTHS.contains(length));
        let length = length.ok_or(PatternError::Length)?;
        let class = characters(piece.class)?;
        let left = usize::try_from(length)
            .ok()
            .and_then(|length| budget.checked_sub(length));
        *budget = left.ok_or(PatternError::TooLong)?;
        made.push_str(piece.before);
        made.extend((0..length).filter_map(|_| class.get(choose(class.len()))));
        rest = piece.after;
    }
    made.push_str(rest);
    Ok(made)
}

/// A `[CLASS]{LENGTH}` in a pattern.
struct Piece<'a> {
    before: &'a str,
    class: &'a str,
    length: &'a str,
    after: &'a str,
}

impl<'a> Piece<'a> {
    fn first(text: &'a str) -> Option<Self> {
        text.match_indices('[').find_map(|(at, _)| {
            let inner = &text[at + 1..];
            // Bounded by the end of the class, however long the text is.
            let is_class = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '\\';
            let (class, rest) = inner.split_at(inner.find(|c| !is_class(c))?);
            let rest = rest.strip_prefix("]{")?;
            let (length, after) = rest.split_at(rest.find(|c| !is_of_name(c))?);
            let after = after.strip_prefix('}')?;
            let is_complete = !class.is_empty() && !length.is_empty();
            is_complete.then_some(Self {
                before: &text[..at],
                class,
                length,
                after,
            })
        })
    }
}

/// The characters of a class, each once, in the order in which the class names them.
fn characters(class: &str) -> Result<Vec<char>, PatternError> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    let mut add = |characters: &str| {
        found.extend(characters.chars().filter(|c| known.insert(*c)));
    };
    let (letters, digits) = ALPHABET.split_at(DIGITS);
    let mut rest = class.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some('w') => add(&format!("{letters}{digits}_")),
                Some('a') => add(ALPHABET),
                Some('d') => add(digits),
                Some('A') => add(SIGNS),
                _ => {
                    let class = class.to_owned();
                    return Err(PatternError::Escape { class });
                }
            },
            _ if rest.peek() == Some(&'-') => {
                rest.next();
                let index = |c: char| ALPHABET.find(c);
                let range = index(c).zip(rest.next().and_then(index));
                let range = range.and_then(|(from, to)| ALPHABET.get(from..=to));
                add(range.filter(|range| !range.is_empty()).ok_or_else(|| {
                    PatternError::Range {
                        class: class.to_owned(),
                    }
                })?);
            }
            '-' => {}
            _ => add(c.encode_utf8(&mut [0; 4])),
        }
    }
    if found.is_empty() {
        let class = class.to_owned();
        return Err(PatternError::Empty { class });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(pattern: &str) -> Result<String, PatternError> {
        super::example(pattern, &mut MAX_GENERATED.clone())
    }

    #[test]
    fn generated_characters_are_bounded() {
        let mut budget = 300;
        let mut made = 0;
        let mut choose = |_count: usize| {
            made += 1;
            0
        };
        let first = generate("a-[x]{255}", &mut budget, &mut choose);
        assert_eq!(first.map(|value| value.len()), Ok(257));
        let second = generate("[x]{255}", &mut budget, &mut choose);
        assert_eq!(second, Err(PatternError::TooLong));
        let third = generate("[x]{45}", &mut budget, &mut choose);
        assert_eq!(third.map(|value| value.len()), Ok(45));
        assert_eq!((made, budget), (300, 0));
    }

    #[test]
    fn patterns_are_parsed_in_linear_time() {
        assert_eq!(example("a[b-d]{2}[0]{1}]{").unwrap(), "abb0]{");
        assert_eq!(example("[[x]{1}").unwrap(), "[x");
        let brackets = "[".repeat(1 << 20);
        assert_eq!(example(&brackets).unwrap(), brackets);
        // A class of a megabyte has as many characters as the alphabet.
        let long = format!("[{}]{{1}}", "a-z".repeat(350_000));
        assert_eq!(example(&long).unwrap(), "a");
        let many = "[a]{255}".repeat(100_000);
        assert_eq!(example(&many), Err(PatternError::Pieces));
    }

    #[test]
    fn every_character_of_a_class_can_be_generated() {
        let check = |class: &str, expected: &str| {
            let mut next = 0;
            let pattern = format!("[{class}]{{{}}}", expected.len());
            let made = generate(&pattern, &mut MAX_GENERATED.clone(), &mut |count| {
                assert_eq!(count, expected.len(), "{class}");
                next += 1;
                next - 1
            });
            assert_eq!(made.unwrap(), expected, "{class}");
        };
        check("a-d", "abcd");
        check("y-B", "yzAB");
        check("c0-2-", "c012");
        check("aab-ba", "ab");
        check(r"\d", "0123456789");
        check(r"\a", ALPHABET);
        check(r"\w", &format!("{ALPHABET}_"));
        check(r"\A", SIGNS);
        check(r"\da-f", "0123456789abcdef");
    }

    #[test]
    fn wrong_patterns_are_refused_with_the_remedy() {
        let check = |pattern: &str, expected: &str| {
            let error = example(pattern).unwrap_err().to_string();
            assert_eq!(error, expected, "{pattern}");
        };
        check("[a]{0}", "a length in braces is a number from 1 to 255");
        check("[a]{256}", "a length in braces is a number from 1 to 255");
        check("[a]{x}", "a length in braces is a number from 1 to 255");
        check(r"[\x]{1}", r"[\x]: after \, use one of w, d, a and A");
        check("[z-a]{1}", "[z-a]: a range must ascend, such as a-z");
        check("[a-]{1}", "[a-]: a range must ascend, such as a-z");
        check("[-]{1}", "[-]: contains no character");
    }
}
