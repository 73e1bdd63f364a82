//! A cloud-init seed as sidecars see it, and the seed that they make of it. Pure.

use launcher_channel::{FileSource, SeedFile};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::shown;
use super::messages::ChangedCloudInit;

/// The most bytes of one file, as in a config map.
const MAX_FILE: usize = 1 << 20;

/// The two layouts of a seed: the name of its kind, and its files for meta data, user data and network data.
const LAYOUTS: [(&str, [&str; 3]); 2] = [
    ("noCloud", ["meta-data", "user-data", "network-config"]),
    (
        "configDrive",
        [
            "openstack/latest/meta_data.json",
            "openstack/latest/user_data",
            "openstack/latest/network_data.json",
        ],
    ),
];

/// The data of a seed. The names on the wire are those of `KubeVirt`'s members.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct CloudInitData {
    data_source: String,
    no_cloud_meta_data: Option<Value>,
    config_drive_meta_data: Option<Value>,
    user_data: String,
    network_data: String,
    devices_data: Option<Value>,
    volume_name: String,
}

/// What older sidecars change.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NoCloudSource {
    user_data: String,
    network_data: String,
}

/// The names of a seed's files, if it is one for cloud-init.
fn layout(files: &[SeedFile]) -> Option<(&'static str, [&'static str; 3])> {
    let has = |name: &str| files.iter().any(|file| file.name == name);
    let mut layouts = LAYOUTS.into_iter();
    layouts.find(|(_, [meta, user, _])| has(meta) || has(user))
}

/// The data of a seed with these files and their contents; `None` if it is not one for cloud-init.
pub(super) fn data(files: &[SeedFile], contents: &[Vec<u8>]) -> Option<CloudInitData> {
    let (kind, [meta, user, network]) = layout(files)?;
    let text = |name: &str| {
        let mut pairs = files.iter().zip(contents);
        let found = pairs.find(|(file, _)| file.name == name);
        found.map_or_else(String::new, |(_, bytes)| {
            String::from_utf8_lossy(bytes).into_owned()
        })
    };
    let meta = serde_json::from_str(&text(meta)).ok();
    let is_no_cloud = kind == "noCloud";
    Some(CloudInitData {
        data_source: kind.to_owned(),
        no_cloud_meta_data: meta.clone().filter(|_| is_no_cloud),
        config_drive_meta_data: meta.filter(|_| !is_no_cloud),
        user_data: text(user),
        network_data: text(network),
        devices_data: None,
        volume_name: String::new(),
    })
}

impl CloudInitData {
    pub(super) fn to_json(&self) -> String {
        json!(self).to_string()
    }

    /// The form that older sidecars read.
    pub(super) fn to_no_cloud_source(&self) -> String {
        let mut source = serde_json::Map::new();
        for (name, text) in [
            ("userData", &self.user_data),
            ("networkData", &self.network_data),
        ] {
            if !text.is_empty() {
                source.insert(name.to_owned(), json!(text));
            }
        }
        Value::Object(source).to_string()
    }

    /// The data that a sidecar makes of these.
    pub(super) fn changed_by(&self, answer: &ChangedCloudInit) -> Result<Self, String> {
        let parse = |error: serde_json::Error| shown(&error.to_string());
        let parsed = if answer.data.is_empty() {
            Self::default()
        } else {
            serde_json::from_slice(&answer.data).map_err(parse)?
        };
        let has_meta =
            parsed.no_cloud_meta_data.is_some() || parsed.config_drive_meta_data.is_some();
        let changed = if has_meta && !parsed.user_data.is_empty() {
            Self {
                data_source: self.data_source.clone(),
                ..parsed
            }
        } else {
            let source: NoCloudSource =
                serde_json::from_slice(&answer.no_cloud_source).map_err(parse)?;
            Self {
                user_data: source.user_data,
                network_data: source.network_data,
                ..self.clone()
            }
        };
        let longest = changed.user_data.len().max(changed.network_data.len());
        if longest > MAX_FILE {
            return Err(format!("{longest} bytes are more than {MAX_FILE}"));
        }
        Ok(changed)
    }

    fn meta_data(&self) -> Option<&Value> {
        let own = self.no_cloud_meta_data.as_ref();
        own.or(self.config_drive_meta_data.as_ref())
    }
}

