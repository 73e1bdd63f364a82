//! The golden list of reasons, and what holds for every one of them.

use std::{collections::BTreeSet, fmt::Write as _};

use reasons::{Reason, Retry};

#[test]
fn list_of_reasons() {
    let mut list = String::new();
    for reason in Reason::ALL {
        let (class, meaning) = (reason.retry().as_str(), reason.meaning());
        let line = format!("{reason:36}{class:16}{meaning} {}", reason.remedy());
        writeln!(list, "{}", line.trim_end()).expect("written to a string");
    }
    insta::assert_snapshot!(list);
}

#[test]
fn names_are_unique_and_parse() {
    let names: BTreeSet<&str> = Reason::ALL.iter().map(|one| one.as_str()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    for reason in Reason::ALL {
        assert_eq!(reason.as_str().parse(), Ok(*reason));
        let is_camel_case = reason.as_str().chars().all(|c| c.is_ascii_alphanumeric());
        // The one sentence among KubeVirt's reasons.
        assert!(
            is_camel_case || *reason == Reason::DomainInvalid,
            "{reason}"
        );
    }
    assert!("ErrImagePul".parse::<Reason>().is_err());
}

#[test]
fn texts_are_sentences() {
    for reason in Reason::ALL {
        let meaning = reason.meaning();
        assert!(meaning.ends_with('.') && meaning.len() < 120, "{reason}");
        let remedy = reason.remedy();
        assert!(remedy.is_empty() || remedy.ends_with('.'), "{reason}");
    }
}

#[test]
fn advice_can_be_removed_from_a_message() {
    let advised = Reason::BadPort.advise("port 0 is not valid");
    assert_eq!(advised, "port 0 is not valid. Correct `ports`.");
    assert_eq!(
        Reason::BadPort.without_advice(&advised),
        "port 0 is not valid."
    );
    assert_eq!(Reason::BadPort.without_advice("no port"), "no port");
    assert_eq!(Reason::PodNotExists.advise("no pod"), "no pod");
    assert_eq!(Reason::BadPort.advise(""), "Correct `ports`.");
    assert_eq!(Reason::BadPort.without_advice("Correct `ports`."), "");
    assert_eq!(
        reasons::advise("BadPort", "port 0"),
        "port 0. Correct `ports`."
    );
    assert_eq!(
        reasons::without_advice("BadPort", "port 0. Correct `ports`."),
        "port 0."
    );
    assert_eq!(reasons::advise("OfAnotherProgram", "text"), "text");
    assert_eq!(reasons::without_advice("", "text"), "text");
}

#[test]
fn final_reasons_have_a_remedy() {
    let lasting = |reason: &&Reason| reason.retry() == Retry::Permanent;
    for reason in Reason::ALL.iter().filter(lasting) {
        assert!(!reason.remedy().is_empty(), "{reason}");
    }
}
