//! Which VMs are replaced because they do not start.

use super::*;

#[test]
fn vms_that_fail_to_start_are_replaced() {
    let failing = |status: &str, seconds: i64, failures: i64| {
        let since = now() - SignedDuration::from_secs(seconds);
        let mut vm = vm(0);
        vm["status"] = json!({
            "printableStatus": status,
            "startFailure": {"consecutiveFailCount": failures},
            "conditions": [{"type": "Ready", "status": "False",
                            "lastTransitionTime": since.to_string()}],
        });
        vec![member_of(vm)]
    };
    let healing = |strategy: Value| json!({"replicas": 1, "autohealing": strategy});
    let often = json!({"startUpFailureThreshold": 5});
    let soon = json!({"minFailingToStartDuration": "30s"});
    let wrong = json!({"minFailingToStartDuration": "soon"});
    let crash = "CrashLoopBackOff";
    let cases = [
        (json!({"replicas": 1}), failing(crash, 9999, 99), "", None),
        (healing(json!({})), failing(crash, 60, 2), "", Some(240)),
        (
            healing(json!({})),
            failing(crash, 60, 3),
            "delete web-0",
            None,
        ),
        (
            healing(json!({})),
            failing(crash, 300, 0),
            "delete web-0",
            None,
        ),
        (healing(often), failing(crash, 60, 4), "", Some(240)),
        (
            healing(soon),
            failing("ErrorPvcNotFound", 31, 0),
            "delete web-0",
            None,
        ),
        (
            healing(wrong),
            failing("ImagePullBackOff", 31, 0),
            "",
            Some(269),
        ),
        (healing(json!({})), failing("Starting", 9999, 0), "", None),
    ];
    for (spec, members, expected, seconds) in cases {
        let observed = observe(pool(spec), members);
        check(&observed, expected);
        let requeue = plan(&observed).requeue_in;
        assert_eq!(
            requeue,
            seconds.map(std::time::Duration::from_secs),
            "{observed:#?}"
        );
    }
    let paused = json!({"replicas": 1, "paused": true, "autohealing": {}});
    check(&observe(pool(paused), failing(crash, 9999, 99)), "");
}

#[test]
fn failing_vms_count_as_deleted_when_the_pool_shrinks() {
    let mut failing = vm(0);
    failing["status"]["startFailure"] = json!({"consecutiveFailCount": 3});
    let all = vec![member_of(failing), member_of(vm(1)), member_of(vm(2))];
    let policy = json!({"selectionPolicy": {"sortPolicy": "AscendingOrder"}});
    let spec = json!({"replicas": 1, "autohealing": {}, "scaleInStrategy": {"proactive": policy}});
    check(&observe(pool(spec), all), "delete web-0, delete web-1");
}
