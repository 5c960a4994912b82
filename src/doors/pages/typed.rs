//! What people type into forms, as the rules read it, and what a form shows to be read back. Never judges it.

use std::borrow::Cow;

use rules::units::Bytes;

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

/// A size that is read back as it is: a form that is sent again changes nothing.
pub fn exact(value: u64) -> String {
    let shown = Bytes(value).to_string();
    if Bytes::parse(&shown).is_ok_and(|read| read == Bytes(value)) {
        return shown;
    }
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units
        .into_iter()
        .find(|(_, shift)| value.is_multiple_of(1 << shift));
    match unit {
        Some((unit, shift)) => format!("{} {unit}", value >> shift),
        None => format!("{value} B"),
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
