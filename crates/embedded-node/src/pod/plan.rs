//! What to do next for one pod: pure.

/// How far one piece of work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Todo,
    Busy,
    Done,
    /// Failed, and not yet time to try again.
    Waiting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Must succeed before the next one starts.
    Init,
    /// Must run before the next one starts, and goes on.
    Sidecar,
    Main,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    Absent,
    Starting,
    Running,
    BackOff,
    Succeeded,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenContainer {
    pub(crate) role: Role,
    pub(crate) image: Stage,
    /// Handing it to the supervisor.
    pub(crate) start: Stage,
    pub(crate) run: Run,
    /// It runs and has passed its startup probe.
    pub(crate) started: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    Run,
    /// Deleted, with the object waiting for us to be done.
    End,
    /// The object is gone: nobody waits.
    Vanish,
}

/// What is left of the pod on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Left {
    Everything,
    /// No process, mount, interface or cgroup.
    Files,
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) intent: Intent,
    pub(crate) bind: Stage,
    /// `Done` while a supervisor listens to us.
    pub(crate) sandbox: Stage,
    pub(crate) volumes: Stage,
    pub(crate) network: Stage,
    pub(crate) containers: Vec<SeenContainer>,
    /// Something that no retry cures.
    pub(crate) broken: bool,
    pub(crate) stop: Stage,
    pub(crate) tear_down: Stage,
    pub(crate) left: Left,
    /// The API server knows the pod's status as it is.
    pub(crate) reported: bool,
    pub(crate) forget: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Bind,
    MakeSandbox,
    PrepareVolumes,
    JoinNetwork,
    Pull(usize),
    Start(usize),
    Stop,
    TearDown(Left),
    Forget,
}

pub(crate) fn plan(seen: &Seen) -> Vec<Step> {
    if seen.intent == Intent::Run && !is_over(seen) {
        go_on(seen)
    } else {
        wind_up(seen)
    }
}

/// Will no container of this pod ever run again?
fn is_over(seen: &Seen) -> bool {
    let init_failed = seen
        .containers
        .iter()
        .any(|one| one.role == Role::Init && one.run == Run::Failed);
    seen.broken || init_failed || mains_have_ended(&seen.containers)
}

fn mains_have_ended(containers: &[SeenContainer]) -> bool {
    let mut mains = containers
        .iter()
        .filter(|one| one.role == Role::Main)
        .peekable();
    mains.peek().is_some() && mains.all(|one| matches!(one.run, Run::Succeeded | Run::Failed))
}

fn go_on(seen: &Seen) -> Vec<Step> {
    let mut steps = Vec::new();
    for (stage, step) in [
        (seen.bind, Step::Bind),
        (seen.sandbox, Step::MakeSandbox),
        (seen.volumes, Step::PrepareVolumes),
    ] {
        if stage == Stage::Todo {
            steps.push(step);
        }
    }
    if seen.sandbox == Stage::Done && seen.network == Stage::Todo {
        steps.push(Step::JoinNetwork);
    }
    let pull = |(index, one): (usize, &SeenContainer)| {
        (one.run == Run::Absent && one.image == Stage::Todo).then_some(Step::Pull(index))
    };
    steps.extend(seen.containers.iter().enumerate().filter_map(pull));
    let ready = [seen.bind, seen.sandbox, seen.volumes, seen.network];
    if ready.iter().all(|stage| *stage == Stage::Done) {
        steps.extend(startable(&seen.containers).map(Step::Start));
    }
    steps
}

/// Containers whose turn it is and that nothing keeps.
fn startable(containers: &[SeenContainer]) -> impl Iterator<Item = usize> {
    let before_mains = containers.iter().take_while(|one| one.role != Role::Main);
    let turn = before_mains
        .clone()
        .position(|one| match one.role {
            Role::Init => one.run != Run::Succeeded,
            Role::Sidecar => !one.started,
            Role::Main => false,
        })
        .map_or(before_mains.count()..containers.len(), |index| {
            index..index + 1
        });
    containers
        .iter()
        .enumerate()
        .filter_map(move |(index, one)| {
            let due = turn.contains(&index)
                && one.run == Run::Absent
                && one.image == Stage::Done
                && one.start == Stage::Todo;
            due.then_some(index)
        })
}

