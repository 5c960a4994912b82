//! Files of recipes: TOML. Reads no file and builds nothing.

use rules::recipe::Recipe;
use rules::refusal::Refusal;
use rules::refusals;

/// The recipe that a file holds, checked.
///
/// Errors: `environment.recipe` with what is wrong in one line, those of `Recipe::check`.
pub fn read(text: &str) -> Result<Recipe, Refusal> {
    let read: Result<Recipe, toml::de::Error> = toml::from_str(text);
    let recipe =
        read.map_err(|error| refusals::environment_recipe(error.message().replace('\n', " ")))?;
    recipe.check()?;
    Ok(recipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_recipe_or_says_why_not() {
        let text = r#"
name = "tiny"
version = "1.0"
title = {en = "Tiny", ko = "작은 것"}
architectures = ["amd64"]
[base]
root = "root"
epoch = 1750000000
[[file]]
path = "/etc/motd"
text = "hello"
[[app]]
name = "own"
port = 9000
"#;
        let recipe = read(text).expect("good");
        assert_eq!(recipe.reference(), "tiny:1.0");
        assert_eq!((recipe.files.len(), recipe.apps.len()), (1, 1));
        for (wrong, code) in [
            (text.replace("[base]", "[bass]"), "environment.recipe"),
            (text.replace("tiny", "Tiny!"), "environment.name"),
            (text.replace("amd64", "ppc"), "environment.recipe-field"),
            (text.replace("\"own\"", "\"9\""), "app.name-invalid"),
        ] {
            assert_eq!(read(&wrong).expect_err(code).code, code);
        }
    }
}
