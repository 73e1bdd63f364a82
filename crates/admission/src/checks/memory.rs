//! Memory sizes, huge pages and quantities.

use cluster_config::Rollout;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{domain::ResourceRequirements, quantity::Amount};
use validation::Violation;

use super::input::{Input, Origin};

/// A smaller number of bytes is certainly a mistake for megabytes.
const MIN: u64 = 1_000_000;
/// Maximum of a quantity in the API.
const MAX: u64 = i64::MAX as u64;

/// Checks all quantities that define the size of a guest.
pub(super) fn quantities(input: &Input<'_>) -> Vec<Violation> {
    let memory = input.memory();
    let resources = input.spec.domain.resources.as_ref();
    let mut all: Vec<(String, &Quantity)> = Vec::new();
    let lists = resources.map(|resources| {
        [
            ("requests", &resources.requests),
            ("limits", &resources.limits),
        ]
    });
    for (list, values) in lists.into_iter().flatten() {
        let path = |name| format!("domain.resources.{list}.{name}");
        all.extend(values.iter().map(|(name, value)| (path(name), value)));
    }
    // If the guest size was copied from a request or limit, report only that one.
    let guest = memory.and_then(|memory| memory.guest.as_ref());
    let guest = guest.filter(|guest| all.iter().all(|(_, value)| value != guest));
    let max = memory.and_then(|memory| memory.max_guest.as_ref());
    all.extend(guest.map(|guest| ("domain.memory.guest".to_owned(), guest)));
    all.extend(max.map(|max| ("domain.memory.maxGuest".to_owned(), max)));
    all.into_iter()
        .filter_map(|(path, value)| problem(value).map(|problem| input.invalid(&path, problem)))
        .collect()
}

fn problem(quantity: &Quantity) -> Option<String> {
    match Amount::parse(quantity) {
        Err(error) => Some(error.to_string()),
        Ok(amount) if amount.is_negative() => Some(format!(
            "{} is negative; use a positive quantity",
            quantity.0
        )),
        Ok(amount) if amount > Amount::of(MAX) => {
            Some(format!("{} is too large; use at most 8Ei", quantity.0))
        }
        Ok(_) => None,
    }
}

pub(super) fn request(input: &Input<'_>) -> Vec<Violation> {
    let field = "domain.resources.requests.memory";
    let Some(request) = resource(input, |resources| &resources.requests, "memory") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if request > Amount::ZERO && request < Amount::of(MIN) {
        let detail = "less than a megabyte; write the unit, for example 128Mi";
        found.push(input.invalid(field, detail));
    }
    let limit = resource(input, |resources| &resources.limits, "memory");
    if limit.is_some_and(|limit| limit > Amount::ZERO && request > limit) {
        let detail = "above limits.memory; lower it or raise the limit";
        found.push(input.invalid(field, detail));
    }
    found
}

pub(super) fn guest(input: &Input<'_>) -> Vec<Violation> {
    let Some(quantity) = input.memory().and_then(|memory| memory.guest.as_ref()) else {
        return Vec::new();
    };
    let Some(guest) = amount(quantity) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let limit = resource(input, |resources| &resources.limits, "memory");
    if limit.is_some_and(|limit| guest > limit) && input.config.rollout != Rollout::LiveUpdate {
        let detail = "above resources.limits.memory; lower it or raise the limit";
        found.push(input.invalid("domain.memory.guest", detail));
    }
    let request = resource(input, |resources| &resources.requests, "memory");
    let is_reported = request == Some(guest);
    // Clients write zero for a size that is not set, such as that of an instance type with CPUs only.
    if guest > Amount::ZERO && guest < Amount::of(MIN) && !is_reported {
        let detail = "less than a megabyte; write the unit, for example 128Mi";
        found.push(input.invalid("domain.memory.guest", detail));
    }
    found
}

/// Only of a VMI: presets and webhooks may add the size to one that is made from a template.
pub(super) fn is_given(input: &Input<'_>) -> Vec<Violation> {
    if input.origin != Origin::Vmi {
        return Vec::new();
    }
    let memory = input.memory();
    let is_given = memory
        .is_some_and(|memory| memory.guest.is_some() || memory.hugepages.is_some())
        || (input.spec.domain.resources.as_ref())
            .is_some_and(|resources| resources.requests.contains_key("memory"));
    if is_given {
        return Vec::new();
    }
    let detail = "no memory size; set domain.memory.guest, for example to 1Gi";
    vec![input.required("domain.memory", detail)]
}

pub(super) fn hugepages(input: &Input<'_>) -> Vec<Violation> {
    let memory = input.memory();
    let Some(pages) = memory.and_then(|memory| memory.hugepages.as_ref()) else {
        return Vec::new();
    };
    let text = pages.page_size.clone().unwrap_or_default();
    let page = match Amount::parse(&Quantity(text.clone())) {
        Ok(page) if page > Amount::ZERO => page,
        Ok(_) => {
            let detail = "the page size must be positive; use 2Mi or 1Gi";
            return vec![input.invalid("domain.memory.hugepages.pageSize", detail)];
        }
        Err(error) => return vec![input.invalid("domain.memory.hugepages.pageSize", error)],
    };
    let guest = memory.and_then(|memory| amount(memory.guest.as_ref()?));
    let size = resource(input, |resources| &resources.requests, "memory")
        .or(guest)
        .or_else(|| resource(input, |resources| &resources.limits, "memory"));
    let Some(size) = size else { return Vec::new() };
    if size < page {
        let detail = format!("smaller than one huge page of {text}; use a multiple of {text}");
        return vec![input.invalid("domain.resources.requests.memory", detail)];
    }
    if !size.is_multiple_of(page.units()) {
        let detail = format!("not a multiple of the huge page size; use a multiple of {text}");
        return vec![input.invalid("domain.resources.requests.memory", detail)];
    }
    Vec::new()
}

pub(super) fn reserved_overhead(input: &Input<'_>) -> Vec<Violation> {
    let memory = input.memory();
    let is_given = memory.is_some_and(|memory| memory.reserved_overhead.is_some());
    let problem = input.needs_gate("domain.memory.reservedOverhead", "ReservedOverheadMemlock");
    problem.filter(|_| is_given).into_iter().collect()
}

/// A request or limit of the pod, if it is valid.
pub(super) fn resource(
    input: &Input<'_>,
    list: impl Fn(&ResourceRequirements) -> &std::collections::BTreeMap<String, Quantity>,
    name: &str,
) -> Option<Amount> {
    let resources = input.spec.domain.resources.as_ref()?;
    amount(list(resources).get(name)?)
}

/// A quantity that is valid by the check of quantities.
fn amount(quantity: &Quantity) -> Option<Amount> {
    let amount = Amount::parse(quantity).ok()?;
    (!amount.is_negative()).then_some(amount)
}
