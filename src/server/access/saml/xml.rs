//! Reads XML 1.0 as SAML responses are written, and nothing more: no document type, no comment, no processing instruction,
//! no CDATA, no entity but the five of the standard. So one text has one reading. Never follows an address.

/// Bytes of a document; a response with a thousand groups has some 150 KiB.
pub(super) const MAX_DOCUMENT_BYTES: usize = 256 << 10;
/// Elements of a document.
const MAX_DOCUMENT_ELEMENTS: usize = 8_192;
/// Elements within each other; a response has some ten.
const MAX_NESTED_ELEMENTS: usize = 32;
/// Attributes and declarations of one element.
const MAX_ELEMENT_ATTRIBUTES: usize = 32;
/// Declarations of an element and of all around it: each use of a prefix looks through them. A response has some ten.
const MAX_DECLARED_PREFIXES: usize = 64;

/// Namespace of the prefix `xml`, which every document has.
const OF_XML: &str = "http://www.w3.org/XML/1998/namespace";

/// Why a text is no document that is read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum XmlFault {
    #[error("the document is too large, too deep, or has too many parts")]
    Size,
    #[error("the document has a type, a comment, an instruction, CDATA or an entity of its own")]
    Forbidden,
    #[error("the text is no well-formed document in UTF-8")]
    Malformed,
    #[error("a prefix of the document is not declared, or declared as it must not be")]
    Namespace,
}

/// One attribute that is no declaration of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct XmlAttribute {
    pub prefix: String,
    pub local: String,
    /// Empty for one without a prefix.
    pub namespace: String,
    pub value: String,
}

/// What stands between two tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum XmlChild {
    /// Its number in the document.
    Element(usize),
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct XmlElement {
    pub parent: Option<usize>,
    pub prefix: String,
    pub local: String,
    /// Empty where no namespace is declared.
    pub namespace: String,
    /// Prefixes that this element declares, with their namespaces; the empty one is the default.
    pub declared: Vec<(String, String)>,
    pub attributes: Vec<XmlAttribute>,
    pub children: Vec<XmlChild>,
}

/// A document that was read whole; element 0 is its root, and a child has a higher number than its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct XmlDocument {
    elements: Vec<XmlElement>,
}

impl XmlElement {
    /// Whether it is this element of this namespace.
    pub(super) fn is(&self, namespace: &str, local: &str) -> bool {
        self.namespace == namespace && self.local == local
    }

    /// The value of an attribute without a prefix.
    pub(super) fn attribute(&self, local: &str) -> Option<&str> {
        let own = |one: &&XmlAttribute| one.namespace.is_empty() && one.local == local;
        let found = self.attributes.iter().find(own);
        found.map(|one| one.value.as_str())
    }
}

impl XmlDocument {
    pub(super) fn element(&self, at: usize) -> &XmlElement {
        &self.elements[at]
    }

    pub(super) fn elements(&self) -> &[XmlElement] {
        &self.elements
    }

    /// Numbers of the elements right below one, in their order.
    pub(super) fn below(&self, at: usize) -> impl Iterator<Item = usize> {
        self.elements[at]
            .children
            .iter()
            .filter_map(|child| match child {
                XmlChild::Element(number) => Some(*number),
                XmlChild::Text(_) => None,
            })
    }

