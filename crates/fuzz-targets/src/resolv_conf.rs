//! The pod's `/etc/resolv.conf`: there is always a name server, and no domain of the search list is empty.

// A file of the crate is included, as its functions are private.
#[path = "../../net-plan/src/resolv_conf.rs"]
#[expect(clippy::module_inception, reason = "the name of the included file")]
mod resolv_conf;

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(!resolv_conf::name_servers(&text).is_empty());
    for subdomain in [None, Some(""), Some("web")] {
        let list = resolv_conf::search(&text, "default", subdomain);
        assert!(list.iter().all(|domain| !domain.is_empty()), "{list:?}");
    }
}