/// The files of a seed whose data was `before` and is `after`. What did not change keeps its source.
pub(super) fn files(
    files: &[SeedFile],
    before: &CloudInitData,
    after: &CloudInitData,
) -> Vec<SeedFile> {
    let Some((_, [meta, user, network])) = layout(files) else {
        return files.to_vec();
    };
    let mut all = files.to_vec();
    let mut set = |name: &str, text: String| {
        let known = all.iter_mut().find(|file| file.name == name);
        let source = FileSource::Text(text);
        match known {
            Some(file) => file.source = source,
            None => all.push(SeedFile {
                name: name.to_owned(),
                source,
            }),
        }
    };
    if let Some(changed) = after.meta_data()
        && Some(changed) != before.meta_data()
    {
        set(meta, changed.to_string());
    }
    if after.user_data != before.user_data {
        set(user, after.user_data.clone());
    }
    if after.network_data != before.network_data {
        set(network, after.network_data.clone());
        // cloud-init would take an empty file for a mistake.
        all.retain(|file| file.name != network || !after.network_data.is_empty());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> (Vec<SeedFile>, Vec<Vec<u8>>) {
        let file = |name: &str, path: &str| SeedFile {
            name: name.to_owned(),
            source: FileSource::FirstOf(vec![path.to_owned()]),
        };
        let files = vec![
            file("meta-data", "/m"),
            file("user-data", "/u"),
            file("network-config", "/n"),
        ];
        let contents = [r#"{"instance-id": "a.n"}"#, "#cloud-config", "version: 2"];
        let contents = contents.map(|text| text.as_bytes().to_vec());
        (files, contents.to_vec())
    }

    #[test]
    fn sidecars_get_the_names_of_kubevirt() {
        let (files, contents) = seed();
        let data = data(&files, &contents).expect("is for cloud-init");
        let value: Value = serde_json::from_str(&data.to_json()).expect("is JSON");
        let expected = json!({
            "DataSource": "noCloud", "NoCloudMetaData": {"instance-id": "a.n"}, "ConfigDriveMetaData": null,
            "UserData": "#cloud-config", "NetworkData": "version: 2", "DevicesData": null, "VolumeName": "",
        });
        assert_eq!(value, expected);
        let source: Value = serde_json::from_str(&data.to_no_cloud_source()).expect("is JSON");
        let expected = json!({"userData": "#cloud-config", "networkData": "version: 2"});
        assert_eq!(source, expected);
        assert_eq!(super::data(&files[2..], &contents[2..]), None);
    }

    #[test]
    fn answer_in_either_form_changes_the_seed() {
        let (files, contents) = seed();
        let before = data(&files, &contents).expect("is for cloud-init");
        let text = |all: &[SeedFile], name: &str| {
            let file = all.iter().find(|file| file.name == name);
            file.map(|file| file.source.clone())
        };
        let whole = json!({"UserData": "new", "NoCloudMetaData": {"instance-id": "b"}}).to_string();
        let answer = ChangedCloudInit {
            no_cloud_source: b"{}".to_vec(),
            data: whole.into_bytes(),
        };
        let after = before.changed_by(&answer).expect("is data");
        let changed = super::files(&files, &before, &after);
        let new = FileSource::Text("new".to_owned());
        assert_eq!(text(&changed, "user-data"), Some(new));
        let meta = FileSource::Text(r#"{"instance-id":"b"}"#.to_owned());
        assert_eq!(text(&changed, "meta-data"), Some(meta));
        assert_eq!(text(&changed, "network-config"), None, "it is empty now");

        let older = json!({"userData": "older", "networkData": "version: 2"}).to_string();
        let answer = ChangedCloudInit {
            no_cloud_source: older.into_bytes(),
            data: Vec::new(),
        };
        let after = before.changed_by(&answer).expect("is data");
        let changed = super::files(&files, &before, &after);
        let older = FileSource::Text("older".to_owned());
        assert_eq!(text(&changed, "user-data"), Some(older));
        for name in ["meta-data", "network-config"] {
            assert_eq!(text(&changed, name), text(&files, name), "{name}");
        }
    }

    #[test]
    fn garbage_is_refused() {
        let (files, contents) = seed();
        let before = data(&files, &contents).expect("is for cloud-init");
        let long = json!({"userData": "a".repeat(MAX_FILE + 1)}).to_string();
        for (no_cloud_source, data) in [("", ""), ("", "{"), ("[", "{}"), (long.as_str(), "")] {
            let answer = ChangedCloudInit {
                no_cloud_source: no_cloud_source.as_bytes().to_vec(),
                data: data.as_bytes().to_vec(),
            };
            assert!(before.changed_by(&answer).is_err(), "{data}");
        }
    }
}
