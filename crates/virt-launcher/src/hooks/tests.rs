//! The launcher's side against sidecars in this process, which may hang, die, or answer anything.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use grpc::{Code, Reply, Service, Status};
use launcher_channel::{FileSource, GuestPlan, HookSidecar, Hooks, Prepare, SeedFile};
use reasons::Reason;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::messages::{
    ChangedCloudInit, CloudInit, DefineDomain, DefinedDomain, Empty, HookPoint, INFO, Info, Version,
};
use super::shim::Shim;
use super::{HookError, ask, shut_down};

const UUID: &str = "69a61d3f-50cc-4611-b6e2-e53205a02bad";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// The domain or the seed, with the sidecar's mark.
    Mark(&'static str),
    Domain(&'static str),
    Huge,
    Fail,
    Hang,
    /// Ends its server within the call.
    Die,
}

/// A sidecar.
#[derive(Debug, Clone)]
struct Fake {
    versions: &'static [&'static str],
    points: &'static [(&'static str, i32)],
    answer: Answer,
    calls: mpsc::UnboundedSender<String>,
    stop: CancellationToken,
}

impl Fake {
    async fn define(&self, request: DefineDomain) -> Result<Reply, Status> {
        let domain_xml = match self.answer {
            Answer::Mark(mark) => {
                let xml = String::from_utf8(request.domain_xml).unwrap();
                let end = format!("<!-- {mark} --></domain>");
                xml.replace("</domain>", &end).into_bytes()
            }
            Answer::Domain(xml) => xml.as_bytes().to_vec(),
            Answer::Huge => vec![b' '; 2 << 20],
            Answer::Fail => return Err(Status::new(Code::Unknown, "exit status 1\n")),
            Answer::Hang => std::future::pending().await,
            Answer::Die => {
                self.stop.cancel();
                std::future::pending().await
            }
        };
        Ok(grpc::unary(&DefinedDomain { domain_xml }))
    }

    fn cloud_init(&self, request: &CloudInit) -> Reply {
        let mut data: Value = serde_json::from_slice(&request.data).unwrap();
        if let Answer::Mark(mark) = self.answer {
            let before = data["UserData"].as_str().unwrap().to_owned();
            data["UserData"] = json!(format!("{before}\n{mark}"));
        }
        grpc::unary(&ChangedCloudInit {
            no_cloud_source: Vec::new(),
            data: data.to_string().into_bytes(),
        })
    }
}

impl Service for Fake {
    async fn call(&self, method: &str, message: Bytes) -> Result<Reply, Status> {
        if method == INFO {
            let points = self.points.iter();
            let points = points.map(|(name, priority)| HookPoint {
                name: (*name).to_owned(),
                priority: *priority,
            });
            return Ok(grpc::unary(&Info {
                name: "fake".to_owned(),
                hook_points: points.collect(),
                versions: self.versions.iter().map(ToString::to_string).collect(),
            }));
        }
        self.calls.send(method.to_owned()).unwrap();
        if method.ends_with("/OnDefineDomain") {
            let request: DefineDomain = grpc::decode(message)?;
            assert_eq!(request.vmi, b"{}");
            self.define(request).await
        } else if method.ends_with("/PreCloudInitIso") {
            Ok(self.cloud_init(&grpc::decode(message)?))
        } else if self.answer == Answer::Hang {
            std::future::pending().await
        } else {
            Ok(grpc::unary(&Empty {}))
        }
    }
}

/// A directory with sidecars.
struct Sidecars {
    dir: tempfile::TempDir,
    tasks: TaskTracker,
    hooks: Hooks,
    calls: mpsc::UnboundedReceiver<String>,
    sender: mpsc::UnboundedSender<String>,
}

impl Sidecars {
    fn new() -> Self {
        let (sender, calls) = mpsc::unbounded_channel();
        Self {
            dir: tempfile::tempdir().unwrap(),
            tasks: TaskTracker::new(),
            hooks: Hooks {
                sidecars: Vec::new(),
                vmi: "{}".to_owned(),
            },
            calls,
            sender,
        }
    }

    /// A sidecar that is expected.
    fn expect(&mut self) -> std::path::PathBuf {
        let name = format!("hook-sidecar-{}", self.hooks.sidecars.len());
        let directory = self.dir.path().join(&name);
        std::fs::create_dir(&directory).unwrap();
        self.hooks.sidecars.push(HookSidecar {
            name,
            directory: directory.to_str().unwrap().to_owned(),
        });
        directory
    }

    fn serve(&mut self, service: impl Service) {
        let directory = self.expect();
        let listener = grpc::bind(&directory, "hook.sock").unwrap();
        let stop = CancellationToken::new();
        self.tasks.spawn(grpc::serve(listener, service, stop));
    }

