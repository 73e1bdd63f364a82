//! A guest that counts on its console, and the look for gaps in its count: whoever stops it, even for
//! a moment in which it is made anew, is found out.

use serde_json::Value;

use crate::{Home, Story, eventually, machine};

/// How often something is killed, unless the environment says otherwise.
pub fn rounds() -> u32 {
    let given = std::env::var("FERROVIRT_STORY_ROUNDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// Starts a guest that counts; its instance.
pub async fn counting<H: Home>(story: &Story<H>, name: &str) -> Value {
    story.apply(&machine(name)).await;
    let mut console = story.shell(name).await;
    console.send("count\n").await;
    console.expect("count 3").await;
    story.vmi_is(name, "Running").await
}

/// Waits until the guest has counted on from where it is now, then looks for gaps.
pub async fn counts_on<H: Home>(story: &Story<H>, vmi: &Value) {
    let before = counted(story, vmi).last().copied().unwrap_or(0);
    let numbers = eventually("counting", || {
        let numbers = counted(story, vmi);
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

/// The numbers that the guest has counted on its console.
fn counted<H: Home>(story: &Story<H>, vmi: &Value) -> Vec<u32> {
    let log = story.serial_log(vmi);
    let number = |line: &str| line.trim().strip_prefix("count ")?.parse().ok();
    // The last line may be half written.
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    whole.lines().filter_map(number).collect()
}
