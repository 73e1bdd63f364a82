//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.

use serde_json::Value;

use super::SelectorError;
use crate::{Violation, names};

/// All requirements must hold. The default selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl LabelSelector {
    /// Parses the `labelSelector` of a query.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let requirements = Parser {
            tokens: lex(text),
            at: 0,
        }
        .selector()
        .map_err(|why| SelectorError(format!("unable to parse requirement: {why}")))?;
        Ok(Self { requirements })
    }

    /// Parses a `metav1.LabelSelector`. An absent or null one selects nothing: `None`.
    pub fn from_object(object: &Value) -> Result<Option<Self>, SelectorError> {
        let Value::Object(fields) = object else {
            return Ok(None);
        };
        let mut requirements = Vec::new();
        for (key, value) in fields
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let value = value.as_str().unwrap_or_default().to_owned();
            let key = key.clone();
            requirements.push(Requirement {
                key,
                operator: Operator::In,
                values: vec![value],
            });
        }
        for raw in fields
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let operator = match raw["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    let why = format!("{other:?} is not a valid label selector operator");
                    return Err(SelectorError(why));
                }
            };
            let key = raw["key"].as_str().unwrap_or_default().to_owned();
            let values = raw["values"].as_array().into_iter().flatten();
            let values = values
                .map(|v| v.as_str().unwrap_or_default().to_owned())
                .collect();
            requirements.push(Requirement {
                key,
                operator,
                values,
            });
        }
        for requirement in &requirements {
            requirement.check().map_err(SelectorError)?;
        }
        Ok(Some(Self { requirements }))
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.matches_with(|key| crate::meta::label(object, key))
    }

    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl Requirement {
    fn matches(&self, label: Option<&str>) -> bool {
        let listed = |label: &str| self.values.iter().any(|value| value == label);
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = self.values.first().and_then(|value| number(value));
        match self.operator {
            Operator::In => label.is_some_and(listed),
            Operator::NotIn => !label.is_some_and(listed),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => label
                .and_then(number)
                .zip(bound)
                .is_some_and(|(l, b)| l > b),
            Operator::LessThan => label
                .and_then(number)
                .zip(bound)
                .is_some_and(|(l, b)| l < b),
        }
    }

    fn check(&self) -> Result<(), String> {
        let mut wrong: Vec<Violation> = names::qualified(&self.key)
            .into_iter()
            .map(|why| Violation::invalid("key", self.key.as_str(), why))
            .collect();
        let values = || Value::from(self.values.clone());
        match self.operator {
            Operator::In | Operator::NotIn if self.values.is_empty() => {
                let why = "for 'in', 'notin' operators, values set can't be empty";
                wrong.push(Violation::invalid("values", values(), why));
            }
            Operator::Exists | Operator::DoesNotExist if !self.values.is_empty() => {
                let why = "values set must be empty for exists and does not exist";
                wrong.push(Violation::invalid("values", values(), why));
            }
            Operator::GreaterThan | Operator::LessThan => {
                let numeric = |value: &String| value.parse::<i64>().is_ok();
                if self.values.len() != 1 || !self.values.iter().all(numeric) {
                    let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                    wrong.push(Violation::invalid("values[0]", values(), why));
                }
            }
            _ => {}
        }
        for (at, value) in self.values.iter().enumerate() {
            let field = format!("values[{at}][{}]", self.key);
            let bad = names::label_value(value).into_iter();
            wrong.extend(bad.map(|why| Violation::invalid(field.as_str(), value.as_str(), why)));
        }
        match wrong.as_slice() {
            [] => Ok(()),
            [one] => Err(one.to_string()),
            many => {
                let texts: Vec<String> = many.iter().map(ToString::to_string).collect();
                Err(format!("[{}]", texts.join(", ")))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Identifier(String),
    /// One of `( ) , ! = == != > <`.
    Mark(&'static str),
}

const MARKS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn lex(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            tokens.push(Token::Mark(mark));
            rest = rest.get(mark.len()..).unwrap_or_default();
        } else {
            let special = |c: char| c.is_whitespace() || "=!(),><".contains(c);
            let (name, after) = rest.split_at(rest.find(special).unwrap_or(rest.len()));
            tokens.push(Token::Identifier(name.to_owned()));
            rest = after;
        }
        rest = rest.trim_start();
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take_mark(&mut self, mark: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Mark(m)) if *m == mark);
        self.at += usize::from(found);
        found
    }

    fn found(&self) -> String {
        match self.peek() {
            None => String::new(),
            Some(Token::Identifier(name)) => name.clone(),
            Some(Token::Mark(mark)) => (*mark).to_owned(),
        }
    }

    fn fail<T>(&self, expected: &str) -> Result<T, String> {
        Err(format!("found '{}', expected: {expected}", self.found()))
    }

    fn identifier(&mut self, expected: &str) -> Result<String, String> {
        match self.peek() {
            Some(Token::Identifier(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.fail(expected),
        }
    }

    fn selector(mut self) -> Result<Vec<Requirement>, String> {
        let mut out = Vec::new();
        if self.peek().is_none() {
            return Ok(out);
        }
        loop {
            let requirement = self.requirement()?;
            requirement.check().map_err(|why| format!("<nil>: {why}"))?;
            out.push(requirement);
            if self.peek().is_none() {
                return Ok(out);
            }
            if !self.take_mark(",") {
                return self.fail("',' or 'end of string'");
            }
            if self.peek().is_none() {
                return self.fail("identifier after ','");
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.take_mark("!");
        let expected = if absent {
            "identifier"
        } else {
            "!, identifier, or 'end of string'"
        };
        let key = self.identifier(expected)?;
        if absent {
            return Ok(Requirement {
                key,
                operator: Operator::DoesNotExist,
                values: Vec::new(),
            });
        }
        let (operator, values) = match self.peek() {
            None | Some(Token::Mark(",")) => (Operator::Exists, Vec::new()),
            Some(Token::Mark("=" | "==")) => (Operator::In, self.one()?),
            Some(Token::Mark("!=")) => (Operator::NotIn, self.one()?),
            Some(Token::Mark(">")) => (Operator::GreaterThan, self.one()?),
            Some(Token::Mark("<")) => (Operator::LessThan, self.one()?),
            Some(Token::Identifier(name)) if name == "in" => (Operator::In, self.set()?),
            Some(Token::Identifier(name)) if name == "notin" => (Operator::NotIn, self.set()?),
            Some(_) => return self.fail("in, notin, =, ==, !=, gt, lt"),
        };
        Ok(Requirement {
            key,
            operator,
            values,
        })
    }

    /// One value after a comparison operator; it may be empty.
    fn one(&mut self) -> Result<Vec<String>, String> {
        self.at += 1;
        match self.peek() {
            None | Some(Token::Mark(",")) => Ok(vec![String::new()]),
            _ => Ok(vec![self.identifier("identifier")?]),
        }
    }

    /// `(a,b)` after `in` or `notin`. Empty positions count as empty values.
    fn set(&mut self) -> Result<Vec<String>, String> {
        self.at += 1;
        if !self.take_mark("(") {
            return self.fail("'('");
        }
        let mut values = Vec::new();
        loop {
            let value = match self.peek() {
                Some(Token::Identifier(_)) => self.identifier("identifier")?,
                Some(Token::Mark("," | ")")) => String::new(),
                _ => return self.fail("',', ')' or identifier"),
            };
            if !values.contains(&value) {
                values.push(value);
            }
            if self.take_mark(")") {
                values.sort();
                return Ok(values);
            }
            if !self.take_mark(",") {
                return self.fail("',' or ')'");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn selectors_match_as_in_kube_apiserver() {
        let object = json!({"metadata": {"labels":
            {"a": "b", "kubevirt.io/x": "y", "n": "5", "e": "", "in": "in"}}});
        let cases = [
            ("", true),
            ("a=b", true),
            ("a == b , kubevirt.io/x=y", true),
            ("a!=b", false),
            ("z!=b", true),
            ("a", true),
            ("!a", false),
            ("!z", true),
            ("a in (b, c)", true),
            ("a in (c)", false),
            ("a notin (c,d)", true),
            ("z notin (c)", true),
            ("n>4,n<6", true),
            ("n > 5", false),
            ("a>1", false),
            ("e=", true),
            ("e=,a", true),
            ("e in (,x)", true),
            ("in in (in)", true),
        ];
        for (text, expected) in cases {
            let selector = LabelSelector::parse(text).expect(text);
            assert_eq!(selector.matches(&object), expected, "{text}");
        }
    }

    #[test]
    fn malformed_selectors_are_rejected() {
        let cases = [
            (
                "=b",
                "unable to parse requirement: found '=', expected: !, identifier, or 'end of string'",
            ),
            (
                "a,",
                "unable to parse requirement: found '', expected: identifier after ','",
            ),
            (
                "a in b",
                "unable to parse requirement: found 'b', expected: '('",
            ),
            (
                "a in (b",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(
                LabelSelector::parse(text).expect_err(text).to_string(),
                expected
            );
        }
        for text in ["a/b/c=d", "a=b c", "a>x", "a in ()x", "a=-"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn selector_objects_match_like_strings() {
        let raw = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["d"]}, {"key": "e", "operator": "DoesNotExist"}]});
        let selector = LabelSelector::from_object(&raw)
            .expect("reads")
            .expect("is there");
        assert!(selector.matches(&json!({"metadata": {"labels": {"a": "b", "c": "d"}}})));
        assert!(!selector.matches(&json!({"metadata": {"labels": {"a": "b"}}})));
        assert!(
            LabelSelector::from_object(&Value::Null)
                .expect("reads")
                .is_none()
        );
        let raw = json!({"matchExpressions": [{"key": "c", "operator": "In"}]});
        assert!(LabelSelector::from_object(&raw).is_err());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[a-c=!(),<> in]{0,24}") {
            drop(LabelSelector::parse(&text));
        }

        #[test]
        fn equality_and_its_negation_are_complements(value in "[a-z]{1,3}", label in "[a-z]{1,3}") {
            let object = json!({"metadata": {"labels": {"k": label}}});
            let yes = LabelSelector::parse(&format!("k={value}")).expect("parses");
            let no = LabelSelector::parse(&format!("k!={value}")).expect("parses");
            prop_assert_ne!(yes.matches(&object), no.matches(&object));
        }
    }
}
