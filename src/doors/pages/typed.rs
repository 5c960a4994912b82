//! What people type into forms, as the rules read it. Never decides whether it is right.

use std::borrow::Cow;

/// The same with a decimal point where a decimal comma was typed: `0,5`. A comma before three digits may part
/// thousands, so it stays and is refused.
pub fn point(typed: &str) -> Cow<'_, str> {
    let Some((whole, rest)) = typed.split_once(',') else {
        return Cow::Borrowed(typed);
    };
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    let decimal = whole.trim().chars().all(|c| c.is_ascii_digit())
        && digits > 0
        && digits != 3
        && !rest.contains(',');
    match decimal {
        true => Cow::Owned(format!("{whole}.{rest}")),
        false => Cow::Borrowed(typed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_comma_is_a_point_and_a_comma_of_thousands_is_none() {
        for (typed, read) in [
            ("0,5", "0.5"),
            ("1,25 g", "1.25 g"),
            (" 2,5", " 2.5"),
            ("0.5", "0.5"),
            ("1,000", "1,000"),
            ("1,000,5", "1,000,5"),
            ("a,5", "a,5"),
            ("5,", "5,"),
        ] {
            assert_eq!(point(typed), read, "{typed:?}");
        }
    }
}