fn wind_up(seen: &Seen) -> Vec<Step> {
    let goal = if seen.intent == Intent::Run {
        Left::Files
    } else {
        Left::Nothing
    };
    if seen.left < goal {
        return end_processes(seen, goal);
    }
    if seen.intent == Intent::End && seen.reported && seen.forget == Stage::Todo {
        return vec![Step::Forget];
    }
    vec![]
}

fn end_processes(seen: &Seen, goal: Left) -> Vec<Step> {
    // What is under way is let finish, so that nothing is made while it is being removed.
    let busy = [seen.sandbox, seen.volumes, seen.network, seen.tear_down];
    if busy.contains(&Stage::Busy) || seen.containers.iter().any(|one| one.start == Stage::Busy) {
        return vec![];
    }
    let alive = seen
        .containers
        .iter()
        .any(|one| matches!(one.run, Run::Starting | Run::Running | Run::BackOff));
    match (seen.sandbox, seen.stop) {
        (Stage::Done, Stage::Todo) => vec![Step::Stop],
        // It goes when its containers have gone.
        (Stage::Done, Stage::Done | Stage::Busy) => vec![],
        // Nobody to ask them nicely: find somebody first.
        (Stage::Todo, _) if alive => vec![Step::MakeSandbox],
        _ if seen.tear_down == Stage::Todo => vec![Step::TearDown(goal)],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(role: Role, run: Run) -> SeenContainer {
        let start = if run == Run::Absent {
            Stage::Todo
        } else {
            Stage::Done
        };
        SeenContainer {
            role,
            image: Stage::Done,
            start,
            run,
            started: run == Run::Running,
        }
    }

    fn main(run: Run) -> SeenContainer {
        container(Role::Main, run)
    }

    fn ready(containers: Vec<SeenContainer>) -> Seen {
        Seen {
            intent: Intent::Run,
            bind: Stage::Done,
            sandbox: Stage::Done,
            volumes: Stage::Done,
            network: Stage::Done,
            containers,
            broken: false,
            stop: Stage::Todo,
            tear_down: Stage::Todo,
            left: Left::Everything,
            reported: true,
            forget: Stage::Todo,
        }
    }

    #[test]
    fn all_preparation_begins_at_once() {
        let mut seen = ready(vec![main(Run::Absent), main(Run::Absent)]);
        (seen.bind, seen.sandbox) = (Stage::Todo, Stage::Todo);
        (seen.volumes, seen.network) = (Stage::Todo, Stage::Todo);
        seen.containers[0].image = Stage::Todo;
        seen.containers[1].image = Stage::Todo;
        let expected = [
            Step::Bind,
            Step::MakeSandbox,
            Step::PrepareVolumes,
            Step::Pull(0),
            Step::Pull(1),
        ];
        assert_eq!(plan(&seen), expected);
    }

    #[test]
    fn network_waits_for_the_sandbox_and_containers_for_everything() {
        let mut seen = ready(vec![main(Run::Absent)]);
        seen.network = Stage::Todo;
        assert_eq!(plan(&seen), [Step::JoinNetwork]);
        for stage in [Stage::Busy, Stage::Waiting] {
            seen.network = stage;
            assert_eq!(plan(&seen), []);
        }
        seen.network = Stage::Done;
        assert_eq!(plan(&seen), [Step::Start(0)]);
    }

    #[test]
    fn containers_start_in_their_order() {
        use {Role::Init, Role::Main, Role::Sidecar, Run::*};
        for (containers, expected) in [
            (
                vec![(Init, Absent), (Init, Absent), (Main, Absent)],
                vec![0],
            ),
            (
                vec![(Init, Running), (Init, Absent), (Main, Absent)],
                vec![],
            ),
            (
                vec![(Init, Succeeded), (Init, Absent), (Main, Absent)],
                vec![1],
            ),
            (
                vec![(Init, Succeeded), (Main, Absent), (Main, Absent)],
                vec![1, 2],
            ),
            (vec![(Sidecar, Absent), (Main, Absent)], vec![0]),
            (vec![(Sidecar, Running), (Main, Absent)], vec![1]),
            (vec![(Sidecar, Starting), (Main, Absent)], vec![]),
            (vec![(Init, BackOff), (Main, Absent)], vec![]),
            (vec![(Main, Running), (Main, BackOff)], vec![]),
        ] {
            let all = containers
                .iter()
                .map(|(role, run)| container(*role, *run))
                .collect();
            let expected: Vec<Step> = expected.into_iter().map(Step::Start).collect();
            assert_eq!(plan(&ready(all)), expected, "{containers:?}");
        }
    }

    #[test]
    fn nothing_is_handed_over_twice() {
        let mut seen = ready(vec![main(Run::Absent)]);
        for stage in [Stage::Busy, Stage::Done, Stage::Waiting] {
            seen.containers[0].start = stage;
            assert_eq!(plan(&seen), []);
        }
    }

    #[test]
    fn finished_pod_loses_its_processes_and_keeps_its_files() {
        for containers in [
            vec![main(Run::Succeeded), main(Run::Failed)],
            vec![container(Role::Init, Run::Failed), main(Run::Absent)],
            vec![container(Role::Sidecar, Run::Running), main(Run::Succeeded)],
        ] {
            let mut seen = ready(containers);
            assert_eq!(plan(&seen), [Step::Stop]);
            seen.stop = Stage::Done;
            assert_eq!(plan(&seen), []);
            seen.containers.retain(|one| one.run != Run::Running);
            seen.sandbox = Stage::Todo;
            assert_eq!(plan(&seen), [Step::TearDown(Left::Files)]);
            seen.left = Left::Files;
            assert_eq!(plan(&seen), []);
        }
    }

    #[test]
    fn deleted_pod_is_asked_then_removed_then_reported_then_forgotten() {
        let mut seen = ready(vec![main(Run::Running)]);
        seen.intent = Intent::End;
        assert_eq!(plan(&seen), [Step::Stop]);
        seen.stop = Stage::Done;
        assert_eq!(plan(&seen), []);
        (seen.sandbox, seen.containers[0].run) = (Stage::Todo, Run::Succeeded);
        assert_eq!(plan(&seen), [Step::TearDown(Left::Nothing)]);
        (seen.left, seen.reported) = (Left::Nothing, false);
        assert_eq!(plan(&seen), []);
        seen.reported = true;
        assert_eq!(plan(&seen), [Step::Forget]);
        seen.intent = Intent::Vanish;
        assert_eq!(plan(&seen), []);
    }

    #[test]
    fn deletion_waits_for_what_is_being_made() {
        let mut seen = ready(vec![main(Run::Absent)]);
        (seen.intent, seen.network) = (Intent::End, Stage::Busy);
        assert_eq!(plan(&seen), []);
        (seen.network, seen.containers[0].start) = (Stage::Done, Stage::Busy);
        assert_eq!(plan(&seen), []);
    }

    #[test]
    fn containers_without_supervisor_get_one_before_they_are_stopped() {
        let mut seen = ready(vec![main(Run::Running)]);
        (seen.intent, seen.sandbox) = (Intent::Vanish, Stage::Todo);
        assert_eq!(plan(&seen), [Step::MakeSandbox]);
        // None can be had: no more manners.
        seen.sandbox = Stage::Waiting;
        assert_eq!(plan(&seen), [Step::TearDown(Left::Nothing)]);
    }
}