    /// The text of an element that has no element below it; None for one that has.
    pub(super) fn text(&self, at: usize) -> Option<&str> {
        match self.elements[at].children.as_slice() {
            [] => Some(""),
            [XmlChild::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The namespace of a prefix where an element stands; None for one that is not declared there.
    pub(super) fn namespace(&self, at: usize, prefix: &str) -> Option<&str> {
        if prefix == "xml" {
            return Some(OF_XML);
        }
        let mut here = Some(at);
        while let Some(number) = here {
            let element = &self.elements[number];
            let own = element.declared.iter().find(|(known, _)| known == prefix);
            if let Some((_, namespace)) = own {
                return Some(namespace);
            }
            here = element.parent;
        }
        prefix.is_empty().then_some("")
    }
}

struct XmlReader<'a> {
    text: &'a str,
    at: usize,
}

/// A document from its bytes. Costs one look at each.
///
/// Errors: the first thing that is wrong.
pub(super) fn document(bytes: &[u8]) -> Result<XmlDocument, XmlFault> {
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(XmlFault::Size);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| XmlFault::Malformed)?;
    // The standard reads each end of a line as one letter, before all else.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut reader = XmlReader { text: &text, at: 0 };
    reader.declaration()?;
    reader.blanks();
    let mut document = XmlDocument {
        elements: Vec::new(),
    };
    let mut open: Vec<usize> = Vec::new();
    loop {
        let rest = reader.rest();
        let next = rest.find('<');
        if let Some(&inside) = open.last() {
            let end = next.ok_or(XmlFault::Malformed)?;
            if end > 0 {
                let raw = &rest[..end];
                if raw.contains("]]>") {
                    return Err(XmlFault::Malformed);
                }
                let text = decoded(raw, false)?;
                document.elements[inside]
                    .children
                    .push(XmlChild::Text(text));
                reader.at += end;
            }
        } else if next != Some(0) {
            return Err(XmlFault::Malformed);
        }
        if ["<!", "<?"]
            .iter()
            .any(|mark| reader.rest().starts_with(*mark))
        {
            return Err(XmlFault::Forbidden);
        }
        if reader.take("</") {
            let (prefix, local) = reader.name()?;
            reader.blanks();
            let ended = open.pop().ok_or(XmlFault::Malformed)?;
            let element = &document.elements[ended];
            if !reader.take(">") || element.prefix != prefix || element.local != local {
                return Err(XmlFault::Malformed);
            }
        } else if reader.take("<") {
            let (element, empty) = reader.element(open.last().copied())?;
            let number = document.elements.len();
            let around = open.iter().map(|&around| &document.elements[around]);
            let declared = around.map(|around| around.declared.len()).sum::<usize>();
            if number >= MAX_DOCUMENT_ELEMENTS
                || open.len() >= MAX_NESTED_ELEMENTS
                || declared + element.declared.len() > MAX_DECLARED_PREFIXES
            {
                return Err(XmlFault::Size);
            }
            if let Some(&inside) = open.last() {
                let children = &mut document.elements[inside].children;
                children.push(XmlChild::Element(number));
            }
            document.elements.push(element);
            named(&mut document, number)?;
            if !empty {
                open.push(number);
            }
        } else {
            return Err(XmlFault::Malformed);
        }
        if open.is_empty() {
            break;
        }
    }
    reader.blanks();
    match reader.rest() {
        "" => Ok(document),
        rest if rest.starts_with("<!") || rest.starts_with("<?") => Err(XmlFault::Forbidden),
        _ => Err(XmlFault::Malformed),
    }
}

impl<'a> XmlReader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take(&mut self, what: &str) -> bool {
        let there = self.rest().starts_with(what);
        if there {
            self.at += what.len();
        }
        there
    }

    /// Passes blanks; true where there was one.
    fn blanks(&mut self) -> bool {
        let rest = self.rest();
        let left = rest.trim_start_matches([' ', '\t', '\n']);
        self.at += rest.len() - left.len();
        rest.len() > left.len()
    }

    /// What the document says of itself before its root: version 1.0, and UTF-8 where it says an encoding.
    fn declaration(&mut self) -> Result<(), XmlFault> {
        if !self.take("<?xml ") {
            return Ok(());
        }
        let (said, _) = self.rest().split_once("?>").ok_or(XmlFault::Malformed)?;
        let lower = said.to_ascii_lowercase().replace('\'', "\"");
        let usual = lower.contains("version=\"1.0\"")
            && (!lower.contains("encoding") || lower.contains("encoding=\"utf-8\""));
        if !usual || said.contains(['<', '>']) {
            return Err(XmlFault::Malformed);
        }
        self.at += said.len() + "?>".len();
        Ok(())
    }

    /// Letters up to one that no name has. Names of SAML are of ASCII.
    fn word(&mut self) -> Result<&'a str, XmlFault> {
        let rest = self.rest();
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let end = rest.find(|c: char| !letter(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !word.starts_with(begins) {
            return Err(XmlFault::Malformed);
        }
        self.at += end;
        Ok(word)
    }

    /// Prefix and local part; the prefix is empty where there is none.
    fn name(&mut self) -> Result<(String, String), XmlFault> {
        let first = self.word()?.to_owned();
        match self.take(":") {
            true => Ok((first, self.word()?.to_owned())),
            false => Ok((String::new(), first)),
        }
    }

    /// A tag from behind its first letter; true where it ends its element too. Namespaces are found out later.
    fn element(&mut self, parent: Option<usize>) -> Result<(XmlElement, bool), XmlFault> {
        let (prefix, local) = self.name()?;
        let mut element = XmlElement {
            parent,
            prefix,
            local,
            namespace: String::new(),
            declared: Vec::new(),
            attributes: Vec::new(),
            children: Vec::new(),
        };
        loop {
            let blank = self.blanks();
            if self.take("/>") {
                return Ok((element, true));
            }
            if self.take(">") {
                return Ok((element, false));
            }
            if !blank {
                return Err(XmlFault::Malformed);
            }
            if element.attributes.len() + element.declared.len() >= MAX_ELEMENT_ATTRIBUTES {
                return Err(XmlFault::Size);
            }
            let (prefix, local) = self.name()?;
            self.blanks();
            if !self.take("=") {
                return Err(XmlFault::Malformed);
            }
            self.blanks();
            let value = self.value()?;
            match (prefix.as_str(), local.as_str()) {
                ("", "xmlns") => declare(&mut element, String::new(), value)?,
                ("xmlns", _) => declare(&mut element, local, value)?,
                _ => element.attributes.push(XmlAttribute {
                    prefix,
                    local,
                    namespace: String::new(),
                    value,
                }),
            }
        }
    }

    fn value(&mut self) -> Result<String, XmlFault> {
        let quote = if self.take("\"") {
            '"'
        } else if self.take("'") {
            '\''
        } else {
            return Err(XmlFault::Malformed);
        };
        let (raw, _) = self.rest().split_once(quote).ok_or(XmlFault::Malformed)?;
        self.at += raw.len() + 1;
        if raw.contains('<') {
            return Err(XmlFault::Malformed);
        }
        decoded(raw, true)
    }
}

