//! Parsing, arithmetic and formatting.

use super::*;

fn amount(text: &str) -> Amount {
    Amount::parse_text(text).expect(text)
}

#[test]
fn quantities_are_parsed() {
    for (text, units, millis) in [
        ("0", 0, 0),
        ("2", 2, 2_000),
        ("1.5", 2, 1_500),
        ("100m", 1, 100),
        ("128Mi", 128 << 20, (128 << 20) * 1_000),
        ("1.5Gi", 3 << 29, (3 << 29) * 1_000),
        ("1G", 1_000_000_000, 1_000_000_000_000),
        ("1e3", 1_000, 1_000_000),
        ("2E2", 200, 200_000),
        ("+.5", 1, 500),
        ("-1", 0, 0),
    ] {
        assert_eq!(
            (amount(text).units(), amount(text).millis()),
            (units, millis),
            "{text}"
        );
    }
    assert!(amount("-1").is_negative());
    assert!(!amount("1500m").is_whole());
}

#[test]
fn malformed_quantities_are_rejected_with_their_text() {
    let long = "9".repeat(40);
    for text in [
        "", "x", "1x", "Mi", "1.2.3", "12 Mi", "1mi", "0x10", "1e", "1e99", "--1", "e3", &long,
    ] {
        let error = Amount::parse(&Quantity(text.to_owned())).expect_err(text);
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn binary_form_has_the_largest_exact_suffix() {
    for (text, written) in [
        ("512Mi", "512Mi"),
        ("1024Mi", "1Gi"),
        ("1000", "1000"),
        ("0", "0"),
        ("1536Mi", "1536Mi"),
    ] {
        assert_eq!(amount(text).to_binary().0, written);
    }
}

#[test]
fn amounts_are_displayed_exactly() {
    for (text, displayed) in [
        ("0", "0"),
        ("1", "1"),
        ("100m", "100m"),
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("1Gi", "1Gi"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("2e3", "2k"),
        ("5G", "5G"),
        ("0.0001", "100u"),
    ] {
        assert_eq!(amount(text).to_string(), displayed, "{text}");
    }
}

#[test]
fn sums_are_exact_and_saturate() {
    assert_eq!(amount("128Mi").plus(amount("64Mi")).to_string(), "192Mi");
    assert_eq!(amount("1").plus(amount("100m")).to_string(), "1100m");
    let largest = Amount { nanos: i128::MAX };
    assert_eq!(largest.plus(Amount::ONE), largest);
}

#[test]
fn amounts_keep_their_notation() {
    for (text, displayed) in [
        ("0", "0"),
        ("2000m", "2"),
        ("0.5", "500m"),
        ("16G", "16G"),
        ("10240M", "10240M"),
        ("1024", "1024"),
        ("1073741824", "1073741824"),
        ("100000", "100k"),
        ("1024Mi", "1Gi"),
        ("0.5Gi", "512Mi"),
        ("1000Mi", "1000Mi"),
        ("0.5Ki", "512"),
        ("-2Ki", "-2Ki"),
        ("1025Ki", "1025Ki"),
        ("1.0009765625Ki", "1025"),
    ] {
        assert_eq!(
            Written::parse(text).unwrap().to_string(),
            displayed,
            "{text}"
        );
    }
    assert!(Written::parse("Gi").is_err());
}
