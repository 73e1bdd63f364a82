//! Pure planning: maps the observed pod to its next steps.

/// Progress of one step.
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
    /// Must run before the next one starts, and keeps running.
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
pub(crate) struct ObservedContainer {
    pub(crate) role: Role,
    pub(crate) image: Stage,
    /// Handing the container to the supervisor.
    pub(crate) start: Stage,
    pub(crate) run: Run,
    /// The container runs and has passed its startup probe.
    pub(crate) started: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    Run,
    /// The object is being deleted and waits for the pod to end.
    Terminate,
    /// The object is gone: clean up without reporting.
    Remove,
}

/// Resources of the pod that are still on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Remains {
    Everything,
    /// No process, mount, interface or cgroup.
    Files,
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) intent: Intent,
    pub(crate) bind: Stage,
    /// `Done` while we are connected to the supervisor.
    pub(crate) sandbox: Stage,
    pub(crate) volumes: Stage,
    /// The update of the volumes' contents.
    pub(crate) refresh: Stage,
    pub(crate) network: Stage,
    /// The comparison of the networks of the running pod with those that it names.
    pub(crate) networks: Stage,
    pub(crate) containers: Vec<ObservedContainer>,
    /// No container may run again: the pod failed or finished earlier.
    pub(crate) over: bool,
    pub(crate) stop: Stage,
    pub(crate) tear_down: Stage,
    pub(crate) remains: Remains,
    /// The API server has the current status.
    pub(crate) reported: bool,
    pub(crate) delete_object: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Bind,
    MakeSandbox,
    PrepareVolumes,
    JoinNetwork,
    UpdateNetworks,
    Pull(usize),
    Start(usize),
    Stop,
    TearDown(Remains),
    DeleteObject,
}

pub(crate) fn plan(observed: &Observed) -> Vec<Step> {
    if observed.intent == Intent::Run && !is_finished(observed) {
        advance(observed)
    } else {
        clean_up(observed)
    }
}

/// Whether no container of this pod will run again.
fn is_finished(observed: &Observed) -> bool {
    let init_failed = observed
        .containers
        .iter()
        .any(|one| one.role == Role::Init && one.run == Run::Failed);
    observed.over || init_failed || main_containers_ended(&observed.containers)
}

fn main_containers_ended(containers: &[ObservedContainer]) -> bool {
    let mut mains = containers
        .iter()
        .filter(|one| one.role == Role::Main)
        .peekable();
    mains.peek().is_some() && mains.all(|one| matches!(one.run, Run::Succeeded | Run::Failed))
}

fn advance(observed: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    for (stage, step) in [
        (observed.bind, Step::Bind),
        (observed.sandbox, Step::MakeSandbox),
        (observed.volumes, Step::PrepareVolumes),
    ] {
        if stage == Stage::Todo {
            steps.push(step);
        }
    }
    if observed.sandbox == Stage::Done && observed.network == Stage::Todo {
        steps.push(Step::JoinNetwork);
    }
    let has_joined = observed.sandbox == Stage::Done && observed.network == Stage::Done;
    if has_joined && observed.networks == Stage::Todo {
        steps.push(Step::UpdateNetworks);
    }
    let pull = |(index, one): (usize, &ObservedContainer)| {
        (one.run == Run::Absent && one.image == Stage::Todo).then_some(Step::Pull(index))
    };
    steps.extend(observed.containers.iter().enumerate().filter_map(pull));
    let ready = [
        observed.bind,
        observed.sandbox,
        observed.volumes,
        observed.network,
    ];
    if ready.iter().all(|stage| *stage == Stage::Done) {
        steps.extend(startable(&observed.containers).map(Step::Start));
    }
    steps
}

/// Indexes of the containers to start now: their predecessors are done and their image is there.
fn startable(containers: &[ObservedContainer]) -> impl Iterator<Item = usize> {
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
            let pending = turn.contains(&index)
                && one.run == Run::Absent
                && one.image == Stage::Done
                && one.start == Stage::Todo;
            pending.then_some(index)
        })
}

