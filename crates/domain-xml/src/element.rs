//! XML elements as values. The only module that writes XML.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

/// An element with attributes and either text or children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    text: Option<String>,
    children: Vec<Element>,
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "callers pass values and references alike"
)]
impl Element {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            attributes: Vec::new(),
            text: None,
            children: Vec::new(),
        }
    }

    pub(crate) fn attr(mut self, name: &'static str, value: impl ToString) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    pub(crate) fn attr_if(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.attr(name, value),
            None => self,
        }
    }

    pub(crate) fn text(mut self, text: impl ToString) -> Self {
        self.text = Some(text.to_string());
        self
    }

    pub(crate) fn child(mut self, child: Self) -> Self {
        self.children.push(child);
        self
    }

    pub(crate) fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children);
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.attributes.is_empty() && self.text.is_none() && self.children.is_empty()
    }

    /// The first child of that name.
    pub(crate) fn first(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let mut attributes = self.attributes.iter();
        let (_, value) = attributes.find(|(known, _)| *known == name)?;
        Some(value)
    }

    /// The alias by which a user-named device is found in the running domain.
    pub(crate) fn alias(self, name: &str) -> Self {
        self.child(Self::new("alias").attr("name", format!("ua-{name}")))
    }

    pub(crate) fn to_xml(&self) -> String {
        let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
        self.write(&mut writer)
            .expect("writing to memory does not fail");
        let mut xml = String::from_utf8(writer.into_inner()).expect("only strings were written");
        xml.push('\n');
        xml
    }

    fn write(&self, writer: &mut Writer<Vec<u8>>) -> std::io::Result<()> {
        let mut start = BytesStart::new(self.name);
        for (name, value) in &self.attributes {
            start.push_attribute((*name, value.as_str()));
        }
        if self.text.is_none() && self.children.is_empty() {
            return writer.write_event(Event::Empty(start));
        }
        writer.write_event(Event::Start(start))?;
        if let Some(text) = &self.text {
            writer.write_event(Event::Text(BytesText::new(text)))?;
        }
        for child in &self.children {
            child.write(writer)?;
        }
        writer.write_event(Event::End(BytesEnd::new(self.name)))
    }
}
