//! The text of a checkout and the names in it: files, tokens, module paths, references.
//! Knows Rust's spelling, not its meaning; knows no rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// Folders that hold what is ours.
const FOLDERS: [&str; 5] = ["src", "packaging", "tests", "web", "assets"];

/// Files at the top that are read too.
const TOP: [&str; 5] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "README.md",
    "SECURITY.md",
];

/// A checkout in memory: the documents, the manifests, every script and `.rs` file, by path from its root,
/// and the names of all other files.
#[derive(Clone, Default)]
pub(super) struct Tree {
    files: BTreeMap<String, String>,
    others: BTreeSet<String>,
}

impl Tree {
    /// Reads the checkout at `root`. Fails when a folder or file cannot be read or is not UTF-8.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        let mut others = BTreeSet::new();
        others.insert("LICENSE".to_owned());
        for name in TOP {
            files.insert(name.to_owned(), fs::read_to_string(root.join(name))?);
        }
        let mut waiting: Vec<String> = FOLDERS.iter().map(|&folder| folder.to_owned()).collect();
        while let Some(folder) = waiting.pop() {
            if !root.join(&folder).exists() {
                continue;
            }
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
                if entry.file_type()?.is_dir() {
                    if !path.ends_with("/target") && !path.ends_with("/node_modules") {
                        waiting.push(path);
                    }
                } else if [".rs", "/Cargo.toml", ".md", ".mjs", ".sh", ".py"]
                    .iter()
                    .any(|end| path.ends_with(end))
                {
                    files.insert(path, fs::read_to_string(entry.path())?);
                } else {
                    others.insert(path);
                }
            }
        }
        Ok(Self { files, others })
    }

    /// Writes every file below `root`.
    pub(super) fn write(&self, root: &Path) -> io::Result<()> {
        for (path, text) in &self.files {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap_or(root))?;
            fs::write(file, text)?;
        }
        Ok(())
    }

    /// The same documents and manifests, no code.
    pub(super) fn without_code(mut self) -> Self {
        self.files.retain(|path, _| !path.ends_with(".rs"));
        self
    }

    /// Whether a file of this path is there, of whatever kind.
    pub(super) fn holds(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.others.contains(path)
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Every file that was read, with its text, by path.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ending("")
    }

    /// Every `.rs` file with its text, by path.
    pub(super) fn code(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ending(".rs")
    }

    /// Every document with its text, by path.
    pub(super) fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ending(".md")
    }

    /// Every manifest with its text, by path.
    pub(super) fn manifests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ending("Cargo.toml")
    }

    fn ending(&self, end: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.ends_with(end))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Puts a file there, replacing what was.
    pub(super) fn plant(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), text.to_owned());
    }

    /// Adds a dependency at the head of the manifest's list; answers its line.
    pub(super) fn plant_dependency(&mut self, manifest: &str, package: &str) -> usize {
        let text = &self.files[manifest];
        let head = "[dependencies]\n";
        let at = text.find(head).expect("every manifest of ours has a list") + head.len();
        let planted = format!("{}{package}.workspace = true\n{}", &text[..at], &text[at..]);
        self.files.insert(manifest.to_owned(), planted);
        self.dependency_line(manifest, package)
            .expect("it was just written")
    }

    /// The first line on which a manifest names the package.
    pub(super) fn dependency_line(&self, manifest: &str, package: &str) -> Option<usize> {
        dependencies(self.text(manifest)?)
            .into_iter()
            .find(|dependency| dependency.package == package)
            .map(|dependency| dependency.line)
    }
}

/// A package that a manifest asks for, under the name it is published by.
pub(super) struct Dependency {
    pub(super) package: String,
    pub(super) line: usize,
    /// Only tests of that package see it.
    pub(super) only_tests: bool,
}

