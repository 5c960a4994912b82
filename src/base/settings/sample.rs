//! Writes the settings file that a package installs: every key, what it does and its default, all of it
//! commented out. Never says anything that `KEYS` does not.

use super::KEYS;

/// The text of a settings file in which nothing is set yet.
///
/// As it is, it changes nothing; a key takes effect when the `#` in front of it is removed.
pub fn sample() -> String {
    let mut text = String::from(
        "# Settings of fardel. Remove the # in front of a key to set it; what stands here is its default.\n\
         # Files in conf.d beside this one, variables and flags win over it, in this order.\n\
         # `fardel config validate` checks it, `fardel config show` tells what is in force and why.\n\
         # After a change: systemctl reload fardel. Keys marked (restart): systemctl restart fardel;\n\
         # sessions go on in both cases.\n",
    );
    for key in KEYS {
        let restart = if key.needs_restart { " (restart)" } else { "" };
        let (value, note) = if key.default.is_empty() {
            (key.example, " Not set; an example:")
        } else {
            (key.default, "")
        };
        let mut about = key.about.to_owned();
        if let Some(first) = about.get(..1).map(str::to_uppercase) {
            about.replace_range(..1, &first);
        }
        text.push_str(&format!(
            "\n# {about}{restart}. Variable {}.{note}\n#{} = {value}\n",
            key.variable, key.key
        ));
    }
    text
}