fn declare(element: &mut XmlElement, prefix: String, namespace: String) -> Result<(), XmlFault> {
    let twice = element.declared.iter().any(|(known, _)| *known == prefix);
    let reserved = matches!(prefix.as_str(), "xml" | "xmlns");
    let empty = namespace.is_empty() && !prefix.is_empty();
    let stolen = namespace == OF_XML || namespace == "http://www.w3.org/2000/xmlns/";
    if twice || reserved || empty || stolen {
        return Err(XmlFault::Namespace);
    }
    element.declared.push((prefix, namespace));
    Ok(())
}

/// Finds the namespaces of an element and its attributes, and refuses an attribute that is there twice.
fn named(document: &mut XmlDocument, at: usize) -> Result<(), XmlFault> {
    let found = |prefix: &str| {
        let known = document.namespace(at, prefix);
        known.map(str::to_owned).ok_or(XmlFault::Namespace)
    };
    let element = document.element(at);
    let own = found(&element.prefix)?;
    let mut namespaces = Vec::with_capacity(element.attributes.len());
    for attribute in &element.attributes {
        namespaces.push(match attribute.prefix.as_str() {
            "" => String::new(),
            prefix => found(prefix)?,
        });
    }
    let element = &mut document.elements[at];
    element.namespace = own;
    for (attribute, namespace) in element.attributes.iter_mut().zip(namespaces) {
        attribute.namespace = namespace;
    }
    let all = &element.attributes;
    let twice = all.iter().enumerate().any(|(number, one)| {
        let same =
            |other: &XmlAttribute| other.local == one.local && other.namespace == one.namespace;
        all[..number].iter().any(same)
    });
    match twice {
        true => Err(XmlFault::Malformed),
        false => Ok(()),
    }
}

/// A text with its entities read; in an attribute each blank is a space.
fn decoded(raw: &str, in_attribute: bool) -> Result<String, XmlFault> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('&') {
        literal(&rest[..at], in_attribute, &mut text)?;
        let (entity, after) = rest[at + 1..].split_once(';').ok_or(XmlFault::Malformed)?;
        text.push(entity_letter(entity)?);
        rest = after;
    }
    literal(rest, in_attribute, &mut text)?;
    Ok(text)
}

fn literal(raw: &str, in_attribute: bool, text: &mut String) -> Result<(), XmlFault> {
    if !raw.chars().all(is_letter) {
        return Err(XmlFault::Malformed);
    }
    match in_attribute {
        true => text.extend(raw.chars().map(|c| match c {
            '\t' | '\n' => ' ',
            other => other,
        })),
        false => text.push_str(raw),
    }
    Ok(())
}

fn entity_letter(entity: &str) -> Result<char, XmlFault> {
    let number = |digits: &str, radix: u32| {
        let digit = |c: char| c.is_digit(radix);
        let plain = (1..=6).contains(&digits.len()) && digits.chars().all(digit);
        let number = plain.then(|| u32::from_str_radix(digits, radix).ok());
        let letter = number.flatten().and_then(char::from_u32);
        letter.filter(|c| is_letter(*c)).ok_or(XmlFault::Malformed)
    };
    match entity {
        "amp" => Ok('&'),
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        other => match (other.strip_prefix("#x"), other.strip_prefix('#')) {
            (Some(digits), _) => number(digits, 16),
            (None, Some(digits)) => number(digits, 10),
            (None, None) => Err(XmlFault::Forbidden),
        },
    }
}

