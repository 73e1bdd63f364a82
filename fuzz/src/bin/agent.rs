//! Answers of a guest's agent: whatever it says becomes small and harmless.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The launcher is a program; its parser is taken as it lies there.
#[path = "../../../crates/virt-launcher/src/agent/answers.rs"]
mod answers;

const MOST: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(users) = answers::users(&text) {
        assert!(users.len() <= MOST);
        users.iter().for_each(|user| check(&user.name));
    }
    if let Ok(all) = answers::file_systems(&text) {
        assert!(all.len() <= MOST && all.iter().all(|one| one.disks.len() <= MOST));
        all.iter().for_each(|one| check(&one.mount_point));
    }
    if let Ok(all) = answers::interfaces(&text) {
        assert!(all.len() <= MOST && all.iter().all(|one| one.addresses.len() <= MOST));
        all.iter().for_each(|one| check(&one.name));
    }
    if let Ok((version, commands)) = answers::info(&text) {
        version.iter().for_each(|text| check(text));
        commands.iter().for_each(|command| check(&command.name));
    }
    if let Ok(os) = answers::os(&text) {
        os.pretty_name.iter().for_each(|text| check(text));
    }
    for text in [answers::host_name(&text), answers::freeze(&text)] {
        text.iter().flatten().for_each(|text| check(text));
    }
    // A name and a number.
    let zone = answers::timezone(&text).ok().flatten();
    assert!(zone.is_none_or(|zone| zone.chars().count() <= 256 + 22));
});

fn check(text: &str) {
    assert!(text.chars().count() <= 256);
    assert!(!text.contains(char::is_control));
}
