//! The recipes that are built whole: Python with JupyterLab, R, C++ with code-server, and a desktop, each twice by the
//! release build. Each is then imported into a server of its own, and a session of it runs a line of what it is for. Prints
//! their sizes; a file that differs fails the stage by its name. Needs root and a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::failure::Failure;
use crate::leave_out;
use crate::program::{self, Program};
use crate::start::Server;

/// Where the recipes lie.
pub(crate) const RECIPES: &str = "packaging/environments";

/// One that is built, and a line that a session of it runs.
struct TriedRecipe {
    name: &'static str,
    /// Program and arguments, which use what the environment is for.
    line: &'static [&'static str],
}

/// Two others hold CUDA: 3 GB each to fetch, and no machine of the gate computes with it. RStudio's package is fetched by
/// hand.
const BUILT: [TriedRecipe; 4] = [
    TriedRecipe {
        name: "python-jupyter",
        line: &["python3", "-c", "import jupyterlab; print(6 * 7)"],
    },
    TriedRecipe {
        name: "r",
        line: &["Rscript", "-e", "library(MASS); cat(6 * 7, fill = TRUE)"],
    },
    TriedRecipe {
        name: WITH_ARCHIVE,
        line: &[
            "sh",
            "-c",
            "printf '%s\n' \"$1\" >/var/tmp/a.cpp && code-server --version >/dev/null && c++ -o /var/tmp/a /var/tmp/a.cpp && /var/tmp/a",
            "sh",
            "#include <iostream>\nint main() { std::cout << 6 * 7 << std::endl; }",
        ],
    },
    TriedRecipe {
        name: "desktop",
        // A terminal on a screen that nobody looks at; `cargo ci apps` looks at one.
        line: &[
            "sh",
            "-c",
            "export DISPLAY=:7; Xvnc :7 -SecurityTypes None -rfbport -1 -rfbunixpath /tmp/a >/dev/null 2>&1 & \
             timeout 20 sh -c 'until xset q >/dev/null 2>&1; do sleep 0.1; done'; \
             xterm -e sh -c 'expr 6 \\* 7 >/var/tmp/a'; cat /var/tmp/a; kill $!",
        ],
    },
];
/// What each line prints.
const PRINTED: &str = "42";
/// The version of each recipe.
const VERSION: &str = "1.0";

/// The one that needs an archive beside it, and what makes that.
const WITH_ARCHIVE: &str = "cpp-code-server";
const ARCHIVE: &str = "code-server.sh";

pub(crate) fn build(binary: &Path) -> Result<(), Failure> {
    if !program::is_root() {
        return leave_out("environments", "only root makes a tree");
    }
    if !program::installed("mmdebstrap") {
        return leave_out("environments", "mmdebstrap is not installed");
    }
    let place = program::target_directory()?.join("environments");
    remove(&place)?;
    copy(&place)?;
    let built = BUILT
        .iter()
        .try_for_each(|recipe| one(binary, &place, recipe));
    let removed = remove(&place);
    built.and(removed)
}

fn one(binary: &Path, place: &Path, recipe: &TriedRecipe) -> Result<(), Failure> {
    let name = recipe.name;
    if name == WITH_ARCHIVE {
        Program::named("sh")
            .argument(place.join(ARCHIVE))
            .argument(place)
            .run()?;
    }
    let out = place.join(format!("{name}.tar"));
    Program::named(binary)
        .words("environment build --twice --out")
        .argument(&out)
        .argument(place.join(format!("{name}.toml")))
        .run()?;
    let bytes = fs::metadata(&out).map_err(|error| fault(&out, &error))?;
    println!(
        "{name}: {} MB, two builds are equal",
        bytes.len() / 1_000_000
    );
    started(binary, &out, recipe)?;
    fs::remove_file(&out).map_err(|error| fault(&out, &error))
}

/// Imports the bundle into a server of its own, and has a session of it run its line.
fn started(binary: &Path, bundle: &Path, recipe: &TriedRecipe) -> Result<(), Failure> {
    let server = Server::start(binary)?;
    server.wait_for("/healthz", Instant::now())?;
    let client = BoxClient {
        binary,
        run: server.run_directory(),
    };
    let ran = client.run_line(bundle, recipe);
    // Sessions outlive their server, and nothing else would end these.
    let ended = client.end_sessions();
    let left = server.end();
    ran.and(ended).and(left)
}

/// The command line as root of one server.
struct BoxClient<'a> {
    binary: &'a Path,
    /// Where the server has its socket.
    run: PathBuf,
}

impl BoxClient<'_> {
    fn command(&self, words: &str) -> Program {
        Program::named(self.binary)
            .variable("FARDEL_RUN", &self.run)
            .variable("FARDEL_CONFIG", self.run.join("none.toml"))
            .words(words)
    }

    fn run_line(&self, bundle: &Path, recipe: &TriedRecipe) -> Result<(), Failure> {
        self.command("environment import --accept-unsigned")
            .argument(bundle)
            .output()?;
        let began = Instant::now();
        self.command("run --detach --wait --name tried --cpu 1 --mem 1g")
            .argument(format!("{}:{VERSION}", recipe.name))
            .words("-- sleep infinity")
            .output()?;
        let exec = self.command("exec tried --");
        let line = recipe.line.iter();
        let said = line.fold(exec, |exec, word| exec.argument(word)).output()?;
        if said.trim() != PRINTED {
            let sentence = format!("a session of {} prints {said:?}", recipe.name);
            return Err(Failure::new(sentence));
        }
        println!(
            "{}: a session of it ran a line after {:.1} s",
            recipe.name,
            began.elapsed().as_secs_f64()
        );
        Ok(())
    }

    fn end_sessions(&self) -> Result<(), Failure> {
        self.command("drain --timeout 5s").output().map(drop)
    }
}

/// Copies the recipes, so that an archive made for one is no file of the tree.
fn copy(place: &Path) -> Result<(), Failure> {
    fs::create_dir_all(place).map_err(|error| fault(place, &error))?;
    let recipes = Path::new(RECIPES);
    for entry in fs::read_dir(recipes).map_err(|error| fault(recipes, &error))? {
        let entry = entry.map_err(|error| fault(recipes, &error))?;
        let path = entry.path();
        fs::copy(&path, place.join(entry.file_name())).map_err(|error| fault(&path, &error))?;
    }
    Ok(())
}

fn remove(place: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fault(place, &error)),
        _ => Ok(()),
    }
}

fn fault(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