/// Whether a document may have this letter.
fn is_letter(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Option<XmlFault> {
        document(text.as_bytes()).err()
    }

    #[test]
    fn what_has_two_readings_is_no_document() {
        for text in [
            "<!DOCTYPE a><a/>",
            "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
            "<a>kim<!-- -->@example.org</a>",
            "<!-- --><a/>",
            "<a/><!-- -->",
            "<a><?b c?></a>",
            "<?b c?><a/>",
            "<a/><?b c?>",
            "<a><![CDATA[b]]></a>",
            "<a>&b;</a>",
            "<a b='&c;'/>",
        ] {
            assert_eq!(fault(text), Some(XmlFault::Forbidden), "{text}");
        }
        for text in [
            "",
            "a",
            "<a>",
            "<a></b>",
            "<a/><a/>",
            "<a/>b",
            "b<a/>",
            "<a b='c' b='d'/>",
            "<a b=c/>",
            "<a b='<'/>",
            "<a b='c'd='e'/>",
            "<a>]]></a>",
            "<a>&#0;</a>",
            "<a>&#x110000;</a>",
            "<a>&#+65;</a>",
            "<a>&amp</a>",
            "<a>\u{1}</a>",
            "<\u{e4}/>",
            "<?xml version='1.1'?><a/>",
            "<?xml version='1.0' encoding='utf-16'?><a/>",
            "\u{feff}<a/>",
            "<a xmlns:p='q' xmlns:r='q' p:b='c' r:b='d'/>",
        ] {
            assert_eq!(fault(text), Some(XmlFault::Malformed), "{text}");
        }
        for text in [
            "<p:a/>",
            "<a p:b='c'/>",
            "<a xmlns:p=''/>",
            "<a xmlns:xml='b'/>",
            "<a xmlns='b' xmlns='c'/>",
            "<a><b xmlns:p='q'/><p:c/></a>",
        ] {
            assert_eq!(fault(text), Some(XmlFault::Namespace), "{text}");
        }
        let bytes = [b'<', b'a', b'>', 0xff, b'<', b'/', b'a', b'>'];
        assert_eq!(document(&bytes), Err(XmlFault::Malformed));
    }

    #[test]
    fn a_document_is_read_with_its_namespaces_and_letters() {
        let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                    <a xmlns='one' xmlns:p='two' b=' x\ty&#9;'><p:c p:d='&lt;&#xAC00;'>\r\n&amp;\r</p:c><e xmlns=''/></a>\n";
        let read = document(text.as_bytes()).unwrap();
        assert!(read.element(0).is("one", "a"));
        assert_eq!(read.element(0).attribute("b"), Some(" x y\t"));
        assert_eq!(read.below(0).collect::<Vec<_>>(), [1, 2]);
        assert!(read.element(1).is("two", "c"));
        assert_eq!(read.element(1).attribute("d"), None, "it has a prefix");
        assert_eq!(read.element(1).attributes[0].value, "<\u{ac00}");
        assert_eq!(read.text(1), Some("\n&\n"));
        assert!(read.element(2).is("", "e"));
        assert_eq!(read.text(2), Some(""));
        assert_eq!(read.text(0), None);
    }

    #[test]
    fn a_document_has_its_bounds() {
        let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert_eq!(fault(&nested(MAX_NESTED_ELEMENTS)), None);
        assert_eq!(
            fault(&nested(MAX_NESTED_ELEMENTS + 1)),
            Some(XmlFault::Size)
        );
        let wide = |count: usize| format!("<a>{}</a>", "<b/>".repeat(count - 1));
        assert_eq!(fault(&wide(MAX_DOCUMENT_ELEMENTS)), None);
        assert_eq!(
            fault(&wide(MAX_DOCUMENT_ELEMENTS + 1)),
            Some(XmlFault::Size)
        );
        let long = |bytes: usize| format!("<a>{}</a>", "b".repeat(bytes - 7));
        assert_eq!(fault(&long(MAX_DOCUMENT_BYTES)), None);
        assert_eq!(fault(&long(MAX_DOCUMENT_BYTES + 1)), Some(XmlFault::Size));
        let attributes = |count: usize| {
            let all: String = (0..count).map(|at| format!(" b{at}='c'")).collect();
            format!("<a{all}/>")
        };
        assert_eq!(fault(&attributes(MAX_ELEMENT_ATTRIBUTES)), None);
        let more = attributes(MAX_ELEMENT_ATTRIBUTES + 1);
        assert_eq!(fault(&more), Some(XmlFault::Size));
        let declared = |of: &str, count: usize| {
            let all: String = (0..count)
                .map(|at| format!(" xmlns:{of}{at}='c'"))
                .collect();
            format!("<a{all}>")
        };
        let (half, end) = (MAX_DECLARED_PREFIXES / 2, "</a></a>");
        let full = format!("{}{}", declared("p", half), declared("q", half));
        assert_eq!(fault(&format!("{full}{end}")), None);
        let more = format!("{full}<b xmlns:r='c'/>{end}");
        assert_eq!(fault(&more), Some(XmlFault::Size));
    }
}
