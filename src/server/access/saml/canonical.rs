//! Writes an element of a document in exclusive canonical form (Exclusive XML Canonicalization 1.0 without comments), the
//! bytes that signatures are made of. Decides nothing and checks nothing.

use super::xml::{XmlChild, XmlDocument, XmlElement};

/// The name of this form in signatures.
pub(super) const EXCLUSIVE_FORM: &str = "http://www.w3.org/2001/10/xml-exc-c14n#";

/// Bytes of the form of an element, its last tag aside. A namespace is written for each of the elements that use it, so that a
/// small document can have a form of gigabytes; that of a thousand groups has some 300 KiB.
const MAX_CANONICAL_BYTES: usize = 1 << 20;

/// An element and all below it, without the element `left_out`. `inclusive` are prefixes whose namespaces are written where
/// they are in force and not only where they are used; the empty one is the default. None where the form is too large.
pub(super) fn canonical(
    document: &XmlDocument,
    at: usize,
    left_out: Option<usize>,
    inclusive: &[&str],
) -> Option<Vec<u8>> {
    let mut out = String::new();
    let writing = CanonicalWriting {
        document,
        left_out,
        inclusive,
    };
    writing.element(at, &[], &mut out)?;
    Some(out.into_bytes())
}

struct CanonicalWriting<'a> {
    document: &'a XmlDocument,
    left_out: Option<usize>,
    inclusive: &'a [&'a str],
}

impl<'a> CanonicalWriting<'a> {
    /// `above` is what the elements around it wrote: prefixes and their namespaces, the innermost last. None where too much
    /// is written already. Documents bound how deep this goes.
    fn element(&self, at: usize, above: &[(&'a str, &'a str)], out: &mut String) -> Option<()> {
        if out.len() > MAX_CANONICAL_BYTES {
            return None;
        }
        let element = self.document.element(at);
        let mut written = above.to_vec();
        out.push('<');
        push_name(element, out);
        for (prefix, namespace) in self.namespaces(at, element, above) {
            match prefix {
                "" => out.push_str(" xmlns=\""),
                prefix => {
                    out.push_str(" xmlns:");
                    out.push_str(prefix);
                    out.push_str("=\"");
                }
            }
            push_value(namespace, out);
            out.push('"');
            written.push((prefix, namespace));
        }
        let mut attributes: Vec<_> = element.attributes.iter().collect();
        attributes.sort_by_key(|one| (one.namespace.as_str(), one.local.as_str()));
        for attribute in attributes {
            out.push(' ');
            if !attribute.prefix.is_empty() {
                out.push_str(&attribute.prefix);
                out.push(':');
            }
            out.push_str(&attribute.local);
            out.push_str("=\"");
            push_value(&attribute.value, out);
            out.push('"');
        }
        out.push('>');
        for child in &element.children {
            match child {
                XmlChild::Element(number) if Some(*number) == self.left_out => {}
                XmlChild::Element(number) => self.element(*number, &written, out)?,
                XmlChild::Text(text) => push_text(text, out),
            }
        }
        out.push_str("</");
        push_name(element, out);
        out.push('>');
        Some(())
    }

    /// The declarations that this element needs and nothing around it wrote, by prefix.
    fn namespaces(
        &self,
        at: usize,
        element: &'a XmlElement,
        above: &[(&'a str, &'a str)],
    ) -> Vec<(&'a str, &'a str)> {
        let mut prefixes: Vec<&'a str> = vec![element.prefix.as_str()];
        let prefixed = element.attributes.iter().map(|one| one.prefix.as_str());
        prefixes.extend(prefixed.filter(|prefix| !prefix.is_empty()));
        prefixes.extend(self.inclusive);
        prefixes.sort_unstable();
        prefixes.dedup();
        let mut needed = Vec::new();
        for prefix in prefixes {
            // One of the list need not be declared here; `xml` never is.
            let Some(namespace) = self.document.namespace(at, prefix) else {
                continue;
            };
            let known = above.iter().rev().find(|(known, _)| *known == prefix);
            let known = known.map_or("", |(_, namespace)| *namespace);
            if prefix != "xml" && known != namespace {
                needed.push((prefix, namespace));
            }
        }
        needed
    }
}