fn clean_up(observed: &Observed) -> Vec<Step> {
    let goal = if observed.intent == Intent::Run {
        Remains::Files
    } else {
        Remains::Nothing
    };
    if observed.remains < goal {
        return end_processes(observed, goal);
    }
    if observed.intent == Intent::Terminate
        && observed.reported
        && observed.delete_object == Stage::Todo
    {
        return vec![Step::DeleteObject];
    }
    vec![]
}

fn end_processes(observed: &Observed, goal: Remains) -> Vec<Step> {
    // Steps in flight finish first, so that nothing is made while it is being removed.
    let busy = [
        observed.sandbox,
        observed.volumes,
        observed.network,
        observed.networks,
        observed.tear_down,
    ];
    if busy.contains(&Stage::Busy)
        || observed
            .containers
            .iter()
            .any(|one| one.start == Stage::Busy)
    {
        return vec![];
    }
    let alive = observed
        .containers
        .iter()
        .any(|one| matches!(one.run, Run::Starting | Run::Running | Run::BackOff));
    match (observed.sandbox, observed.stop) {
        (Stage::Done, Stage::Todo) => vec![Step::Stop],
        // The supervisor exits when its containers have ended.
        (Stage::Done, Stage::Done | Stage::Busy) => vec![],
        // Containers without a supervisor: start one, which stops them gracefully.
        (Stage::Todo, _) if alive => vec![Step::MakeSandbox],
        // It would make a volume again.
        _ if observed.refresh == Stage::Busy => vec![],
        _ if observed.tear_down == Stage::Todo => vec![Step::TearDown(goal)],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(role: Role, run: Run) -> ObservedContainer {
        let start = if run == Run::Absent {
            Stage::Todo
        } else {
            Stage::Done
        };
        ObservedContainer {
            role,
            image: Stage::Done,
            start,
            run,
            started: run == Run::Running,
        }
    }

    fn main(run: Run) -> ObservedContainer {
        container(Role::Main, run)
    }

    fn ready(containers: Vec<ObservedContainer>) -> Observed {
        Observed {
            intent: Intent::Run,
            bind: Stage::Done,
            sandbox: Stage::Done,
            volumes: Stage::Done,
            refresh: Stage::Done,
            network: Stage::Done,
            networks: Stage::Done,
            containers,
            over: false,
            stop: Stage::Todo,
            tear_down: Stage::Todo,
            remains: Remains::Everything,
            reported: true,
            delete_object: Stage::Todo,
        }
    }

    #[test]
    fn preparation_steps_start_together() {
        let mut observed = ready(vec![main(Run::Absent), main(Run::Absent)]);
        (observed.bind, observed.sandbox) = (Stage::Todo, Stage::Todo);
        (observed.volumes, observed.network) = (Stage::Todo, Stage::Todo);
        observed.containers[0].image = Stage::Todo;
        observed.containers[1].image = Stage::Todo;
        let expected = [
            Step::Bind,
            Step::MakeSandbox,
            Step::PrepareVolumes,
            Step::Pull(0),
            Step::Pull(1),
        ];
        assert_eq!(plan(&observed), expected);
    }

    #[test]
    fn containers_start_after_network_is_joined() {
        let mut observed = ready(vec![main(Run::Absent)]);
        observed.network = Stage::Todo;
        assert_eq!(plan(&observed), [Step::JoinNetwork]);
        for stage in [Stage::Busy, Stage::Waiting] {
            observed.network = stage;
            assert_eq!(plan(&observed), []);
        }
        observed.network = Stage::Done;
        assert_eq!(plan(&observed), [Step::Start(0)]);
    }

    #[test]
    fn networks_of_a_running_pod_are_compared_once_it_has_joined() {
        let mut observed = ready(vec![main(Run::Running)]);
        observed.networks = Stage::Todo;
        assert_eq!(plan(&observed), [Step::UpdateNetworks]);
        for stage in [Stage::Busy, Stage::Waiting] {
            observed.networks = stage;
            assert_eq!(plan(&observed), []);
        }
        observed.networks = Stage::Todo;
        observed.network = Stage::Busy;
        assert_eq!(plan(&observed), []);
        // What is being made is not removed.
        let mut ended = ready(vec![main(Run::Succeeded)]);
        ended.networks = Stage::Busy;
        assert_eq!(plan(&ended), []);
    }

    #[test]
    fn containers_start_in_order() {
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
    fn container_is_handed_over_once() {
        let mut observed = ready(vec![main(Run::Absent)]);
        for stage in [Stage::Busy, Stage::Done, Stage::Waiting] {
            observed.containers[0].start = stage;
            assert_eq!(plan(&observed), []);
        }
    }

    #[test]
    fn finished_pod_is_stopped_and_keeps_its_files() {
        for containers in [
            vec![main(Run::Succeeded), main(Run::Failed)],
            vec![container(Role::Init, Run::Failed), main(Run::Absent)],
            vec![container(Role::Sidecar, Run::Running), main(Run::Succeeded)],
        ] {
            let mut observed = ready(containers);
            assert_eq!(plan(&observed), [Step::Stop]);
            observed.stop = Stage::Done;
            assert_eq!(plan(&observed), []);
            observed.containers.retain(|one| one.run != Run::Running);
            observed.sandbox = Stage::Todo;
            assert_eq!(plan(&observed), [Step::TearDown(Remains::Files)]);
            observed.remains = Remains::Files;
            assert_eq!(plan(&observed), []);
        }
    }

    #[test]
    fn deleted_pod_is_stopped_torn_down_reported_and_deleted() {
        let mut observed = ready(vec![main(Run::Running)]);
        observed.intent = Intent::Terminate;
        assert_eq!(plan(&observed), [Step::Stop]);
        observed.stop = Stage::Done;
        assert_eq!(plan(&observed), []);
        (observed.sandbox, observed.containers[0].run) = (Stage::Todo, Run::Succeeded);
        assert_eq!(plan(&observed), [Step::TearDown(Remains::Nothing)]);
        (observed.remains, observed.reported) = (Remains::Nothing, false);
        assert_eq!(plan(&observed), []);
        observed.reported = true;
        assert_eq!(plan(&observed), [Step::DeleteObject]);
        observed.intent = Intent::Remove;
        assert_eq!(plan(&observed), []);
    }

    #[test]
    fn deletion_waits_for_steps_in_flight() {
        let mut observed = ready(vec![main(Run::Absent)]);
        (observed.intent, observed.network) = (Intent::Terminate, Stage::Busy);
        assert_eq!(plan(&observed), []);
        (observed.network, observed.containers[0].start) = (Stage::Done, Stage::Busy);
        assert_eq!(plan(&observed), []);
        // An update of the volumes delays only their removal.
        (observed.refresh, observed.containers[0].start) = (Stage::Busy, Stage::Todo);
        assert_eq!(plan(&observed), [Step::Stop]);
        (observed.sandbox, observed.stop) = (Stage::Todo, Stage::Done);
        assert_eq!(plan(&observed), []);
        observed.refresh = Stage::Waiting;
        assert_eq!(plan(&observed), [Step::TearDown(Remains::Nothing)]);
    }

    #[test]
    fn orphaned_containers_get_a_supervisor_before_teardown() {
        let mut observed = ready(vec![main(Run::Running)]);
        (observed.intent, observed.sandbox) = (Intent::Remove, Stage::Todo);
        assert_eq!(plan(&observed), [Step::MakeSandbox]);
        // No supervisor starts: tear down by force.
        observed.sandbox = Stage::Waiting;
        assert_eq!(plan(&observed), [Step::TearDown(Remains::Nothing)]);
    }
}
