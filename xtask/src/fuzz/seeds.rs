//! The first inputs of the fuzz targets, and words that libFuzzer combines.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result};
use image_store::Digest;
use kubevirt_api::crds;
use serde_json::Value;

use crate::workspace::root;

/// Writes seeds in the form that the target reads.
pub(super) fn plant(target: &str, corpus: &Path) -> Result<()> {
    for seed in seeds_of(target)? {
        let name = Digest::of(&seed).to_string().replace(':', "-");
        fs::write(corpus.join(name), seed).context("write a seed")?;
    }
    Ok(())
}

pub(super) fn seeds_of(target: &str) -> Result<Vec<Vec<u8>>> {
    Ok(match target {
        "path" => {
            vec![b"/apis/kubevirt.io/v1/watch/namespaces/n/virtualmachines/a%2eb/status".to_vec()]
        }
        "apply" | "patch" | "schema" => pairs()?,
        "answer" => vec![REPLIES.to_vec()],
        "dhcp" => dhcp_requests(),
        "ipv6" => ipv6_frames(),
        "dns" => DNS_MESSAGES.map(<[u8]>::to_vec).to_vec(),
        "import" => import_inputs(),
        "jwt" => vec![TOKEN.to_vec()],
        "layer" => vec![layers()?],
        "manifest" => DOCUMENTS.map(<[u8]>::to_vec).to_vec(),
        "protobuf" => vec![NAMESPACE_IN_PROTOBUF.to_vec()],
        "resolv_conf" => vec![RESOLV_CONF.to_vec()],
        "spdy" => vec![PORT_FORWARD_IN_SPDY.to_vec()],
        "websocket" => vec![EXEC_OVER_WEBSOCKET.to_vec()],
        _ => objects(target)?,
    })
}

/// Two objects of the examples after each other, as arrays.
fn pairs() -> Result<Vec<Vec<u8>>> {
    let all = objects("")?;
    let pairs = all.windows(2).filter_map(|pair| match pair {
        [one, other] => Some([b"[", &one[..], b",", other, b"]"].concat()),
        _ => None,
    });
    Ok(pairs.collect())
}

/// The objects of the examples, in the form that the target reads.
fn objects(target: &str) -> Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    let directory = root().join("examples");
    let files =
        fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))?;
    for entry in files {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("understand {}", path.display()))?;
        for document in documents {
            let json = serde_json::to_vec(&document)?;
            let yaml = serde_saphyr::to_string(&document)?;
            match target {
                "decode" => seeds.extend([prefixed(0, &json), prefixed(1, yaml.as_bytes())]),
                _ => seeds.push(json),
            }
        }
    }
    Ok(seeds)
}

/// The body of `kubectl create namespace n`.
const NAMESPACE_IN_PROTOBUF: &[u8] =
    b"k8s\0\n\x0f\n\x02v1\x12\tNamespace\x12\x0d\n\x07\n\x01nB\0\x12\0\x12\0\x1a\0";

/// In pieces of seven bytes: a stream with one header (`a` is `b`), its data, its end.
const PORT_FORWARD_IN_SPDY: &[u8] = b"\x07\
    \x80\x03\0\x01\0\0\0\x28\0\0\0\x01\0\0\0\0\0\0\
    \x78\xf9\xe3\xc6\xa7\xc2\0\x0e\0\xf1\xff\0\0\0\x01\0\0\0\x01a\0\0\0\x01b\
    \0\0\0\xff\xff\
    \0\0\0\x01\0\0\0\x03abc\0\0\0\x01\x01\0\0\0";

/// A query for `web.n.svc.cluster.local` with EDNS, and the response to one for `a` by an alias.
const DNS_MESSAGES: [&[u8]; 2] = [
    b"\xab\xcd\x01\0\0\x01\0\0\0\0\0\x01\
      \x03web\x01n\x03svc\x07cluster\x05local\0\0\x01\0\x01\
      \0\0\x29\x04\xd0\0\0\0\0\0\0",
    b"\0\x07\x81\x80\0\x01\0\x02\0\0\0\0\x01a\0\0\x01\0\x01\
      \xc0\x0c\0\x05\0\x01\0\0\0\x05\0\x03\x01b\0\
      \xc0\x1f\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x01",
];