/// Lists what a manifest asks for, in its order, from all its lists, those for one target included.
/// `[workspace.dependencies]` asks for nothing and is left out.
pub(super) fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    let mut list: Option<bool> = None;
    for (at, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            list = None;
            if header.starts_with("workspace") {
                continue;
            }
            for kind in ["dev-dependencies", "build-dependencies", "dependencies"] {
                let only_tests = kind == "dev-dependencies";
                if header == kind || header.ends_with(&format!(".{kind}")) {
                    list = Some(only_tests);
                    break;
                }
                // `[dependencies.name]` spells one package as a table of its own.
                if let Some((before, name)) = header.rsplit_once('.')
                    && (before == kind || before.ends_with(&format!(".{kind}")))
                {
                    found.push(Dependency {
                        package: name.to_owned(),
                        line: at + 1,
                        only_tests,
                    });
                    break;
                }
            }
            continue;
        }
        let (Some(only_tests), Some((name, value))) = (list, line.split_once('=')) else {
            continue;
        };
        if line.starts_with('#') {
            continue;
        }
        let name = name.trim().trim_end_matches(".workspace").trim_matches('"');
        let package = value
            .split_once("package = \"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .map_or(name, |(renamed, _)| renamed);
        found.push(Dependency {
            package: package.to_owned(),
            line: at + 1,
            only_tests,
        });
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Word,
    Symbol,
    /// The inside of a string literal, escapes as they stand.
    Text,
}

/// One token; comments, character literals, lifetimes and white space are none.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) text: String,
    pub(super) line: usize,
}

impl Token {
    fn is(&self, kind: Kind, text: &str) -> bool {
        self.kind == kind && self.text == text
    }
}

/// Splits source text into tokens. Text that is no Rust gives some tokens and no panic.
pub(super) fn tokens(source: &str) -> Vec<Token> {
    let text: Vec<char> = source.chars().collect();
    let at = |index: usize| text.get(index).copied().unwrap_or('\0');
    let word = |letter: char| letter == '_' || letter.is_alphanumeric();
    let mut found = Vec::new();
    let (mut index, mut line) = (0, 1);
    while index < text.len() {
        let start = index;
        let letter = at(index);
        let started_on = line;
        if letter.is_whitespace() {
            index += 1;
        } else if letter == '/' && at(index + 1) == '/' {
            while index < text.len() && at(index) != '\n' {
                index += 1;
            }
        } else if letter == '/' && at(index + 1) == '*' {
            let mut depth = 0;
            loop {
                if at(index) == '/' && at(index + 1) == '*' {
                    depth += 1;
                    index += 2;
                } else if at(index) == '*' && at(index + 1) == '/' {
                    depth -= 1;
                    index += 2;
                } else {
                    index += 1;
                }
                if depth == 0 || index >= text.len() {
                    break;
                }
            }
        } else if let Some((inside, end)) = string_literal(&text, index) {
            found.push(Token {
                kind: Kind::Text,
                text: inside,
                line: started_on,
            });
            index = end;
        } else if letter == '\'' {
            index += 1;
            if at(index) == '\\' {
                index += 2;
                while index < text.len() && at(index) != '\'' {
                    index += 1;
                }
                index += 1;
            } else if at(index + 1) == '\'' {
                index += 2;
            } else {
                while word(at(index)) {
                    index += 1;
                }
            }
        } else if word(letter) {
            if letter == 'r' && at(index + 1) == '#' && word(at(index + 2)) {
                index += 2;
            }
            let begin = index;
            while word(at(index)) {
                index += 1;
            }
            let text = text[begin..index].iter().collect();
            found.push(Token {
                kind: Kind::Word,
                text,
                line: started_on,
            });
        } else {
            let length = if letter == ':' && at(index + 1) == ':' {
                2
            } else {
                1
            };
            let text = text[index..index + length].iter().collect();
            found.push(Token {
                kind: Kind::Symbol,
                text,
                line: started_on,
            });
            index += length;
        }
        index = index.min(text.len());
        line += text[start..index]
            .iter()
            .filter(|&&letter| letter == '\n')
            .count();
    }
    found
}

