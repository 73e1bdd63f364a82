//! The domain that sidecars get, and the check of the one that they answer with. Pure.

use libvirt::DomainUuid;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::error::{DomainProblem, shown};

/// The largest domain, of some hundred times the usual size.
const MAX_DOMAIN: usize = 1 << 20;
const MAX_DEPTH: usize = 64;

/// The names by which libvirt and the launcher know the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) uuid: String,
}

/// The domain with the empty element that scripts for `KubeVirt` replace by a base board.
pub(super) fn for_hooks(xml: &str) -> String {
    const BOARD: &str = "<baseBoard></baseBoard>";
    const END: &str = "</sysinfo>";
    match xml.split_once(END) {
        Some((head, tail)) if !xml.contains("<baseBoard") => format!("{head}{BOARD}{END}{tail}"),
        _ => xml.to_owned(),
    }
}

/// The text of an answer, if it is a well-formed domain with this identity. What the domain has besides is the
/// tenant's business: QEMU and libvirtd run it in the tenant's pod.
pub(super) fn check(answer: Vec<u8>, identity: &Identity) -> Result<String, DomainProblem> {
    if answer.len() > MAX_DOMAIN {
        return Err(DomainProblem::TooLarge {
            length: answer.len(),
            limit: MAX_DOMAIN,
        });
    }
    let text = String::from_utf8(answer).map_err(|_| DomainProblem::NotText)?;
    if text.trim().is_empty() {
        return Err(DomainProblem::Empty);
    }
    let found = read(&text)?;
    if found.name != [identity.name.as_str()] {
        return Err(other("name", &found.name, &identity.name));
    }
    let uuid = match found.uuid.as_slice() {
        [uuid] => DomainUuid::parse(uuid.trim()),
        _ => None,
    };
    if uuid.is_none() || uuid != DomainUuid::parse(&identity.uuid) {
        return Err(other("uuid", &found.uuid, &identity.uuid));
    }
    Ok(text)
}

fn other(element: &'static str, found: &[String], expected: &str) -> DomainProblem {
    DomainProblem::Identity {
        element,
        found: shown(&found.join(", ")),
        expected: expected.to_owned(),
    }
}

/// The texts of the elements that identify a domain.
#[derive(Debug, Default)]
struct Found {
    name: Vec<String>,
    uuid: Vec<String>,
}

impl Found {
    fn at(&mut self, path: &[String]) -> Option<&mut Vec<String>> {
        match path {
            [_domain, element] if element == "name" => Some(&mut self.name),
            [_domain, element] if element == "uuid" => Some(&mut self.uuid),
            _ => None,
        }
    }
}

