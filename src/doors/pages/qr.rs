//! Text as a picture that phones read. Draws only; the text is the caller's.

/// The picture as SVG for the inside of a page; empty for text that is too long for one.
pub(super) fn picture(text: &str) -> String {
    qrcode::QrCode::new(text).map_or_else(
        |_| String::new(),
        |drawn| {
            let svg = drawn
                .render::<qrcode::render::svg::Color<'_>>()
                .min_dimensions(160, 160)
                .build();
            // Inside a page there is no declaration.
            svg.find("<svg").map_or_else(String::new, |at| {
                // Its frame says in words what it is.
                format!("<svg aria-hidden=\"true\"{}", &svg[at + 4..])
            })
        },
    )
}
