//! A guest that counts on its console. A gap in the count shows that the guest was interrupted or
//! restarted.

use serde_json::Value;

use crate::{Environment, TestNamespace, eventually, tiny_vm};

/// How often a test kills its target; `FERROVIRT_E2E_ROUNDS` overrides it.
pub fn rounds() -> u32 {
    let given = std::env::var("FERROVIRT_E2E_ROUNDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// Starts a counting guest and returns its VMI.
pub async fn start_counting<H: Environment>(test: &TestNamespace<H>, name: &str) -> Value {
    test.apply(&tiny_vm(name)).await;
    let mut console = test.shell(name).await;
    console.send("count\n").await;
    console.expect("count 3").await;
    test.wait_vmi_phase(name, "Running").await
}

/// Waits until the guest has counted further, then checks for gaps.
pub async fn keeps_counting<H: Environment>(test: &TestNamespace<H>, vmi: &Value) {
    let before = counted(test, vmi).last().copied().unwrap_or(0);
    let numbers = eventually("counting", || {
        let numbers = counted(test, vmi);
        let last = numbers.last().copied().unwrap_or(0);
        if last >= before + 5 {
            Ok(numbers)
        } else {
            Err((before, last))
        }
    })
    .await;
    for pair in numbers.windows(2) {
        assert_eq!(pair[0] + 1, pair[1], "the count has a gap");
    }
}

/// The numbers on the guest's console.
fn counted<H: Environment>(test: &TestNamespace<H>, vmi: &Value) -> Vec<u32> {
    let log = test.serial_log(vmi);
    let number = |line: &str| line.trim().strip_prefix("count ")?.parse().ok();
    // The last line may be incomplete.
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    whole.lines().filter_map(number).collect()
}