fn push_name(element: &XmlElement, out: &mut String) {
    if !element.prefix.is_empty() {
        out.push_str(&element.prefix);
        out.push(':');
    }
    out.push_str(&element.local);
}

fn push_text(text: &str, out: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#xD;"),
            other => out.push(other),
        }
    }
}

fn push_value(value: &str, out: &mut String) {
    for letter in value.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '"' => out.push_str("&quot;"),
            '\t' => out.push_str("&#x9;"),
            '\n' => out.push_str("&#xA;"),
            '\r' => out.push_str("&#xD;"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::xml::document;
    use super::*;

    fn form(text: &str, at: usize, left_out: Option<usize>, inclusive: &[&str]) -> String {
        let read = document(text.as_bytes()).unwrap();
        let bytes = canonical(&read, at, left_out, inclusive).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// The examples of section 2.2 of Exclusive XML Canonicalization 1.0.
    #[test]
    fn a_part_has_one_form_wherever_it_stands() {
        let alone = "<n1:elem2 xmlns:n0=\"http://a\" xmlns:n1=\"http://b\" \
                     xmlns:n3=\"ftp://c\" xml:lang=\"en\"><n3:stuff></n3:stuff></n1:elem2>";
        let around = format!("<n0:pdu xmlns:n0='http://a'>{alone}</n0:pdu>");
        let expected = "<n1:elem2 xmlns:n1=\"http://b\" xml:lang=\"en\">\
                        <n3:stuff xmlns:n3=\"ftp://c\"></n3:stuff></n1:elem2>";
        assert_eq!(form(alone, 0, None, &[]), expected);
        assert_eq!(form(&around, 1, None, &[]), expected);
        let listed = "<n1:elem2 xmlns:n0=\"http://a\" xmlns:n1=\"http://b\" xml:lang=\"en\">\
                      <n3:stuff xmlns:n3=\"ftp://c\"></n3:stuff></n1:elem2>";
        assert_eq!(form(&around, 1, None, &["n0", "gone"]), listed);
    }

    /// Each of the elements side by side writes the namespace that none around it wrote.
    #[test]
    fn a_form_is_bounded_where_its_document_is_small() {
        let bytes = |count: usize| {
            let namespace = "n".repeat(8192);
            let inside = "<p:b/>".repeat(count);
            let read = document(format!("<a xmlns:p='{namespace}'>{inside}</a>").as_bytes());
            canonical(&read.unwrap(), 0, None, &[]).map(|form| form.len())
        };
        assert!(bytes(100).is_some_and(|bytes| bytes > 100 * 8192));
        assert_eq!(bytes(1_000), None);
    }

    #[test]
    fn declarations_and_attributes_are_sorted_and_letters_escaped() {
        let text = "<b:a xmlns:b='two' xmlns='one' xmlns:a='three' z='&#9;&quot;&gt;' a:y='1' b:x='2' c='&lt;'>\
                    <d/><b:d xmlns='one'>&gt;&#13;&amp;'\"</b:d><e xmlns=''><f/></e></b:a>";
        assert_eq!(
            form(text, 0, None, &[]),
            "<b:a xmlns:a=\"three\" xmlns:b=\"two\" c=\"&lt;\" z=\"&#x9;&quot;>\" a:y=\"1\" b:x=\"2\">\
             <d xmlns=\"one\"></d><b:d>&gt;&#xD;&amp;'\"</b:d><e><f></f></e></b:a>"
        );
        // What is left out leaves the text around it.
        assert_eq!(
            form("<a> <b/> <c/></a>", 0, Some(1), &[]),
            "<a>  <c></c></a>"
        );
        // A default that was written is taken back where it is used no more.
        assert_eq!(
            form("<a xmlns='one'><b xmlns=''/></a>", 0, None, &[]),
            "<a xmlns=\"one\"><b xmlns=\"\"></b></a>"
        );
    }
}
