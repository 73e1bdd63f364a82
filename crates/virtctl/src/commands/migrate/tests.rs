use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

use super::*;
use crate::proxy::Proxies;

/// What a server does with the requests for migrations, one after another; the last also with all that follow.
#[derive(Clone, Copy, Debug)]
enum Does {
    Show(&'static str),
    Gone,
    Busy,
    Silent,
    Deny,
}

/// Follows a migration on a server that does this; how often it was asked, too.
async fn followed_on(server: &'static [Does]) -> (Result<()>, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let count = Arc::clone(&count);
        async move {
            let answer = |code: u16, body: &Value| {
                let body = Body::from(serde_json::to_vec(body).unwrap());
                let answer = Response::builder().status(code).body(body);
                Ok::<_, std::io::Error>(answer.unwrap())
            };
            if request.method() == http::Method::PUT {
                return answer(202, &json!({}));
            }
            let status = |code: u16, message: &str| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message});
            let index = count.fetch_add(1, Ordering::SeqCst);
            match server[index.min(server.len() - 1)] {
                Does::Show(phase) => answer(
                    200,
                    &json!({"items": [{"metadata": {"uid": "u"}, "status": {"phase": phase}}]}),
                ),
                Does::Gone => Err(std::io::ErrorKind::ConnectionRefused.into()),
                Does::Busy => answer(503, &status(503, "apiserver is shutting down")),
                Does::Silent => std::future::pending().await,
                Does::Deny => answer(403, &status(403, "you must not")),
            }
        }
    });
    let cluster = Cluster {
        client: kube::Client::new(service, "n"),
        namespace: "n".to_owned(),
        proxies: Proxies::default(),
    };
    let flags = Migrate {
        vm: "a".to_owned(),
        node_selector: vec![],
        watch: true,
        dry_run: DryRun { dry_run: false },
        output: None,
    };
    let result = migrate(&cluster, Printer, &flags).await;
    (result, asked.load(Ordering::SeqCst))
}

#[tokio::test(start_paused = true)]
async fn migration_is_followed_while_the_server_comes_and_goes() {
    use Does::{Busy, Deny, Gone, Show, Silent};
    let (result, asked) = followed_on(&[
        Show("Running"),
        Gone,
        Gone,
        Busy,
        Silent,
        Show("Running"),
        Gone,
        Show("Succeeded"),
    ])
    .await;
    result.unwrap();
    assert_eq!(asked, 8);
    let (result, asked) = followed_on(&[Gone, Show("Failed")]).await;
    assert!(result.unwrap_err().to_string().contains("has failed"));
    assert_eq!(asked, 2);
    let (result, asked) = followed_on(&[Show("Running"), Deny]).await;
    assert_eq!(result.unwrap_err().to_string(), "you must not");
    assert_eq!(asked, 2);
    let (result, _) = followed_on(&[Show("Running"), Gone]).await;
    assert!(result.unwrap_err().to_string().contains("ten minutes"));
}

#[test]
fn one_migration_is_followed_to_its_end() {
    let migration = |uid: &str, created: &str, phase: &str| json!({"metadata": {"uid": uid, "creationTimestamp": created}, "status": {"phase": phase}});
    let before = migration("before", "2026-11-25T12:00:00Z", "Succeeded");
    let new = migration("new", "2026-11-25T12:00:00Z", "Running");
    let over = migration("new", "2026-11-25T12:00:00Z", "Failed");
    let check = |all: &[&Value], uid: Option<&str>, expected: Option<&str>| {
        let all: Vec<Value> = all.iter().copied().cloned().collect();
        let found = followed(&all, uid).and_then(|one| text(one, "/metadata/uid"));
        assert_eq!(found, expected, "{uid:?}");
    };
    check(&[&new, &before], None, Some("new"));
    check(&[&before, &new], None, Some("new"));
    check(&[&before, &over], Some("new"), Some("new"));
    // It was cancelled, and is gone.
    check(&[&before], Some("new"), None);
    check(&[], None, None);
}

#[test]
fn progress_is_read_from_the_condition() {
    let check = |message: &str, expected: Option<(u64, u64)>| {
        let migration = json!({"status": {"conditions": [
            {"type": "migrationProgress", "status": "True", "message": message}]}});
        assert_eq!(copied(&migration), expected, "{message}");
    };
    let mib = 1 << 20;
    check(
        "81.0 of 96.5 MiB remain, 15.5 MiB were copied",
        Some((15 * mib + mib / 2, 96 * mib + mib / 2)),
    );
    check("99.0 of 96.0 MiB remain", Some((0, 96 * mib)));
    check("nothing is known", None);
    check("", None);
    assert_eq!(copied(&json!({})), None);
}
