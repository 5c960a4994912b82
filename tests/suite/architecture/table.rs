//! Reads the tables of ARCHITECTURE.md and of CONTRIBUTING.md. Judges nothing.

use super::source::Tree;

/// Rooms, modules, doors, the walk, and where to change what.
pub(super) const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// Promises with their tests.
pub(super) const SPECIFICATION: &str = "tests/SPECIFICATION.md";
/// Third-party packages with their reasons.
pub(super) const CONTRIBUTING: &str = "CONTRIBUTING.md";

/// What the documents say, row by row.
pub(super) struct Tables {
    pub(super) rooms: Vec<Room>,
    pub(super) modules: Vec<Module>,
    /// What a door, or all of them, may name of other rooms: `rules`, `server::actions`.
    pub(super) doors: Vec<Module>,
    pub(super) packages: Vec<(String, usize)>,
    /// Rows of the walk: line, and what stands in back quotes under "Where".
    pub(super) walk: Vec<(usize, Vec<String>)>,
    /// Rows of "Where to change what", in the same form.
    pub(super) places: Vec<(usize, Vec<String>)>,
}

/// A row of "Between rooms".
pub(super) struct Room {
    pub(super) name: String,
    pub(super) may_use: Vec<String>,
    /// Packages that stand in no other room's manifest.
    pub(super) homed: Vec<String>,
    /// The only packages of a room that is closed to all others.
    pub(super) nothing_but: Option<Vec<String>>,
}

/// A row of "Inside rooms": `server/access : catalog`, or `root/doors/pages : doors/text`.
pub(super) struct Module {
    pub(super) room: String,
    pub(super) module: String,
    pub(super) may_use: Vec<String>,
}

impl Module {
    pub(super) fn allows_everything(&self) -> bool {
        self.may_use.iter().any(|name| name == "*")
    }

    pub(super) fn allows(&self, other: &str) -> bool {
        self.allows_everything() || self.module == other || self.may_use.iter().any(|n| n == other)
    }
}

/// Where a room's code lies.
pub(super) fn folder(room: &str) -> String {
    if room == "root" {
        "src".to_owned()
    } else {
        format!("src/{room}")
    }
}

/// Where a room's manifest lies.
pub(super) fn manifest(room: &str) -> String {
    if room == "root" {
        "Cargo.toml".to_owned()
    } else {
        format!("src/{room}/Cargo.toml")
    }
}

impl Tables {
    /// Reads the six tables, or says which one is missing or has a row that cannot be read.
    pub(super) fn read(tree: &Tree) -> Result<Self, String> {
        let mut rooms = Vec::new();
        for (line, cells) in rows(tree, ARCHITECTURE, "rooms")? {
            let [name, may_use, packages] = cells.as_slice() else {
                return Err(format!("ARCHITECTURE.md:{line}: a room has three columns"));
            };
            let closed = packages.starts_with("nothing but");
            rooms.push(Room {
                name: quoted(name).concat(),
                may_use: quoted(may_use),
                homed: if closed { Vec::new() } else { quoted(packages) },
                nothing_but: closed.then(|| quoted(packages)),
            });
        }
        let modules = pairs(tree, "modules")?;
        let doors = pairs(tree, "doors")?;
        let packages = rows(tree, CONTRIBUTING, "packages")?
            .into_iter()
            .map(|(line, cells)| (quoted(&cells[0]).concat(), line))
            .collect();
        let second = |(line, cells): (usize, Vec<String>)| {
            let names = cells.get(1).map(|cell| quoted(cell));
            (line, names.unwrap_or_default())
        };
        let walk = rows(tree, ARCHITECTURE, "walk")?;
        let places = rows(tree, ARCHITECTURE, "places")?;
        Ok(Self {
            walk: walk.into_iter().map(second).collect(),
            places: places.into_iter().map(second).collect(),
            rooms,
            modules,
            doors,
            packages,
        })
    }

    /// The row of a module, if it has one.
    pub(super) fn module(&self, room: &str, module: &str) -> Option<&Module> {
        self.modules
            .iter()
            .find(|row| row.room == room && row.module == module)
    }
}

/// The lines between a table's marks, with their numbers.
fn between<'a>(tree: &'a Tree, file: &str, name: &str) -> Result<Vec<(usize, &'a str)>, String> {
    let document = tree.text(file).ok_or(format!("{file} is missing"))?;
    let begin = format!("<!-- {name} begin -->");
    let end = format!("<!-- {name} end -->");
    let found: Vec<(usize, &str)> = document
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()))
        .skip_while(|(_, line)| *line != begin)
        .skip(1)
        .take_while(|(_, line)| *line != end)
        .collect();
    if found.is_empty() {
        Err(format!("{file}: no table {begin}"))
    } else {
        Ok(found)
    }
}

/// The body rows of a Markdown table.
fn rows(tree: &Tree, file: &str, name: &str) -> Result<Vec<(usize, Vec<String>)>, String> {
    let cells = |line: &str| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    Ok(between(tree, file, name)?
        .into_iter()
        .filter(|(_, line)| line.starts_with('|'))
        .skip(2)
        .map(|(at, line)| (at, cells(line)))
        .collect())
}

/// The lines `room/module : neighbour neighbour` of a fenced block of ARCHITECTURE.md.
fn pairs(tree: &Tree, name: &str) -> Result<Vec<Module>, String> {
    let mut found = Vec::new();
    for (at, line) in between(tree, ARCHITECTURE, name)? {
        if line.is_empty() || line.starts_with("```") {
            continue;
        }
        // The first colon that is no part of a path.
        let row = line
            .split_once(" :")
            .or_else(|| line.split_once(": "))
            .or_else(|| line.strip_suffix(':').map(|left| (left, "")))
            .and_then(|(left, right)| Some((left.trim().split_once('/')?, right)));
        let Some(((room, module), right)) = row else {
            return Err(format!(
                "ARCHITECTURE.md:{at}: a row reads `room/module : neighbours`"
            ));
        };
        found.push(Module {
            room: room.to_owned(),
            module: module.to_owned(),
            may_use: right.split_whitespace().map(str::to_owned).collect(),
        });
    }
    Ok(found)
}

/// The words in back quotes.
pub(super) fn quoted(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}
