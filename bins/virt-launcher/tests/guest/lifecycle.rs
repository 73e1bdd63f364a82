//! A guest's life: starts, restarts of the processes around it, and every kind of end.

use std::time::Duration;

use launcher_channel::{Backing, DomainState, GuestPlan, Prepare, Request, StopReason};

use crate::bundle::kill;
use crate::handler::{Handler, read_to_end};
use crate::{QEMU, acpi_plan, exit_code, plan, pod, single, wait_for_boot, xml};

#[tokio::test]
async fn guest_survives_kill_of_every_other_process() {
    let mut pod = pod();
    {
        let mut handler = Handler::connect(&pod);
        let wrong = GuestPlan {
            vmi_uid: "another".to_owned(),
            ..plan()
        };
        assert_eq!(
            handler.refused(Request::Sync(Box::new(wrong))).await,
            "WrongGuest"
        );
        assert_eq!(handler.done(Request::State).await.domain, None);
        assert_eq!(handler.refused(Request::Pause).await, "NotRunning");
        let state = handler.done(Request::Sync(Box::new(plan()))).await;
        assert_eq!(state.domain, Some(DomainState::Running));
        assert!(
            state
                .machine
                .is_some_and(|machine| machine.starts_with("pc-q35-"))
        );
        let qemu = single(&pod.pids(QEMU));

        assert_eq!(
            handler.done(Request::Pause).await.domain,
            Some(DomainState::PausedByUser)
        );
        handler.reports(DomainState::PausedByUser).await;
        assert_eq!(
            handler.done(Request::Pause).await.domain,
            Some(DomainState::PausedByUser)
        );

        let launcher = single(&pod.pids("virt-launcher"));
        kill(launcher, "KILL");
        let mut handler = Handler::connect_past(&pod, Some(launcher));
        handler.reports(DomainState::PausedByUser).await;
        assert_eq!(
            handler.done(Request::Unpause).await.domain,
            Some(DomainState::Running)
        );
        let again = handler.done(Request::Sync(Box::new(plan()))).await;
        assert_eq!(again.domain, Some(DomainState::Running));

        let libvirtd = single(&pod.pids("libvirtd"));
        kill(libvirtd, "KILL");
        assert_eq!(
            handler.done(Request::Pause).await.domain,
            Some(DomainState::PausedByUser)
        );
        assert_ne!(single(&pod.pids("libvirtd")), libvirtd);
        assert_eq!(
            handler.done(Request::Unpause).await.domain,
            Some(DomainState::Running)
        );
        assert_eq!(handler.refused(Request::Release).await, "StillRunning");
        assert_eq!(single(&pod.pids(QEMU)), qemu);

        // A second handler replaces the first one.
        let mut second = Handler::connect(&pod);
        second.reports(DomainState::Running).await;
        assert_eq!(read_to_end(handler).await, 0);

        // This guest ignores the power button.
        let state = second.done(Request::Shutdown { grace_seconds: 600 }).await;
        assert!(state.shutting_down);
        second.done(Request::Shutdown { grace_seconds: 1 }).await;
        second
            .reports(DomainState::Stopped(StopReason::Destroyed))
            .await;
        let state = second.done(Request::Sync(Box::new(plan()))).await;
        assert_eq!(
            state.domain,
            Some(DomainState::Stopped(StopReason::Destroyed))
        );
        assert_eq!(pod.pids(QEMU), [0; 0]);
        second.done(Request::Release).await;
    }
    assert_eq!(exit_code(&mut pod), 0);
}

#[tokio::test]
async fn killed_qemu_stays_a_crash_after_restarts() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    handler.done(Request::Sync(Box::new(plan()))).await;
    kill(single(&pod.pids(QEMU)), "KILL");
    handler
        .reports(DomainState::Stopped(StopReason::Crashed))
        .await;

    let launcher = single(&pod.pids("virt-launcher"));
    kill(launcher, "KILL");
    kill(single(&pod.pids("libvirtd")), "KILL");
    let mut handler = Handler::connect_past(&pod, Some(launcher));
    handler
        .reports(DomainState::Stopped(StopReason::Crashed))
        .await;
    let state = handler.done(Request::Sync(Box::new(plan()))).await;
    assert_eq!(
        state.domain,
        Some(DomainState::Stopped(StopReason::Crashed))
    );
    assert_eq!(pod.pids(QEMU), [0; 0]);
}