    fn add(
        &mut self,
        versions: &'static [&'static str],
        points: &'static [(&'static str, i32)],
        answer: Answer,
    ) {
        let directory = self.expect();
        let listener = grpc::bind(&directory, "hook.sock").unwrap();
        let fake = Fake {
            versions,
            points,
            answer,
            calls: self.sender.clone(),
            stop: CancellationToken::new(),
        };
        let stop = fake.stop.clone();
        self.tasks.spawn(grpc::serve(listener, fake, stop));
    }

    async fn ask(&self, plan: &GuestPlan) -> Result<super::Asked, HookError> {
        ask(plan, &self.hooks, &TaskTracker::new()).await
    }

    fn calls(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.calls.try_recv().ok()).collect()
    }
}

fn plan(prepare: &[Prepare]) -> GuestPlan {
    let domain_xml = format!("<domain type=\"kvm\"><name>n_a</name><uuid>{UUID}</uuid></domain>");
    let rest = json!({
        "vmiUid": "u", "domainName": "n_a", "domainUuid": UUID, "domainXml": domain_xml,
        "prepare": prepare, "graceSeconds": 1,
    });
    serde_json::from_value(rest).unwrap()
}

const DEFINE: &[(&str, i32)] = &[("OnDefineDomain", 0)];

#[tokio::test]
async fn each_sidecar_gets_the_answer_of_those_with_a_higher_priority() {
    let mut sidecars = Sidecars::new();
    sidecars.add(&["v1alpha1"], DEFINE, Answer::Mark("first"));
    let high: &[_] = &[("OnDefineDomain", 10), ("Shutdown", 0)];
    sidecars.add(
        &["v1alpha3", "v1alpha1", "v9"],
        high,
        Answer::Mark("second"),
    );
    sidecars.add(&["v1alpha2"], DEFINE, Answer::Mark("third"));
    sidecars.add(&["v1alpha2"], &[("Unknown", 1)], Answer::Hang);
    let asked = sidecars.ask(&plan(&[])).await.unwrap();
    let marks = "<!-- second --><!-- first --><!-- third --></domain>";
    assert!(asked.domain_xml.ends_with(marks), "{}", asked.domain_xml);
    assert_eq!(
        sidecars.calls(),
        [
            "/kubevirt.hooks.v1alpha3.Callbacks/OnDefineDomain",
            "/kubevirt.hooks.v1alpha1.Callbacks/OnDefineDomain",
            "/kubevirt.hooks.v1alpha2.Callbacks/OnDefineDomain",
        ]
    );
}

