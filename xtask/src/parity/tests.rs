use super::*;

/// Lines of the list of known gaps.
fn known() -> BTreeSet<String> {
    let text = fs::read_to_string(data().join(KNOWN)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_known_gaps_are_the_gaps() {
    let facts = read(None, None).unwrap();
    let report = compare(&facts, &[]).unwrap();
    let found: BTreeSet<String> = report.lines().into_iter().collect();
    let known = known();
    let new: Vec<_> = found.difference(&known).collect();
    let closed: Vec<_> = known.difference(&found).collect();
    assert!(
        new.is_empty() && closed.is_empty(),
        "new gaps: {new:#?}\nclosed, so take them out of {KNOWN} (cargo xtask parity \
         --write-known): {closed:#?}"
    );
}

const FIELDS: &str = "\
kubevirt.io/v1\tVirtualMachineInstance\t(inline)\tref:meta/v1.TypeMeta\tno\t\tmembers appear at this level
kubevirt.io/v1\tVirtualMachineInstance\tmetadata\tref:meta/v1.ObjectMeta\tno\t\t
kubevirt.io/v1\tVirtualMachineInstance\tspec\tref:VirtualMachineInstanceSpec\tyes\t\t
kubevirt.io/v1\tVirtualMachineInstance\tstatus\tref:VirtualMachineInstanceStatus\tno\t\t
kubevirt.io/v1\tVirtualMachineInstanceSpec\tdomain\tref:DomainSpec\tyes\t\t
kubevirt.io/v1\tVirtualMachineInstanceSpec\tFIELD
kubevirt.io/v1\tDomainSpec\tchassis\tref:Chassis\tno\t\t
kubevirt.io/v1\tChassis\tserial\tstring\tno\t\t
kubevirt.io/v1\tVirtualMachineInstanceStatus\tnodeName\tstring\tno\t\t
kubevirt.io/v1\tEvictionStrategy\t(alias)\tstring\t-\tNone|LiveMigrate|LiveMigrateIfPossible|External\t
";

/// Gaps of one row about a field of a VMI's spec, put into a small table.
fn gaps_of(row: &str) -> Vec<String> {
    let facts = Facts::parse(&FIELDS.replace("FIELD", row), KIND).unwrap();
    let report = compare(&facts, &[]).unwrap();
    let field = row.split('\t').next().unwrap();
    let about = report
        .gaps
        .iter()
        .filter(|gap| gap.field == format!("VirtualMachineInstanceSpec.{field}"));
    about.map(|gap| gap.what.clone()).collect()
}

const KIND: &str = "virtualmachineinstances.kubevirt.io\tkubevirt.io\tv1(storage), v1alpha3(deprecated)\tVirtualMachineInstance\tVirtualMachineInstanceList(default)\tvirtualmachineinstances\tvirtualmachineinstance\tvmi,vmis\tall\tNamespaced\t(unset=None)\t-\t- (none)\tkubevirt.io\n";

#[test]
fn a_row_that_differs_is_a_gap() {
    for (row, wanted) in [
        ("hostname\tstring\tno\t\t", &[][..]),
        ("hostname\tstring\tyes\t\t", &["is not required"]),
        (
            "hostname\tint64\tno\t\t",
            &["type is string, not integer", "type is string, not integer"],
        ),
        ("hostnames\tstring\tno\t\t", &["missing", "missing"]),
        ("hostname\tstring\tno\t\tnullable", &["lacks nullable"]),
        ("terminationGracePeriodSeconds\tint64\tno\t\t", &[]),
        (
            "terminationGracePeriodSeconds\tuint32\tno\t\t",
            &["format is \"int64\", not uint32"],
        ),
        (
            "evictionStrategy\talias:EvictionStrategy=string\tno\t\t",
            &[],
        ),
        ("tolerations\tarray<ref:core/v1.Toleration>\tno\t\t", &[]),
        (
            "tolerations\tmap<string,string>\tno\t\t",
            &["type is array, not object", "type is array, not object"],
        ),
        ("nodeSelector\tmap<string,string>\tno\t\t", &[]),
        (
            "nodeSelector\tmap<string,Quantity>\tno\t\t",
            &["is not a quantity", "is not a quantity"],
        ),
    ] {
        assert_eq!(gaps_of(row), wanted, "{row}");
    }
}

#[test]
fn fields_that_no_row_tells_of_are_shown() {
    let facts = Facts::parse(&FIELDS.replace("FIELD", "hostname\tstring\tno\t\t"), KIND).unwrap();
    let report = compare(&facts, &[]).unwrap();
    let line =
        "kubevirt.io/v1 VirtualMachineInstanceSpec.volumes (definition): is not in the table";
    assert!(report.lines().iter().any(|one| one == line));
}

#[test]
fn a_definition_that_differs_is_told_by_what_differs() {
    let facts = Facts::parse(
        "",
        &KIND.replace("vmi,vmis", "vmi").replace("v1alpha3", "v2"),
    )
    .unwrap();
    let report = compare(&facts, &[]).unwrap();
    let lines = report.lines().join("\n");
    for wanted in [
        "short names are [\"vmi\", \"vmis\"], not [\"vmi\"]",
        "version \"v1alpha3\" is not in the table",
        "version v2 is missing",
        "version v1: columns are",
    ] {
        assert!(lines.contains(wanted), "{wanted} in {lines}");
    }
    assert_eq!((report.kinds.good, report.kinds.all), (0, 1));
}

#[test]
fn an_unknown_group_is_refused() {
    let facts = read(None, None).unwrap();
    assert!(compare(&facts, &["example.com".to_owned()]).is_err());
}