fn read(text: &str) -> Result<Found, DomainProblem> {
    let malformed =
        |error: &dyn std::error::Error| DomainProblem::Malformed(shown(&error.to_string()));
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut found = Found::default();
    let mut path: Vec<String> = Vec::new();
    let mut roots = 0;
    loop {
        match reader.read_event().map_err(|error| malformed(&error))? {
            Event::Start(tag) => {
                for attribute in tag.attributes() {
                    attribute.map_err(|error| malformed(&error))?;
                }
                let name = tag.name().as_ref().to_owned();
                if path.is_empty() {
                    roots += 1;
                    if name != "domain" || roots > 1 {
                        return Err(DomainProblem::Root);
                    }
                }
                path.push(name);
                if path.len() > MAX_DEPTH {
                    return Err(DomainProblem::TooDeep(MAX_DEPTH));
                }
                if let Some(texts) = found.at(&path) {
                    texts.push(String::new());
                }
            }
            Event::End(_) => {
                path.pop();
            }
            Event::Text(part) => {
                if let Some(last) = found.at(&path).and_then(|texts| texts.last_mut()) {
                    last.push_str(&part.xml10_content());
                } else if path.is_empty() && !part.xml10_content().trim().is_empty() {
                    return Err(DomainProblem::Root);
                }
            }
            Event::DocType(_) => return Err(DomainProblem::DocumentType),
            Event::Decl(declaration) => {
                // Another encoding would be read differently by libvirt.
                let encoding = declaration.encoding().transpose();
                let encoding = encoding.map_err(|error| malformed(&error))?;
                if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case("utf-8")) {
                    return Err(DomainProblem::NotText);
                }
            }
            // An identity is plain text; elsewhere libvirt knows only the five entities of XML.
            Event::CData(_) | Event::GeneralRef(_) if found.at(&path).is_some() => {
                if let Some(last) = found.at(&path).and_then(|texts| texts.last_mut()) {
                    last.push('&');
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    if roots == 1 && path.is_empty() {
        Ok(found)
    } else {
        Err(DomainProblem::Root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "69a61d3f-50cc-4611-b6e2-e53205a02bad";

    fn identity() -> Identity {
        Identity {
            name: "n_a".to_owned(),
            uuid: UUID.to_owned(),
        }
    }

    fn domain(inside: &str) -> String {
        format!("<domain type='kvm'><name>n_a</name><uuid>{UUID}</uuid>{inside}</domain>")
    }

    #[test]
    fn changed_domain_of_the_same_guest_is_accepted() {
        for accepted in [
            domain(""),
            format!(
                "<?xml version='1.0' encoding='UTF-8'?>\n{}\n",
                domain("<os/>")
            ),
            domain("<description>a &amp; b</description><!-- <name>x</name> -->"),
            domain("<devices><emulator>/var/run/tools/qemu</emulator></devices>"),
            domain("<metadata><name>other</name></metadata>"),
            domain("").replace(UUID, &format!("\n  {UUID}\n")),
        ] {
            assert_eq!(
                check(accepted.clone().into_bytes(), &identity()),
                Ok(accepted)
            );
        }
    }

    #[test]
    fn anything_else_is_refused_with_its_problem() {
        let deep = "<a>".repeat(MAX_DEPTH) + &"</a>".repeat(MAX_DEPTH);
        let bomb = format!(
            "<!DOCTYPE d [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]>{}",
            domain("<description>&b;</description>")
        );
        let file = format!(
            "<!DOCTYPE d [<!ENTITY f SYSTEM \"file:///etc/passwd\">]>{}",
            domain("&f;")
        );
        for (answer, expected) in [
            (String::new(), "it is empty"),
            ("Traceback (most recent call last)".to_owned(), "root"),
            ("<domain>".to_owned(), "root"),
            ("<domain></other>".to_owned(), "no XML"),
            (domain("<os a=1/>"), "no XML"),
            ("<qemu/>".to_owned(), "root"),
            (domain("") + &domain(""), "root"),
            (domain("") + "trailing", "root"),
            (domain(&deep), "nested"),
            (bomb, "document type"),
            (file, "document type"),
            (domain("").replace("n_a", "n_a "), "its name is"),
            (
                domain("").replace("n_a", "n_b"),
                "its name is \"n_b\" instead of \"n_a\"",
            ),
            (domain("<name>n_b</name>"), "its name is \"n_a, n_b\""),
            (domain("").replace("n_a", "n&#95;a"), "its name is"),
            (domain("").replace("n_a", "<![CDATA[n_a]]>"), "its name is"),
            (
                domain("")
                    .replace("<uuid>", "<u>")
                    .replace("</uuid>", "</u>"),
                "its uuid is \"\"",
            ),
            (domain("").replace("69a6", "79a6"), "its uuid is"),
            (
                format!("<?xml version='1.0' encoding='UTF-7'?>{}", domain("")),
                "UTF-8",
            ),
            (domain(&" ".repeat(MAX_DOMAIN)), "more than"),
        ] {
            let start: String = answer.chars().take(300).collect();
            let problem = check(answer.into_bytes(), &identity()).expect_err(&start);
            assert!(problem.to_string().contains(expected), "{start}: {problem}");
        }
        assert_eq!(
            check(vec![0xff, 0xfe], &identity()),
            Err(DomainProblem::NotText)
        );
    }

    #[test]
    fn scripts_for_kubevirt_find_an_empty_base_board() {
        let with = "<sysinfo type=\"smbios\"><system/></sysinfo>";
        let expected = "<sysinfo type=\"smbios\"><system/><baseBoard></baseBoard></sysinfo>";
        assert_eq!(for_hooks(with), expected);
        for same in [expected, "<domain/>"] {
            assert_eq!(for_hooks(same), same);
        }
    }
}
