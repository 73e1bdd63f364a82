use std::time::Duration;

use super::*;

table! {
    METRICS of "test":
    counter CALLS["verb", "code"] "ferrovirt_test_calls_total" "Calls \\ by verb.";
    gauge OPEN[] "ferrovirt_test_open" "Open things.";
    gauge WIDE["key"] "ferrovirt_test_wide" "Many series.";
    histogram CALL_SECONDS["verb"] "ferrovirt_test_call_duration_seconds" "Duration of a call.";
    long_histogram MOVE_SECONDS[] "kubevirt_test_move_seconds" "Duration of a move.";
    object_gauge LEFT["name"] "kubevirt_test_left_bytes" "What is left for an object.";
    object_counter SENT["namespace", "name"] "kubevirt_test_sent_bytes_total" "Sent for an object.";
}

#[test]
fn values_are_rendered_in_the_text_format() {
    CALLS.increment(["get", "200"]);
    CALLS.add(["get", "200"], 2);
    CALLS.increment(["a\"b\\c\nd", "500"]);
    let held = OPEN.hold([]);
    CALL_SECONDS.observe(["get"], Duration::from_millis(3));
    CALL_SECONDS.observe(["get"], Duration::from_mins(1));
    let text = render(&[&METRICS]);
    for line in [
        "# HELP ferrovirt_test_calls_total Calls \\\\ by verb.",
        "# TYPE ferrovirt_test_calls_total counter",
        "ferrovirt_test_calls_total{verb=\"get\",code=\"200\"} 3",
        "ferrovirt_test_calls_total{verb=\"a\\\"b\\\\c\\nd\",code=\"500\"} 1",
        "ferrovirt_test_open 1",
        "# TYPE ferrovirt_test_call_duration_seconds histogram",
        "ferrovirt_test_call_duration_seconds_bucket{verb=\"get\",le=\"0.0025\"} 0",
        "ferrovirt_test_call_duration_seconds_bucket{verb=\"get\",le=\"0.005\"} 1",
        "ferrovirt_test_call_duration_seconds_bucket{verb=\"get\",le=\"30\"} 1",
        "ferrovirt_test_call_duration_seconds_bucket{verb=\"get\",le=\"+Inf\"} 2",
        "ferrovirt_test_call_duration_seconds_sum{verb=\"get\"} 60.003",
        "ferrovirt_test_call_duration_seconds_count{verb=\"get\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    drop(held);
    assert!(render(&[&METRICS]).contains("\nferrovirt_test_open 0\n"));
}

#[test]
fn number_of_series_is_bounded() {
    for number in 0..MAX_SERIES + 10 {
        WIDE.change([&number.to_string()], 1);
    }
    let text = render(&[&METRICS]);
    assert!(text.contains("ferrovirt_test_wide{key=\"other\"} 10\n"));
    let lines = text
        .lines()
        .filter(|line| line.starts_with("ferrovirt_test_wide{"));
    assert_eq!(lines.count(), MAX_SERIES + 1);
}

#[test]
fn long_durations_have_other_buckets() {
    MOVE_SECONDS.observe([], Duration::from_secs(45));
    let text = render(&[&METRICS]);
    for line in [
        "kubevirt_test_move_seconds_bucket{le=\"40\"} 0",
        "kubevirt_test_move_seconds_bucket{le=\"50\"} 1",
        "kubevirt_test_move_seconds_bucket{le=\"3600\"} 1",
        "kubevirt_test_move_seconds_sum 45",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn series_of_an_object_goes_with_it() {
    SENT.set(["n", "a"], 5_u64);
    SENT.set(["n", "b"], 6_u64);
    SENT.set(["n", "a"], 7_u64);
    let shown = || {
        let text = render(&[&METRICS]);
        let lines = text
            .lines()
            .filter(|line| line.starts_with("kubevirt_test_sent"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let b = "kubevirt_test_sent_bytes_total{namespace=\"n\",name=\"b\"} 6";
    let a = "kubevirt_test_sent_bytes_total{namespace=\"n\",name=\"a\"} 7";
    assert_eq!(shown(), [a, b]);
    SENT.remove(|[namespace, name]| (namespace, name) == ("n", "a"));
    assert_eq!(shown(), [b]);
    for number in 0..MAX_OBJECTS + 10 {
        LEFT.set([&number.to_string()], 1_u64);
    }
    let text = render(&[&METRICS]);
    let lines = text
        .lines()
        .filter(|line| line.starts_with("kubevirt_test_left"));
    assert_eq!(lines.count(), MAX_OBJECTS);
}

#[test]
fn process_metrics_have_values() {
    let text = render(&[&PROCESS]);
    for metric in PROCESS.metrics {
        let name = metric.description().name;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value: f64 = value.expect(name).parse().expect("a number");
        assert!(value >= 0.0, "{name} {value}");
    }
    let memory = text
        .lines()
        .find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
    assert!(memory.expect("a value").parse::<u64>().expect("bytes") > 100_000);
}

#[test]
fn rules_find_bad_rows() {
    static COUNTER: Counter<2> = Counter::new("ferrovirt_test_Calls", "no sentence", &["a", "a"]);
    static BAD: Table = Table {
        component: "test",
        metrics: &[&COUNTER, &COUNTER],
    };
    assert_eq!(problems(&[&METRICS, &PROCESS]), Vec::<String>::new());
    assert_eq!(problems(&[&BAD]).len(), 4 + 5);
}

#[test]
fn page_has_a_row_for_each_metric() {
    let page = page(&[&METRICS]);
    assert!(page.contains("\n## test\n"), "{page}");
    let row = "| `ferrovirt_test_calls_total` | counter | `verb`, `code` | Calls \\ by verb. |";
    assert!(page.contains(row), "{page}");
}
