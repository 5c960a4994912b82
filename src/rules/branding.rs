//! How a site looks beside the product: its name, its logo, one hue, and short texts. Says what is refused. No markup and no
//! style: these are words, and one colour of the design.

use crate::refusal::Refusal;
use crate::refusals;
use crate::session::hidden;

/// Hues of the design that a site may take for its accent.
pub const HUES: u8 = 8;
/// Characters of the name. Higher: it does not fit the menu. Lower: a department's name does not.
pub const MAX_BRAND_NAME: usize = 40;
/// Characters of the footer. Higher: it covers a phone. Lower: a contact does not fit.
pub const MAX_FOOTER_LENGTH: usize = 200;
/// Characters of the text beside the sign-in. Higher: the form is below the screen. Lower: a rule of use does not fit.
pub const MAX_SIGN_IN_TEXT: usize = 500;
/// Bytes of a logo. Higher: each first page takes longer. Lower: a photo of a sign does not fit.
pub const MAX_LOGO_BYTES: usize = 100 << 10;
/// Pixels of a side of a logo. Higher: few bytes unpack to much memory in each browser.
pub const MAX_LOGO_PIXELS: u32 = 2_048;

/// What each PNG file begins with.
const MAGIC: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];

/// A text as it is kept: one line of plain text without blanks around it.
///
/// Errors: `branding.text-too-long`, `branding.hidden-characters`, each at `pointer`.
pub fn brand_text(typed: &str, most: usize, pointer: &str) -> Result<String, Refusal> {
    let text = typed.trim();
    let length = text.chars().count();
    if length > most {
        return Err(refusals::branding_text_too_long(length, most).at(pointer));
    }
    match text.chars().any(hidden) {
        true => Err(refusals::branding_hidden_characters().at(pointer)),
        false => Ok(text.to_owned()),
    }
}

/// Refuses a hue that the design does not have. Errors: `branding.hue` at `/hue`.
pub fn check_hue(hue: u8) -> Result<u8, Refusal> {
    match (1..=HUES).contains(&hue) {
        true => Ok(hue),
        false => Err(refusals::branding_hue(HUES).at("/hue")),
    }
}

/// Refuses a logo that is no PNG, too many bytes, or too many pixels.
///
/// Errors: `branding.logo-too-large`, `branding.logo-no-png`, each at `/logo`.
pub fn check_logo(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes.len() > MAX_LOGO_BYTES {
        return Err(refusals::branding_logo_too_large(MAX_LOGO_BYTES / 1024).at("/logo"));
    }
    let no_png = || refusals::branding_logo_no_png(MAX_LOGO_PIXELS).at("/logo");
    let rest = bytes.strip_prefix(&MAGIC).ok_or_else(no_png)?;
    // The first chunk is the header, by the specification: a length of 13, its name, then both sides.
    let head = rest.strip_prefix(b"\0\0\0\x0dIHDR").ok_or_else(no_png)?;
    let side = |at: usize| {
        let four = head.get(at..at + 4)?;
        Some(u32::from_be_bytes(four.try_into().ok()?))
    };
    match (side(0), side(4)) {
        (Some(width), Some(height))
            if (1..=MAX_LOGO_PIXELS).contains(&width)
                && (1..=MAX_LOGO_PIXELS).contains(&height) =>
        {
            Ok(())
        }
        _ => Err(no_png()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(b"\0\0\0\x0dIHDR");
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.extend([8, 6, 0, 0, 0]);
        bytes
    }

    #[test]
    fn a_logo_is_a_png_of_few_bytes_and_pixels() {
        assert!(check_logo(&png(512, MAX_LOGO_PIXELS)).is_ok());
        let mut large = png(8, 8);
        large.resize(MAX_LOGO_BYTES, 0);
        assert!(check_logo(&large).is_ok());
        large.push(0);
        let code = |bytes: &[u8]| check_logo(bytes).map_err(|refusal| refusal.code);
        let no_png = Err("branding.logo-no-png".to_owned());
        assert_eq!(code(&large), Err("branding.logo-too-large".to_owned()));
        assert_eq!(code(&png(0, 8)), no_png);
        assert_eq!(code(&png(8, MAX_LOGO_PIXELS + 1)), no_png);
        assert_eq!(code(&MAGIC), no_png);
        assert_eq!(code(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), no_png);
        assert_eq!(code(b"GIF89a"), no_png);
        assert_eq!(code(b""), no_png);
    }

    #[test]
    fn texts_are_short_and_plain_and_hues_are_of_the_design() {
        assert_eq!(
            brand_text(" Vision Lab ", 40, "/name").unwrap(),
            "Vision Lab"
        );
        assert!(brand_text(&"a".repeat(41), 40, "/name").is_err());
        assert!(brand_text("a\nb", 40, "/name").is_err());
        assert!(brand_text("a\u{202e}b", 40, "/name").is_err());
        // Markup is text: pages escape it.
        assert!(brand_text("<b>Lab</b>", 40, "/name").is_ok());
        assert_eq!((1..=HUES).map(check_hue).filter(Result::is_ok).count(), 8);
        assert!(check_hue(0).is_err() && check_hue(HUES + 1).is_err());
    }
}