/// The inside of the string literal that starts at `index` and the index behind it, if one does.
fn string_literal(text: &[char], index: usize) -> Option<(String, usize)> {
    let at = |index: usize| text.get(index).copied().unwrap_or('\0');
    let mut begin = index;
    if matches!(at(begin), 'b' | 'c') {
        begin += 1;
    }
    let raw = at(begin) == 'r';
    if raw {
        begin += 1;
    }
    let mut fences = 0;
    while raw && at(begin) == '#' {
        fences += 1;
        begin += 1;
    }
    if at(begin) != '"' {
        return None;
    }
    begin += 1;
    let mut end = begin;
    while end < text.len() {
        if at(end) == '\\' && !raw {
            end += 2;
            continue;
        }
        if at(end) == '"' && (1..=fences).all(|fence| at(end + fence) == '#') {
            return Some((text[begin..end].iter().collect(), end + 1 + fences));
        }
        end += 1;
    }
    Some((text[begin.min(text.len())..].iter().collect(), text.len()))
}

/// A path that the code names, resolved as far as spelling allows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// Inside the same package, from its root: `crate::a::b`, `super::b`, `self::b`.
    Inner { path: Vec<String>, line: usize },
    /// Anything else that has a `::` in it or stands in a `use`: `std::fs::read`.
    Outer { path: Vec<String>, line: usize },
}

/// One file, cut into tokens, with the inline module each token stands in.
pub(super) struct Source {
    pub(super) tokens: Vec<Token>,
    /// For each token: the inline modules around it, and whether one of them is for tests only.
    places: Vec<(Vec<String>, bool)>,
}

impl Source {
    pub(super) fn parse(text: &str) -> Self {
        let tokens = tokens(text);
        let mut places = Vec::with_capacity(tokens.len());
        let mut open: Vec<(String, bool, usize)> = Vec::new();
        let mut depth = 0_usize;
        for at in 0..tokens.len() {
            if tokens[at].is(Kind::Symbol, "}") {
                depth = depth.saturating_sub(1);
                if open.last().is_some_and(|(_, _, opened)| *opened == depth) {
                    open.pop();
                }
            }
            let path = open.iter().map(|(name, _, _)| name.clone()).collect();
            places.push((path, open.iter().any(|(_, test, _)| *test)));
            if tokens[at].is(Kind::Symbol, "{") {
                let named = at >= 2
                    && tokens[at - 2].is(Kind::Word, "mod")
                    && tokens[at - 1].kind == Kind::Word;
                if named {
                    let test = for_tests(&tokens[..at - 2]);
                    open.push((tokens[at - 1].text.clone(), test, depth));
                }
                depth += 1;
            }
        }
        Self { tokens, places }
    }

    /// Whether the token stands in a `#[cfg(test)]` module of this file.
    pub(super) fn in_test(&self, token: usize) -> bool {
        self.places[token].1
    }

    /// Lists the paths that the file names; `module` is its own place in the package.
    pub(super) fn references(&self, module: &[String]) -> Vec<(Reference, usize)> {
        let mut found = Vec::new();
        let mut at = 0;
        let children = self.children();
        while at < self.tokens.len() {
            let first = at;
            let in_use = self.tokens[at].is(Kind::Word, "use");
            if in_use {
                at += 1;
            }
            let leading = self.symbol(at, "::");
            if leading {
                at += 1;
            }
            let starts = in_use
                || (self.word(at)
                    && self.symbol(at + 1, "::")
                    && !self.continues(first)
                    && !leading)
                || (leading && self.word(at) && !self.continues(first));
            if !starts {
                at = first + 1;
                continue;
            }
            let mut leaves = Vec::new();
            let end = self.leaves(at, &[], &mut leaves);
            for (path, line) in leaves {
                let reference = self.resolve(&children, module, first, path, line);
                found.extend(reference.map(|reference| (reference, first)));
            }
            at = end.max(first + 1);
        }
        found
    }