#[tokio::test]
async fn seed_is_changed_once_and_only_by_versions_that_can() {
    let mut sidecars = Sidecars::new();
    let point: &[_] = &[("PreCloudInitIso", 0)];
    sidecars.add(&["v1alpha1"], point, Answer::Mark("too old"));
    sidecars.add(&["v1alpha2"], point, Answer::Mark("one"));
    sidecars.add(&["v1alpha3"], point, Answer::Mark("two"));
    let path = sidecars.dir.path().join("seed.iso");
    let file = |name: &str, text: &str| SeedFile {
        name: name.to_owned(),
        source: FileSource::Text(text.to_owned()),
    };
    let meta = file("meta-data", r#"{"instance-id":"a"}"#);
    let seed = |user: &str| Prepare::Seed {
        path: path.to_str().unwrap().to_owned(),
        label: "cidata".to_owned(),
        files: vec![meta.clone(), file("user-data", user)],
    };
    let plan = plan(&[seed("#cloud-config")]);
    let asked = sidecars.ask(&plan).await.unwrap();
    assert_eq!(asked.prepare, [seed("#cloud-config\none\ntwo")]);
    assert_eq!(asked.domain_xml, plan.domain_xml);

    std::fs::write(&path, "made").unwrap();
    sidecars.calls();
    let asked = sidecars.ask(&plan).await.unwrap();
    assert_eq!(asked.prepare, plan.prepare);
    assert!(sidecars.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_failure_names_the_sidecar() {
    let v2: &[_] = &["v1alpha2"];
    let failed = Reason::HookSidecarFailed;
    for (versions, answer, expected) in [
        (v2, Answer::Hang, "OnDefineDomain did not answer within"),
        (v2, Answer::Die, "OnDefineDomain failed"),
        (v2, Answer::Fail, "OnDefineDomain failed: exit status 1?"),
        (v2, Answer::Huge, "more than"),
        (v2, Answer::Domain("Traceback:"), "no domain of this guest"),
        (
            v2,
            Answer::Domain("<domain><name>n_b</name></domain>"),
            "its name is \"n_b\"",
        ),
        (&["v2"], Answer::Mark(""), "it speaks \"v2\""),
        (&[], Answer::Mark(""), "it speaks"),
    ] {
        let mut sidecars = Sidecars::new();
        sidecars.add(v2, DEFINE, Answer::Mark("works"));
        sidecars.add(versions, DEFINE, answer);
        let start = Instant::now();
        let error = sidecars.ask(&plan(&[])).await.unwrap_err();
        let text = error_chain::error_chain(&error);
        assert!(text.starts_with("container hook-sidecar-1: "), "{text}");
        assert!(text.contains(expected), "{text}");
        assert_eq!(error.reason(), failed, "{text}");
        assert!(start.elapsed() < Duration::from_secs(50), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn sidecar_may_open_its_socket_late() {
    let mut sidecars = Sidecars::new();
    let directory = sidecars.expect();
    // What an earlier run of the sidecar has left.
    drop(std::os::unix::net::UnixListener::bind(directory.join("a.sock")).unwrap());
    // Not a socket of the sidecar.
    std::os::unix::fs::symlink("/run/dbus", directory.join("b.sock")).unwrap();
    std::fs::write(directory.join("c.sock"), "").unwrap();
    let error = sidecars.ask(&plan(&[])).await.unwrap_err();
    assert_eq!(error.reason(), Reason::HookSidecarNotReady);
    assert!(error.is_not_ready());
    let text = error_chain::error_chain(&error);
    assert!(
        text.contains("hook-sidecar-0: it has not opened a socket"),
        "{text}"
    );

    let fake = Fake {
        versions: &["v1alpha2"],
        points: DEFINE,
        answer: Answer::Mark("late"),
        calls: sidecars.sender.clone(),
        stop: CancellationToken::new(),
    };
    sidecars.tasks.spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let listener = grpc::bind(&directory, "d.sock").unwrap();
        let stop = fake.stop.clone();
        grpc::serve(listener, fake, stop).await;
    });
    let asked = sidecars.ask(&plan(&[])).await.unwrap();
    assert!(asked.domain_xml.contains("late"));
}

#[tokio::test(start_paused = true)]
async fn sidecars_that_want_to_know_it_are_told_the_end() {
    let mut sidecars = Sidecars::new();
    let point: &[_] = &[("Shutdown", 0)];
    sidecars.add(&["v1alpha2"], point, Answer::Mark("too old"));
    sidecars.add(&["v1alpha3"], DEFINE, Answer::Mark("without the hook"));
    sidecars.expect();
    sidecars.add(&["v1alpha3"], point, Answer::Mark("told"));
    sidecars.add(&["v1alpha3"], point, Answer::Hang);
    let start = Instant::now();
    shut_down(&sidecars.hooks).await;
    assert!(start.elapsed() < Duration::from_secs(4));
    let method = "/kubevirt.hooks.v1alpha3.Callbacks/Shutdown";
    assert_eq!(sidecars.calls(), [method, method]);
}

/// Installs a script in a directory, by another process: one that has the file open for writing, or its child, would
/// make its execution fail.
fn install(directory: &Path, name: &str, script: &str) {
    let text = directory.join(format!("{name}.text"));
    std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
    let mut install = Command::new("install");
    install
        .args(["-m", "755"])
        .arg(&text)
        .arg(directory.join(name));
    assert!(install.status().unwrap().success());
}

#[tokio::test]
async fn script_without_an_image_of_its_own_changes_domain_and_seed() {
    let mut sidecars = Sidecars::new();
    let bin = tempfile::tempdir().unwrap();
    let define = r#"[ "$1 $3" = "--vmi --domain" ] || exit 2
printf '%s' "$4" | sed "s|</name>|</name><description>$2</description>|""#;
    install(bin.path(), "onDefineDomain", define);
    let shim = |version| Shim {
        version,
        search_path: format!("/nonexistent:{}:/usr/bin:/bin", bin.path().display()).into(),
        stop: CancellationToken::new(),
    };
    let last = shim(Version::V1Alpha3);
    sidecars.serve(shim(Version::V1Alpha2));
    sidecars.serve(last.clone());
    let asked = sidecars.ask(&plan(&[])).await.unwrap();
    let marks = asked.domain_xml.matches("<description>{}</description>");
    assert_eq!(marks.count(), 2, "{}", asked.domain_xml);
    shut_down(&sidecars.hooks).await;
    assert!(last.stop.is_cancelled());

    install(bin.path(), "onDefineDomain", "echo '<domain>'; exit 3");
    let error = sidecars.ask(&plan(&[])).await.unwrap_err();
    let text = error_chain::error_chain(&error);
    assert!(text.contains("onDefineDomain: exit status: 3"), "{text}");
}
