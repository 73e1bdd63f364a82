//! Modules of the page by tables, in the browser that runs them.

use serde_json::{Value, json};

use super::Browser;
use crate::support::{Environment, user};

async fn browser() -> (Environment, Browser) {
    let environment = Environment::start(user()).await;
    let browser = Browser::open(&environment.link()).await;
    (environment, browser)
}

/// Maps each case by a function of a module.
async fn map(browser: &Browser, module: &str, function: &str, cases: Value) -> Vec<Value> {
    let script = format!(
        "const module = await import('/console/js/{module}'); return {cases}.map((one) => {function});"
    );
    let found = browser.run_async(&script).await;
    assert!(found.is_array(), "{found}");
    found.as_array().unwrap().clone()
}

#[tokio::test]
async fn yaml_is_written_and_its_lines_are_found() {
    let (environment, browser) = browser().await;
    let object = json!({
        "a": {"b": [{"c": 1, "d": "x"}, {"e": []}], "f.g/h": true},
        "text": "one\ntwo\n", "quoted": "yes", "number": "12", "empty": {}, "colon": "a: b", "hash": "#x",
        "list": [["n"], "-1"], "space": " x", "unit": "1Gi",
    });
    let written = map(
        &browser,
        "create/yaml.js",
        "module.yaml(one)",
        json!([object]),
    )
    .await;
    let text = written[0].as_str().unwrap();
    let read: Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(read, object, "{text}");

    let source = "# comment\napiVersion: v1\nmetadata:\n  name: a\n  labels:\n    a.b/c: x\nspec:\n  list:\n  - name: one\n    value: 1\n  - name: two\n    deep:\n      - x\n      - y: |\n          name: no\n        z: 1\n  end: {a: 1}\n";
    let cases = [
        ("metadata.name", 3),
        ("metadata.labels[a.b/c]", 5),
        ("spec.list[0].value", 9),
        ("spec.list[1].name", 10),
        ("spec.list[1].deep[0]", 12),
        ("spec.list[1].deep[1].y", 13),
        ("spec.list[1].deep[1].z", 15),
        ("spec.end.a", 16),
        ("spec.missing.field", 6),
        ("other", -1),
    ];
    let paths: Vec<Value> = cases
        .iter()
        .map(|(path, _)| json!([source, path]))
        .collect();
    let found = map(
        &browser,
        "create/place.js",
        "module.lineOf(one[0], one[1])",
        json!(paths),
    )
    .await;
    for ((path, line), found) in cases.iter().zip(found) {
        assert_eq!(found, *line, "{path}");
    }
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn terminal_follows_escape_sequences() {
    let (environment, browser) = browser().await;
    let cases = [
        ("one\r\ntwo", "one|two"),
        ("abcdef", "abcde|f"),
        ("abc\x1b[2Dx", "axc"),
        ("abc\x1b[1;2H\x1b[K", "a"),
        ("a\r\nb\r\nc\r\nd", "b|c|d"),
        ("a\tb\x08c", "a  cb"),
        ("\x1b[3;1Hz\x1b[Hy", "y||z"),
        ("a\x1b[?1049hfull\x1b[?1049lb", "ab"),
        ("a\r\nb\r\nc\x1b[2;3r\x1b[3;1H\nx", "a|c|x"),
        ("a\r\nb\x1b[1;1H\x1b[L", "|a|b"),
        ("a\r\nb\x1b[1;1H\x1b[M", "b"),
        ("abc\x1b[1;1H\x1b[P", "bc"),
        ("abc\x1b[1;1H\x1b[2@", "  abc"),
        ("\x1b]0;title\x07a\x1b]0;t\x1b\\b", "ab"),
        ("\x1b(0lqk\x1b(B", "┌─┐"),
        ("a\x1b[31;1", "a"),
        ("a\x1b[2Jb", " b"),
        ("\x1b[999;999Hx\x1b[Hy", "y||    x"),
        ("x\x1bcy", "y"),
    ];
    let function = "(() => { const screen = new module.Screen({ columns: 5, rows: 3 }); screen.write(one); \
        return [0, 1, 2].map((row) => screen.grid.text(row)).join('|').replace(/\\|+$/, ''); })()";
    let texts: Vec<&str> = cases.iter().map(|(text, _)| *text).collect();
    let found = map(&browser, "terminal/screen.js", function, json!(texts)).await;
    for ((text, expected), found) in cases.iter().zip(found) {
        assert_eq!(found, *expected, "{text:?}");
    }
    // The same in pieces, as a guest sends it.
    let pieces = function.replace(
        "screen.write(one)",
        "[...one].forEach((c) => screen.write(c))",
    );
    let found = map(&browser, "terminal/screen.js", &pieces, json!(texts)).await;
    for ((text, expected), found) in cases.iter().zip(found) {
        assert_eq!(found, *expected, "{text:?} in pieces");
    }
    let answers = "(() => { let all = ''; const screen = new module.Screen({ answer: (text) => all += text }); \
        screen.write(one); return all; })()";
    let asked = json!([
        "\u{1b}[6n",
        "ab\u{1b}[6n",
        "\u{1b}[c",
        "\u{1b}[5n",
        "\u{1b}[>c"
    ]);
    let found = map(&browser, "terminal/screen.js", answers, asked).await;
    assert_eq!(
        found,
        [
            "\u{1b}[1;1R",
            "\u{1b}[1;3R",
            "\u{1b}[?1;2c",
            "\u{1b}[0n",
            ""
        ]
    );
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn keys_have_their_bytes_and_numbers() {
    let (environment, browser) = browser().await;
    let key = |key: &str, code: &str| json!({"key": key, "code": code});
    let cases = [
        (key("Enter", "Enter"), json!("\r"), json!(0xff0d)),
        (key("ArrowUp", "ArrowUp"), json!("\u{1b}[A"), json!(0xff52)),
        (key("F5", "F5"), json!("\u{1b}[15~"), json!(0xffc2)),
        (key("F12", "F12"), json!("\u{1b}[24~"), json!(0xffc9)),
        (key("a", "KeyA"), json!(null), json!(0x61)),
        (key("ä", "Quote"), json!(null), json!(0xe4)),
        (key("€", "KeyE"), json!(null), json!(0x0100_20ac)),
        (key("Shift", "ShiftRight"), json!(null), json!(0xffe2)),
        (key("Dead", "Backquote"), json!(null), json!(null)),
        (
            json!({"key": "c", "code": "KeyC", "ctrlKey": true}),
            json!("\u{3}"),
            json!(0x63),
        ),
        (
            json!({"key": "b", "code": "KeyB", "altKey": true}),
            json!("\u{1b}b"),
            json!(0x62),
        ),
        (
            json!({"key": "C", "code": "KeyC", "ctrlKey": true, "shiftKey": true}),
            json!(null),
            json!(0x43),
        ),
    ];
    let given: Vec<&Value> = cases.iter().map(|(event, ..)| event).collect();
    let sent = "module.sent(one, { applicationKeys: false }) ?? null";
    let bytes = map(&browser, "terminal/keys.js", sent, json!(given)).await;
    let numbers = map(
        &browser,
        "rfb/keysyms.js",
        "module.keysym(one) ?? null",
        json!(given),
    )
    .await;
    for (((event, text, number), sent), found) in cases.iter().zip(bytes).zip(numbers) {
        assert_eq!((&sent, &found), (text, number), "{event}");
    }
    environment.api.stop.cancel();
}

#[tokio::test]
async fn usage_is_computed_and_states_are_named() {
    let (environment, browser) = browser().await;
    let reading = |clock: u64, counter: u64| {
        json!({
            "clockMilliseconds": clock, "cpuMilliseconds": counter, "memoryBytes": 7,
            "networkReceivedBytes": counter, "networkSentBytes": counter,
        })
    };
    let cases = [
        (json!(null), reading(1000, 5), json!({"memory": 7})),
        (
            reading(1000, 0),
            reading(3000, 500),
            json!({"memory": 7, "millicores": 250, "received": 250, "sent": 250}),
        ),
        (reading(1000, 500), reading(3000, 0), json!({"memory": 7})),
        (reading(3000, 0), reading(1000, 500), json!({"memory": 7})),
    ];
    let given: Vec<Value> = cases
        .iter()
        .map(|(before, now, _)| json!([before, now]))
        .collect();
    // As JSON, a rate that is unknown is left out.
    let function = "JSON.parse(JSON.stringify(module.usageOf(one[0] ?? undefined, one[1])))";
    let found = map(&browser, "usage.js", function, json!(given)).await;
    for ((.., expected), found) in cases.iter().zip(found) {
        assert_eq!(found, *expected);
    }

    let sizes = json!([0, 1023, 1536, 314_572_800, 20_000_000_000_000_u64]);
    let found = map(&browser, "parts/usage.js", "module.size(one)", sizes).await;
    assert_eq!(found, ["0 B", "1023 B", "1.5 KiB", "300 MiB", "18 TiB"]);
    let quantities = json!(["1Gi", "512M", "2048", "1.5Ki", "much", ""]);
    let function = "module.bytesOf(one) ?? null";
    let found = map(&browser, "parts/usage.js", function, quantities).await;
    let expected = json!([1_073_741_824, 512_000_000, 2048, 1536, null, null]);
    assert_eq!(json!(found), expected);

    let condition = |kind: &str, status: &str, message: &str| json!({"conditions": [{"type": kind, "status": status, "message": message}]});
    let cases = [
        (json!({}), "Waiting"),
        (json!({"phase": "InProgress"}), "InProgress"),
        (json!({"readyToUse": true}), "Ready"),
        (json!({"complete": true}), "Ready"),
        (json!({"phase": "Succeeded"}), "Ready"),
        (
            json!({"phase": "InProgress", "error": {"message": "no space"}}),
            "no space",
        ),
        (condition("Failure", "True", "too late"), "too late"),
        (
            condition("Ready", "False", "waits for its source"),
            "waits for its source",
        ),
    ];
    let given: Vec<&Value> = cases.iter().map(|(status, _)| status).collect();
    let function = "module.stateOf({ metadata: {}, status: one })";
    let found = map(&browser, "copies.js", function, json!(given)).await;
    for ((status, expected), found) in cases.iter().zip(found) {
        assert_eq!(found, *expected, "{status}");
    }
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn credentials_are_found_in_tokens_and_kubeconfigs() {
    let (environment, browser) = browser().await;
    let kubeconfig = |user: &str| {
        format!(
            "apiVersion: v1\ncontexts:\n- context:\n    namespace: \"work\"\n    user: ann\n  name: main\n\
             current-context: main\nusers:\n- name: bob\n  user:\n    token: of-bob\n- name: ann\n  user:\n    {user}\n"
        )
    };
    // The claims are {"exp":1800000000,"kubernetes.io":{"namespace":"team"}}.
    let token = "a.eyJleHAiOjE4MDAwMDAwMDAsImt1YmVybmV0ZXMuaW8iOnsibmFtZXNwYWNlIjoidGVhbSJ9fQ.c";
    let flow = json!({
        "current-context": "m", "contexts": [{"name": "m", "context": {"user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    let found = |token: &str, namespace: Value, until: Value| json!({"token": token, "namespace": namespace, "until": until});
    let cases = [
        (
            token.to_owned(),
            found(token, json!("team"), json!(1_800_000_000)),
        ),
        (
            " opaque\n".to_owned(),
            found("opaque", json!(null), json!(null)),
        ),
        (
            kubeconfig("token: of-ann"),
            found("of-ann", json!("work"), json!(null)),
        ),
        (
            kubeconfig("token: 'of-ann' # c"),
            found("of-ann", json!("work"), json!(null)),
        ),
        (flow.to_string(), found("t", json!(null), json!(null))),
        (
            kubeconfig("client-certificate-data: x"),
            json!("a certificate"),
        ),
        (kubeconfig("exec: {command: x}"), json!("a program makes")),
        (kubeconfig("tokenFile: /x"), json!("another file")),
        (kubeconfig("{}"), json!("no token")),
        (
            kubeconfig("x: y").replace("user: ann", "user: eve"),
            json!("no user eve"),
        ),
        (
            "current-context: x\nusers: []\n".to_owned(),
            json!("no current context"),
        ),
        (
            "{\"a\": ".to_owned(),
            json!("neither a token nor a kubeconfig"),
        ),
        (
            "some words".to_owned(),
            json!("neither a token nor a kubeconfig"),
        ),
        (String::new(), json!("Give a token")),
    ];
    let given: Vec<&String> = cases.iter().map(|(text, _)| text).collect();
    let function = "(({ problem, token, namespace = null, until = null }) => problem ?? { token, namespace, until })\
                    (module.credentialsIn(one))";
    let all = map(&browser, "credentials.js", function, json!(given)).await;
    for ((text, expected), found) in cases.iter().zip(all) {
        match expected.as_str() {
            Some(part) => assert!(
                found.as_str().is_some_and(|why| why.contains(part)),
                "{text}: {found}"
            ),
            None => assert_eq!(found, *expected, "{text}"),
        }
    }
    environment.api.stop.cancel();
}

#[tokio::test]
async fn sizes_migrations_exports_and_networks_are_put_in_words() {
    let (environment, browser) = browser().await;
    let size = |cpus: u32, memory: &str| json!({"spec": {"cpu": {"guest": cpus}, "memory": {"guest": memory}}});
    let preference = |spec: Value| json!({"name": "p", "spec": spec});
    let cores = json!({"cpu": {"preferredCPUTopology": "preferCores"}, "requirements": {"cpu": {"guest": 8}}});
    let cases = [
        (
            json!({"cores": "2", "memory": "1Gi"}),
            "The guest gets 2 CPUs and 1Gi of memory.",
        ),
        (json!({"cores": "two", "memory": "1Gi"}), ""),
        (json!({"cores": "2", "memory": "much"}), ""),
        (
            json!({"cores": "2", "memory": "1Gi", "size": size(1, "256Mi")}),
            "The guest gets 1 CPU and 256Mi of memory.",
        ),
        (
            json!({"size": size(4, "8Gi"), "preference": preference(cores)}),
            "The guest gets 4 CPUs as cores and 8Gi of memory. The preference p requires 8 CPUs.",
        ),
        (
            json!({"cores": "1", "memory": "1Gi", "preference": preference(json!({"requirements": {"memory": {"guest": "2Gi"}}}))}),
            "The guest gets 1 CPU and 1Gi of memory. The preference p requires 2Gi of memory.",
        ),
    ];
    let given: Vec<&Value> = cases.iter().map(|(form, _)| form).collect();
    let function = "(({ sentence, problem }) => [sentence, problem].filter(Boolean).join(' '))(module.resultOf(one))";
    let found = map(&browser, "create/sizes.js", function, json!(given)).await;
    for ((form, expected), found) in cases.iter().zip(found) {
        assert_eq!(found, *expected, "{form}");
    }

    let progress = |message: &str| json!({"status": {"conditions": [{"type": "migrationProgress", "message": message}]}});
    let given = json!([
        progress("81.0 of 96.0 MiB remain, 3 s"),
        progress("97.5 of 96.0 MiB remain"),
        progress("soon"),
        {}
    ]);
    let found = map(
        &browser,
        "migrations.js",
        "module.copied(one) ?? null",
        given,
    )
    .await;
    let expected = json!([{"done": 15, "total": 96}, {"done": 0, "total": 96}, null, null]);
    assert_eq!(json!(found), expected);

    let given = json!([
        "2026-01-01T02:00:00Z",
        "2026-01-01T00:00:59Z",
        "2025-12-31T00:00:00Z",
        null
    ]);
    let function = "module.left(one, Date.parse('2026-01-01T00:00:01Z'))";
    let found = map(&browser, "exports.js", function, given).await;
    assert_eq!(found, ["2 h 0 min", "1 min", "over", ""]);

    let config = |text: &str| json!({"spec": {"config": text}});
    let given = json!([
        config("{\"type\": \"bridge\", \"bridge\": \"br1\", \"ipam\": {\"type\": \"host-local\", \"subnet\": \"10.0.0.0/24\"}}"),
        config("{\"plugins\": [{\"type\": \"macvlan\", \"master\": \"eth0\"}]}"),
        config("{"), config("[]"), {"spec": {}},
    ]);
    let function = "(({ type = '', settings, problem }) => `${type}: ${settings ?? problem}`)(module.settingsOf(one))";
    let found = map(&browser, "networks.js", function, given).await;
    let expected = [
        "bridge: bridge br1, addresses 10.0.0.0/24",
        "macvlan: master eth0",
        ": its settings are not JSON",
        ": its settings name no type",
        ": the file of this name on the node",
    ];
    assert_eq!(found, expected);

    let names = json!([
        "Debian 12_generic.qcow2.xz",
        "a.img",
        "Ö.iso",
        "x".repeat(80)
    ]);
    let found = map(&browser, "upload.js", "module.nameFor(one)", names).await;
    assert_eq!(found, ["debian-12-generic", "a", "", &"x".repeat(50)]);
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}
