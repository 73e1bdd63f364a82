//! Paths of objects and lists.

/// `/api/v1/namespaces/ns/pods/name/log`, parsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub group: String,
    pub version: String,
    /// Empty for cluster-wide objects and for lists over all namespaces.
    pub namespace: String,
    pub plural: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl ResourcePath {
    /// None for a path that names no resource.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let decoded: Vec<String> = path
            .trim_matches('/')
            .split('/')
            .map(decode)
            .collect::<Option<_>>()?;
        let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // Namespaces are objects themselves.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"]
                if group.is_empty() =>
            {
                ("", rest)
            }
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", rest),
        };
        let [plural, rest @ ..] = rest else {
            return None;
        };
        let owned = |text: &&str| (*text).to_owned();
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            plural: (*plural).to_owned(),
            name: rest.first().map(owned),
            subresource: rest
                .get(1..)
                .filter(|rest| !rest.is_empty())
                .map(|rest| rest.join("/")),
        })
    }
}

impl ResourcePath {
    /// Deprecated watch paths have `watch` before the resource.
    pub(crate) fn without_watch(self) -> (Self, bool) {
        if self.plural != "watch" {
            return (self, false);
        }
        let rest = [self.name.as_deref(), self.subresource.as_deref()];
        let rest: Vec<&str> = rest.into_iter().flatten().collect();
        let group = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match Self::parse(&format!("{group}/{}", rest.join("/"))) {
            Some(path) => (path, true),
            None => (self, false),
        }
    }

    /// Whether the request creates an object.
    pub(crate) fn is_write<B>(&self, request: &http::Request<B>) -> bool {
        self.name.is_none() && *request.method() == http::Method::POST
    }
}

/// Percent-decodes; None if the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed() {
        let check = |path: &str, expected: [&str; 6]| {
            let found = ResourcePath::parse(path).expect(path);
            let texts = [
                found.group.as_str(),
                &found.version,
                &found.namespace,
                &found.plural,
                found.name.as_deref().unwrap_or("-"),
                found.subresource.as_deref().unwrap_or("-"),
            ];
            assert_eq!(texts, expected, "{path}");
        };
        check("/api/v1/pods", ["", "v1", "", "pods", "-", "-"]);
        check("/api/v1/namespaces", ["", "v1", "", "namespaces", "-", "-"]);
        check(
            "/api/v1/namespaces/a",
            ["", "v1", "", "namespaces", "a", "-"],
        );
        check(
            "/api/v1/namespaces/a/status",
            ["", "v1", "", "namespaces", "a", "status"],
        );
        check(
            "/api/v1/namespaces/a/pods",
            ["", "v1", "a", "pods", "-", "-"],
        );
        check(
            "/api/v1/namespaces/a/pods/p/log",
            ["", "v1", "a", "pods", "p", "log"],
        );
        check(
            "/apis/g.io/v1/namespaces/a/vms/x%2ey",
            ["g.io", "v1", "a", "vms", "x.y", "-"],
        );
        check(
            "/apis/g/v1/things/n/portforward/80/tcp",
            ["g", "v1", "", "things", "n", "portforward/80/tcp"],
        );
        assert_eq!(ResourcePath::parse("/api/v1"), None);
        assert_eq!(ResourcePath::parse("/version"), None);
        assert_eq!(ResourcePath::parse("/api/v1/pods/%ff"), None);
    }
}
