use super::super::{answer::tests::settings, options::TEMPORARY_ASSOCIATION};
use super::*;

const NAME: &[u8] = &[0, 4, 7, 7, 7];
const OURS: &str = "fd10:0:2::2";
const WRONG: &str = "fd10:0:2::3";

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let mut options = Options::new(2000);
    options.push(code, value);
    options.finish()
}

fn client() -> Vec<u8> {
    option(CLIENT, NAME)
}

fn this_server() -> Vec<u8> {
    option(SERVER, &identifier(&settings()))
}

fn other_server() -> Vec<u8> {
    option(SERVER, &[0, 3, 0, 1, 2, 0, 0, 0, 0, 9])
}

/// An association with these addresses.
fn association(code: u16, id: u8, addresses: &[&str]) -> Vec<u8> {
    let mut value = vec![0, 0, 0, id];
    if code != TEMPORARY_ASSOCIATION {
        value.extend([0; 8]);
    }
    for address in addresses {
        let address: Ipv6Addr = address.parse().unwrap();
        value.extend(option(ADDRESS, &[&address.octets()[..], &[0; 8]].concat()));
    }
    option(code, &value)
}

fn wants(addresses: &[&str]) -> Vec<u8> {
    association(ADDRESS_ASSOCIATION, 1, addresses)
}

fn message(kind: u8, options: &[Vec<u8>]) -> Vec<u8> {
    [vec![kind, 7, 8, 9], options.concat()].concat()
}

/// The options of a reply in words, without those of every reply.
fn described(reply: &[u8]) -> String {
    let mut words = vec![format!("{}", reply[0])];
    assert_eq!(reply[1..4], [7, 8, 9]);
    describe(&reply[4..], &mut words);
    words.join(" ")
}

fn describe(mut bytes: &[u8], words: &mut Vec<String>) {
    while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
        let code = u16::from_be_bytes([head[0], head[1]]);
        let (value, rest) = rest.split_at(usize::from(u16::from_be_bytes([head[2], head[3]])));
        bytes = rest;
        match code {
            CLIENT => assert_eq!(value, NAME),
            SERVER => assert_eq!(value, identifier(&settings())),
            ADDRESS_ASSOCIATION | PREFIX_ASSOCIATION | TEMPORARY_ASSOCIATION => {
                let head = if code == TEMPORARY_ASSOCIATION { 4 } else { 12 };
                words.push(format!("[{code}:{}", value[3]));
                describe(&value[head..], words);
                words.push("]".to_owned());
            }
            ADDRESS => {
                let address = Ipv6Addr::from(*value.first_chunk::<16>().unwrap());
                assert_eq!(value[16..20], value[20..24]);
                let time = u32::from_be_bytes(*value[20..].first_chunk().unwrap());
                words.push(format!("{address} for {time}"));
            }
            STATUS => words.push(format!("status {}", value[1])),
            PREFERENCE => words.push(format!("preference {}", value[0])),
            RAPID_COMMIT => words.push("rapid".to_owned()),
            NAME_SERVERS => {
                let address = Ipv6Addr::from(*value.first_chunk::<16>().unwrap());
                words.push(format!("dns {address}"));
            }
            DOMAINS => {
                assert_eq!(value, b"\x07default\x03svc\x05local\0");
                words.push("domains".to_owned());
            }
            _ => panic!("option {code}"),
        }
    }
}

const LEASE: &str = "[3:1 fd10:0:2::2 for 86313600 ] dns fd00::a domains";

/// Checks the reply to a message with these options.
fn check(kind: u8, options: &[Vec<u8>], expected: Option<&str>) {
    let reply = reply_to(&message(kind, options), &settings());
    assert_eq!(
        reply.as_deref().map(described).as_deref(),
        expected,
        "{kind} {options:?}"
    );
}

#[test]
fn guest_gets_its_lease_and_renews_it() {
    let leased = format!("7 {LEASE}");
    let (ours, any) = (wants(&[OURS]), wants(&[]));
    let offer = format!("2 preference 255 {LEASE}");
    check(SOLICIT, &[client(), any.clone()], Some(&offer));
    let rapid = option(RAPID_COMMIT, &[]);
    let at_once = format!("7 rapid {LEASE}");
    check(SOLICIT, &[client(), rapid, any.clone()], Some(&at_once));
    for kind in [REQUEST, RENEW] {
        let to_this = [client(), this_server(), ours.clone()];
        check(kind, &to_this, Some(&leased));
        check(kind, &[client(), other_server(), any.clone()], None);
        check(kind, &[client(), ours.clone()], None);
    }
    check(REBIND, &[client(), ours.clone()], Some(&leased));
    // These are for all servers.
    for kind in [SOLICIT, REBIND, CONFIRM] {
        check(kind, &[client(), this_server(), ours.clone()], None);
    }
    check(REPLY, &[client(), this_server(), ours.clone()], None);
    // Only a client with an identifier gets a lease.
    for kind in [SOLICIT, REQUEST, CONFIRM, RENEW, REBIND, RELEASE, DECLINE] {
        check(kind, &[this_server(), ours.clone()], None);
        check(kind, std::slice::from_ref(&ours), None);
    }
}

#[test]
fn guest_learns_whether_its_address_is_still_right() {
    let status = |code: u16| format!("7 status {code}");
    for (addresses, expected) in [
        (&[OURS][..], Some(status(SUCCESS))),
        (&[OURS, WRONG], Some(status(NOT_ON_LINK))),
        (&[WRONG], Some(status(NOT_ON_LINK))),
        (&[], None),
    ] {
        check(CONFIRM, &[client(), wants(addresses)], expected.as_deref());
    }
    for kind in [RELEASE, DECLINE] {
        let given_up = [client(), this_server(), wants(&[OURS])];
        check(kind, &given_up, Some(&status(SUCCESS)));
        check(kind, &[client(), other_server(), wants(&[OURS])], None);
    }
}

#[test]
fn settings_are_for_everybody_without_a_lease() {
    let settings = Some("7 dns fd00::a domains");
    check(INFORMATION_REQUEST, &[client()], settings);
    check(INFORMATION_REQUEST, &[], settings);
    check(INFORMATION_REQUEST, &[this_server()], settings);
    check(INFORMATION_REQUEST, &[other_server()], None);
    check(INFORMATION_REQUEST, &[client(), wants(&[])], None);
}

#[test]
fn guest_has_one_address_and_no_prefix() {
    let options = [
        client(),
        association(TEMPORARY_ASSOCIATION, 2, &[]),
        wants(&[WRONG]),
        association(ADDRESS_ASSOCIATION, 3, &[OURS]),
        association(PREFIX_ASSOCIATION, 4, &[]),
    ];
    let reply = reply_to(&message(REBIND, &options), &settings()).unwrap();
    assert_eq!(
        described(&reply),
        "7 [4:2 status 2 ] [3:1 fd10:0:2::2 for 86313600 fd10:0:2::3 for 0 ] [3:3 status 2 ] \
         [25:4 status 6 ] dns fd00::a domains"
    );
}

#[test]
fn longest_reply_fits_into_a_packet() {
    let mut settings = settings();
    settings.dns = vec![Ipv6Addr::LOCALHOST; 100];
    settings.search = vec!["x".repeat(60); 100];
    let name = option(CLIENT, &[7; 130]);
    let many = association(ADDRESS_ASSOCIATION, 1, &[WRONG; 9]);
    let options = [vec![name], vec![many; 9]].concat();
    let reply = reply_to(&message(SOLICIT, &options), &settings).unwrap();
    assert!(reply.len() <= MAX_MESSAGE, "{}", reply.len());
}