    /// Modules that this file declares; their names win over packages of the same name.
    fn children(&self) -> Vec<&str> {
        let mut found = Vec::new();
        for pair in self.tokens.windows(3) {
            if pair[0].is(Kind::Word, "mod")
                && pair[1].kind == Kind::Word
                && pair[2].kind == Kind::Symbol
            {
                found.push(pair[1].text.as_str());
            }
        }
        found
    }

    /// Modules that this file declares for tests only and keeps in files of their own.
    pub(super) fn test_modules(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (at, three) in self.tokens.windows(3).enumerate() {
            let declares = three[0].is(Kind::Word, "mod") && three[2].is(Kind::Symbol, ";");
            if declares && for_tests(&self.tokens[..at]) {
                found.push(three[1].text.clone());
            }
        }
        found
    }

    fn word(&self, at: usize) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|token| token.kind == Kind::Word)
    }

    fn symbol(&self, at: usize, text: &str) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|token| token.is(Kind::Symbol, text))
    }

    /// Whether the token only goes on with a longer path or names a visibility.
    fn continues(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else {
            return false;
        };
        self.symbol(before, "::")
            || self.symbol(before, ".")
            || (self.tokens[before].is(Kind::Word, "in")
                && self.symbol(before.wrapping_sub(1), "("))
    }

    /// Collects the ends of a path or `use` tree; answers the index of the token behind it.
    fn leaves(
        &self,
        mut at: usize,
        prefix: &[String],
        found: &mut Vec<(Vec<String>, usize)>,
    ) -> usize {
        let mut path = prefix.to_vec();
        let mut line = self.tokens.get(at).map_or(0, |token| token.line);
        loop {
            let Some(token) = self.tokens.get(at) else {
                found.push((path, line));
                return at;
            };
            if token.kind == Kind::Word {
                line = token.line;
                path.push(token.text.clone());
                at += 1;
                if self.symbol(at, "::") {
                    at += 1;
                    continue;
                }
                found.push((path, line));
                if self
                    .tokens
                    .get(at)
                    .is_some_and(|token| token.is(Kind::Word, "as"))
                {
                    at += 2;
                }
                return at;
            }
            if token.is(Kind::Symbol, "*") {
                path.push("*".to_owned());
                found.push((path, token.line));
                return at + 1;
            }
            if token.is(Kind::Symbol, "{") {
                at += 1;
                while at < self.tokens.len() && !self.symbol(at, "}") {
                    let before = at;
                    at = self.leaves(at, &path, found);
                    if self.symbol(at, ",") || at == before {
                        at += 1;
                    }
                }
                return at + 1;
            }
            found.push((path, line));
            return at;
        }
    }

    fn resolve(
        &self,
        children: &[&str],
        module: &[String],
        token: usize,
        path: Vec<String>,
        line: usize,
    ) -> Option<Reference> {
        let (inline, _) = &self.places[token];
        let mut here: Vec<String> = module.iter().chain(inline).cloned().collect();
        let mut rest = path.iter().peekable();
        match path.first()?.as_str() {
            "crate" | "fardel" => {
                here.clear();
                rest.next();
            }
            "self" => {
                rest.next();
            }
            "super" => {
                while rest.next_if(|word| *word == "super").is_some() {
                    here.pop();
                }
            }
            name if children.contains(&name) => {}
            _ => return Some(Reference::Outer { path, line }),
        }
        here.extend(rest.filter(|word| *word != "self").cloned());
        Some(Reference::Inner { path: here, line })
    }
}

/// Whether the tokens before `mod` end in `#[cfg(test)]`, a visibility aside.
fn for_tests(before: &[Token]) -> bool {
    let mut end = before.len();
    if end > 0 && before[end - 1].is(Kind::Symbol, ")") {
        while end > 0 && !before[end - 1].is(Kind::Word, "pub") {
            end -= 1;
        }
    }
    if end > 0 && before[end - 1].is(Kind::Word, "pub") {
        end -= 1;
    }
    let mark = ["#", "[", "cfg", "(", "test", ")", "]"];
    end >= mark.len()
        && before[end - mark.len()..end]
            .iter()
            .zip(mark)
            .all(|(token, text)| token.text == text)
}
