//! Files of an image that describe its apps: TOML, a table `[[app]]` for each.

use rules::app::AppSource;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppFileText {
    #[serde(default)]
    app: Vec<AppSource>,
}

/// The apps that a file describes.
///
/// Errors: what is wrong with the text, in one line.
pub fn described(text: &str) -> Result<Vec<AppSource>, String> {
    let read: Result<AppFileText, toml::de::Error> = toml::from_str(text);
    read.map(|file| file.app)
        .map_err(|error| error.message().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use rules::app::apps_of_image;

    use super::*;

    #[test]
    fn a_file_describes_apps_in_toml() {
        let text = r#"
[[app]]
name = "jupyter"
title = {en = "JupyterLab"}
command = ["jupyter-lab", "--port={port}"]
port = 8888
health = "/api"
open = "/lab"

[[app]]
name = "own"
port = 9000
"#;
        let apps = apps_of_image(described(text).expect("good")).expect("good");
        let seen: Vec<_> = apps
            .iter()
            .map(|app| (app.choice.to_string(), app.port, app.program.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("jupyter".to_owned(), 8888, "jupyter-lab"),
                ("own".to_owned(), 9000, "")
            ]
        );
        assert!(described("").expect("nothing").is_empty());
        for wrong in [
            "app = 1",
            "[[app]]\nname = \"a\"",
            "[[app]]\nname = \"a\"\nport = 1\nrun = \"x\"",
            "[[apps]]",
            "[[app",
        ] {
            let said = described(wrong).expect_err(wrong);
            assert!(!said.is_empty() && !said.contains('\n'), "{wrong}: {said}");
        }
    }
}