#[tokio::test]
async fn qemu_killed_while_libvirtd_is_down_is_a_crash() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    let paused = GuestPlan {
        start_paused: true,
        ..plan()
    };
    let state = handler.done(Request::Sync(Box::new(paused))).await;
    assert_eq!(state.domain, Some(DomainState::PausedByUser));
    let qemu = single(&pod.pids(QEMU));
    kill(single(&pod.pids("libvirtd")), "KILL");
    kill(qemu, "KILL");
    handler
        .reports(DomainState::Stopped(StopReason::Crashed))
        .await;
}

#[tokio::test]
async fn start_is_repeated_when_libvirtd_dies() {
    for moment in ["libvirt/qemu/run/ns_guest.pid", "private/serial.log"] {
        let pod = pod();
        let mut handler = Handler::connect(&pod);
        let sync = handler.done(Request::Sync(Box::new(plan())));
        let path = pod.run_dir().join(moment);
        let kill_libvirtd = async {
            let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
            while !path.exists() && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            kill(single(&pod.pids("libvirtd")), "KILL");
        };
        let (state, ()) = tokio::join!(sync, kill_libvirtd);
        assert_eq!(
            state.domain,
            Some(DomainState::Running),
            "{moment}: {}",
            pod.log()
        );
        single(&pod.pids(QEMU));
        eprintln!(
            "{moment}: {} starts",
            pod.log().matches("phase=Starting").count()
        );
    }
}

#[tokio::test]
async fn guest_shuts_down_within_its_grace_period() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    handler.done(Request::Sync(Box::new(acpi_plan(&pod)))).await;
    wait_for_boot(&pod);
    let state = handler.done(Request::Shutdown { grace_seconds: 600 }).await;
    assert!(
        state.shutting_down || state.domain == Some(DomainState::Stopped(StopReason::Shutdown))
    );
    handler
        .reports(DomainState::Stopped(StopReason::Shutdown))
        .await;
    assert!(handler.state.is_some_and(|state| !state.shutting_down));
}

#[tokio::test]
async fn terminating_pod_shuts_its_guest_down() {
    let mut pod = pod();
    {
        let mut handler = Handler::connect(&pod);
        let plan = GuestPlan {
            grace_seconds: 600,
            ..acpi_plan(&pod)
        };
        handler.done(Request::Sync(Box::new(plan))).await;
        wait_for_boot(&pod);
        kill(pod.init().expect("the pod runs"), "TERM");
        handler
            .reports(DomainState::Stopped(StopReason::Shutdown))
            .await;
    }
    assert_eq!(exit_code(&mut pod), 0);
}

#[tokio::test]
async fn pod_without_a_guest_ends_at_once() {
    let mut pod = pod();
    drop(Handler::connect(&pod));
    kill(pod.init().expect("the pod runs"), "TERM");
    assert_eq!(exit_code(&mut pod), 0);
}

#[tokio::test]
async fn invalid_plans_are_refused_with_a_reason() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    let broken = GuestPlan {
        domain_xml: "<domain".to_owned(),
        ..plan()
    };
    assert_eq!(
        handler.refused(Request::Sync(Box::new(broken))).await,
        "Synchronizing with the Domain failed."
    );
    let backing = Backing::ImageRoot {
        root: "/run/kubevirt".to_owned(),
        path: Some("/none".to_owned()),
    };
    let missing = Prepare::Overlay {
        path: "/run/private/x".to_owned(),
        backing,
    };
    let missing = GuestPlan {
        prepare: vec![missing],
        ..plan()
    };
    assert_eq!(
        handler.refused(Request::Sync(Box::new(missing))).await,
        "PrepareFailed"
    );
    let missing_disk = GuestPlan {
        domain_xml: xml(
            "<disk type='file' device='disk'><source file='/none'/><target dev='vda'/></disk>",
        ),
        ..plan()
    };
    for _ in 0..3 {
        assert_eq!(
            handler
                .refused(Request::Sync(Box::new(missing_disk.clone())))
                .await,
            "StartFailed"
        );
    }
    handler
        .reports(DomainState::Stopped(StopReason::StartFailed))
        .await;
    let state = handler.done(Request::Sync(Box::new(plan()))).await;
    assert_eq!(
        state.domain,
        Some(DomainState::Stopped(StopReason::StartFailed))
    );
}
