//! A small reader for libvirt's XML: start tags and texts in document order, each with the path
//! of its element.

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

pub(crate) use quick_xml::Error;

/// One step through a document.
#[derive(Debug)]
pub(crate) enum Step<'x> {
    Start(Tag<'x>),
    /// The text of the current element, or a part of it.
    Text(String),
}

/// A start tag.
#[derive(Debug)]
pub(crate) struct Tag<'x>(BytesStart<'x>);

impl Tag<'_> {
    /// The value of an attribute.
    pub(crate) fn attribute(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(attribute) = self.0.try_get_attribute(name)? else {
            return Ok(None);
        };
        let value = attribute.normalized_value(XmlVersion::Implicit1_0)?;
        Ok(Some(value.into_owned()))
    }

    /// Whether the attribute has this value.
    pub(crate) fn has(&self, name: &str, value: &str) -> Result<bool, Error> {
        Ok(self.attribute(name)?.as_deref() == Some(value))
    }
}

/// A walk through a document.
#[derive(Debug)]
pub(crate) struct Walk<'x> {
    xml: &'x str,
    reader: Reader<&'x [u8]>,
    path: String,
}

impl<'x> Walk<'x> {
    pub(crate) fn new(xml: &'x str) -> Self {
        let mut reader = Reader::from_str(xml);
        let config = reader.config_mut();
        config.expand_empty_elements = true;
        config.trim_text(true);
        Self {
            xml,
            reader,
            path: String::new(),
        }
    }

    /// The path of the current element, such as `/domain/os/type`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The XML inside the element whose start tag was just returned.
    pub(crate) fn inner_xml(&self, tag: &Tag<'_>) -> Result<&'x str, Error> {
        let mut ahead = self.reader.clone();
        let span = ahead.read_to_end(tag.0.name())?;
        let position = |at| usize::try_from(at).unwrap_or(usize::MAX);
        let range = position(span.start)..position(span.end);
        Ok(self.xml.get(range).unwrap_or_default())
    }

    /// The next start tag or text; `None` at the end of the document.
    pub(crate) fn next(&mut self) -> Result<Option<Step<'x>>, Error> {
        loop {
            match self.reader.read_event()? {
                Event::Start(tag) => {
                    self.path.push('/');
                    self.path.push_str(tag.name().as_ref());
                    return Ok(Some(Step::Start(Tag(tag))));
                }
                Event::End(_) => {
                    let parent = self.path.rfind('/').unwrap_or(0);
                    self.path.truncate(parent);
                }
                Event::Text(text) => {
                    return Ok(Some(Step::Text(text.xml10_content().into_owned())));
                }
                Event::Eof => return Ok(None),
                _ => {}
            }
        }
    }
}
