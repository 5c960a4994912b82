//! Builds the icon sprite from `web/assets/icons.txt` and the drawings in `web/vendor/icons`.
//! Never draws: a name without a drawing stops the build.

use std::fs;
use std::path::Path;

/// One SVG with a `<symbol>` per name, in the order of the list.
pub(crate) fn sprite(web: &Path) -> String {
    let list = fs::read_to_string(web.join("assets/icons.txt"))
        .expect("web/assets/icons.txt is part of the package");
    let mut sprite = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\"><!-- Lucide icons, ISC licence. Subset. -->",
    );
    for name in list
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let path = web.join("vendor/icons").join(format!("{name}.svg"));
        let body = fs::read_to_string(&path)
            .unwrap_or_else(|fault| panic!("{}: {fault}; run web/vendor/build", path.display()));
        sprite.push_str(&format!(
            "<symbol id=\"{name}\" viewBox=\"0 0 24 24\">{}</symbol>",
            body.trim()
        ));
    }
    sprite.push_str("</svg>");
    sprite
}