/// In pieces of seven bytes: input in binary and in base64, in two frames a resize of the terminal, a ping
/// and the end.
const EXEC_OVER_WEBSOCKET: &[u8] = b"\x07\
    \x82\x83\0\0\0\0\0hi\
    \x81\x85\0\0\0\x000aGk=\
    \x02\x82\0\0\0\0\x04{\
    \x80\x95\0\0\0\0\"Width\":9,\"Height\":9}\
    \x89\x80\0\0\0\0\
    \x88\x82\0\0\0\0\x03\xe8";

/// To the first request two parts of a picture, to the second a refusal.
const REPLIES: &[u8] = b"\
    0{\"part\":{\"mediaType\":\"image/png\",\"data\":\"iVBO\",\"more\":true}}\n\
    1{\"refused\":{\"reason\":\"GuestNotRunning\",\"message\":\"no guest\",\"retry\":true}}\n\
    0{\"part\":{\"mediaType\":\"image/png\",\"data\":\"Rw==\",\"more\":false}}\n";

/// `{"alg":"ES256"}`, `{"sub":"a"}` and a signature.
const TOKEN: &[u8] = b"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.AAAA";

const RESOLV_CONF: &[u8] = b"# a node wrote this\nnameserver 10.96.0.10\nnameserver fd00::a\n\
    search default.svc.cluster.local svc.cluster.local example.\noptions ndots:5\n";

/// An index, a manifest, and a configuration with its users.
const DOCUMENTS: [&[u8]; 3] = [
    br#"{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",
        "digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":2,
        "platform":{"architecture":"amd64","os":"linux"}}]}"#,
    br#"{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json",
        "digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":2},
        "layers":[]}"#,
    b"{\"config\":{\"User\":\"qemu:kvm\",\"Env\":null}}\0qemu:x:107:107::/:/sbin/nologin\nkvm:x:36:\n",
];

/// Headers of a file and of its second part; the magic bytes of a compressed file; an image.
fn import_inputs() -> Vec<Vec<u8>> {
    let headers =
        b"content-length: 100\netag: \"a\"\n\ncontent-range: bytes 7-99/100\netag: \"a\"\n";
    let mut image = vec![0; 2048];
    for (at, bytes) in [
        (0, &b"QFI\xfb\0\0\0\x03"[..]),
        (20, &[0, 0, 0, 9]),
        (36, &[0, 0, 0, 1]),
        (46, &[2]),
        (100, &[0, 0, 0, 104]),
    ] {
        image[at..at + bytes.len()].copy_from_slice(bytes);
    }
    // Its only cluster.
    image[512 + 6] = 4;
    vec![
        prefixed(0, headers),
        prefixed(
            1,
            b"\x05\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x04\0\x43\xbe\xb7\xe8\x01\0\0\0",
        ),
        prefixed(2, &image),
    ]
}

/// Discover, request and inform of the client that the target serves.
fn dhcp_requests() -> Vec<Vec<u8>> {
    let request = |kind: u8| {
        let mut packet = vec![0; 240];
        packet[..3].copy_from_slice(&[1, 1, 6]);
        packet[28..34].copy_from_slice(&[2, 0, 0, 1, 2, 3]);
        packet[236..].copy_from_slice(&[99, 130, 83, 99]);
        packet.extend([53, 1, kind, 50, 4, 10, 0, 2, 2, 57, 2, 5, 220, 255]);
        packet
    };
    [1, 3, 8].map(request).to_vec()
}

