//! The manifests of all definitions.

use super::{definition::Definition, kinds};

/// Name and text of every definition of our kinds, in the order of names.
pub fn render() -> Result<Vec<(String, String)>, serde_saphyr::ser::Error> {
    texts(&kinds::all())
}

/// The same of the kinds of the importer.
pub fn render_importer() -> Result<Vec<(String, String)>, serde_saphyr::ser::Error> {
    texts(&kinds::importer())
}

fn texts(kinds: &[Definition]) -> Result<Vec<(String, String)>, serde_saphyr::ser::Error> {
    let mut files = kinds
        .iter()
        .map(|kind| {
            let body = serde_saphyr::to_string(&kind.manifest())?;
            let text =
                format!("# Made by `cargo xtask generate` from the types of kubevirt-api.\n{body}");
            Ok((kind.name(), text))
        })
        .collect::<Result<Vec<_>, serde_saphyr::ser::Error>>()?;
    files.sort();
    Ok(files)
}
