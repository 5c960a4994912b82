//! Markup as browsers get it: marks that turn the reading direction are shown as a replacement character,
//! wherever they came from. Our own templates have none. Never changes what is stored.

use rules::session::{has_turned_direction, turns_direction};

/// The same markup, with a replacement character for each such mark. Costs one look at each byte.
pub fn visible(markup: String) -> String {
    // Nearly all markup has none of them.
    if has_turned_direction(&markup) {
        markup.replace(turns_direction, "\u{fffd}")
    } else {
        markup
    }
}