/// A router solicitation and a solicitation of `DHCPv6`, with their checksums, and more messages without frames.
fn ipv6_frames() -> Vec<Vec<u8>> {
    let message = |kind: u8, server: &[u8]| {
        let head = [kind, 7, 8, 9];
        let options = [
            0, 1, 0, 4, 0, 3, 0, 1, 0, 3, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        [&head[..], &options, server].concat()
    };
    let frame = |protocol: u8, to: [u8; 4], payload: &[u8]| {
        let mut frame = vec![0; 54];
        frame[6..12].copy_from_slice(&[2, 0, 0, 1, 2, 3]);
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[18..20].copy_from_slice(&[0, u8::try_from(payload.len()).unwrap_or(u8::MAX)]);
        frame[20..24].copy_from_slice(&[protocol, 255, 0xfe, 0x80]);
        frame[37] = 1;
        frame[38..40].copy_from_slice(&[0xff, 2]);
        frame[50..54].copy_from_slice(&to);
        [&frame, payload].concat()
    };
    let solicit = [&[2, 0x22, 2, 0x23, 0, 36, 0xf4, 0xb0][..], &message(1, &[])].concat();
    let server = [0, 2, 0, 10, 0, 3, 0, 1, 0x82, 0, 0, 1, 2, 3];
    vec![
        frame(58, [0, 0, 0, 2], &[133, 0, 0x7d, 0x36, 0, 0, 0, 0]),
        frame(17, [0, 1, 0, 2], &solicit),
        [&[0], &message(3, &server)[..]].concat(),
        [&[0], &message(6, &[])[..]].concat(),
        [&[0], &message(8, &server)[..]].concat(),
    ]
}

/// A layer with a file, a link and a directory, and one that hides the file.
fn layers() -> Result<Vec<u8>> {
    let lower = archive(&[("etc/", ""), ("etc/name", "guest"), ("etc/link", "->name")])?;
    let upper = archive(&[("etc/.wh.name", ""), ("etc/other", "text")])?;
    let length = u16::try_from(lower.len()).context("a small layer")?;
    Ok([&length.to_be_bytes()[..], &lower, &upper].concat())
}

/// A tar archive: names that end in a slash are directories, contents after an arrow targets.
fn archive(entries: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut out = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o755);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        if let Some(target) = content.strip_prefix("->") {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            out.append_link(&mut header, name, target)?;
        } else if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            out.append_data(&mut header, name, std::io::empty())?;
        } else {
            header.set_size(u64::try_from(content.len())?);
            out.append_data(&mut header, name, content.as_bytes())?;
        }
    }
    Ok(out.into_inner()?)
}

fn prefixed(first: u8, rest: &[u8]) -> Vec<u8> {
    [&[first], rest].concat()
}

/// Field names and enum values as a libFuzzer dictionary.
pub(super) fn dictionary() -> Result<String> {
    let mut words = BTreeSet::new();
    for (name, text) in crds::ALL {
        let definition: Value =
            serde_saphyr::from_str(text).with_context(|| format!("read {name}"))?;
        collect(&definition["spec"]["versions"][0]["schema"], &mut words);
        for key in ["kind", "plural"] {
            words.extend(definition["spec"]["names"][key].as_str().map(str::to_owned));
        }
    }
    let lines = words
        .iter()
        .filter(|word| word.len() > 1 && word.len() < 60);
    let lines: Vec<String> = lines.map(|word| format!("\"{word}\"\n")).collect();
    Ok(lines.concat())
}

fn collect(schema: &Value, words: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                if key == "properties" {
                    words.extend(
                        value
                            .as_object()
                            .into_iter()
                            .flatten()
                            .map(|(name, _)| name.clone()),
                    );
                }
                if key == "enum" {
                    let listed = value.as_array().into_iter().flatten();
                    words.extend(listed.filter_map(Value::as_str).map(str::to_owned));
                }
                collect(value, words);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_seed_is_two_archives() {
        let seed = layers().unwrap();
        let (length, rest) = seed.split_first_chunk::<2>().unwrap();
        let (lower, upper) = rest.split_at(usize::from(u16::from_be_bytes(*length)));
        let count = |bytes: &[u8]| tar::Archive::new(bytes).entries().unwrap().count();
        assert_eq!((count(lower), count(upper)), (3, 2));
    }

    #[test]
    fn dictionary_is_valid() {
        let words = dictionary().unwrap();
        assert!(words.contains("\"runStrategy\"\n"));
        assert!(
            words
                .lines()
                .all(|line| !line.trim_matches('"').contains(['"', '\\']))
        );
    }
}
