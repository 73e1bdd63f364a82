//! Responses of the QEMU guest agent: any input becomes a small and harmless value.

// The parser is private to the launcher, so its file is included.
#[path = "../../virt-launcher/src/agent/responses.rs"]
mod responses;

const MOST: usize = 64;

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(users) = responses::users(&text) {
        assert!(users.len() <= MOST);
        users.iter().for_each(|user| check(&user.name));
    }
    if let Ok(all) = responses::file_systems(&text) {
        assert!(all.len() <= MOST && all.iter().all(|one| one.disks.len() <= MOST));
        all.iter().for_each(|one| check(&one.mount_point));
    }
    if let Ok(all) = responses::interfaces(&text) {
        assert!(all.len() <= MOST && all.iter().all(|one| one.addresses.len() <= MOST));
        all.iter().for_each(|one| check(&one.name));
    }
    if let Ok((version, commands)) = responses::info(&text) {
        version.iter().for_each(|text| check(text));
        commands.iter().for_each(|command| check(&command.name));
    }
    if let Ok(os) = responses::os(&text) {
        os.pretty_name.iter().for_each(|text| check(text));
    }
    for text in [responses::host_name(&text), responses::freeze(&text)] {
        text.iter().flatten().for_each(|text| check(text));
    }
    responses::done(&text).ok();
    // A name and a number.
    let zone = responses::timezone(&text).ok().flatten();
    assert!(zone.is_none_or(|zone| zone.chars().count() <= 256 + 22));
}

fn check(text: &str) {
    assert!(text.chars().count() <= 256);
    assert!(!text.contains(char::is_control));
}
