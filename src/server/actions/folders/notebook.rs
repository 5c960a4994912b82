//! A Jupyter notebook as cells to be read: sources and outputs as text, and images of the sorts that pages show. Nothing of it
//! is run, and no HTML, SVG or script of it is given to a page. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use store::folders::files::image;

/// Bytes of a notebook that is shown as cells; a larger one is shown as text. Higher: pages that take long to draw.
pub(super) const MAX_NOTEBOOK_BYTES: usize = 4 << 20;
/// Cells, outputs of one, and letters of one text that are shown.
const MAX_CELLS: usize = 200;
const MAX_OUTPUTS: usize = 20;
const MAX_LETTERS: usize = 20_000;

/// What a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    Code,
    Text,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotebookCell {
    pub kind: CellKind,
    pub source: String,
    pub outputs: Vec<CellOutput>,
}

/// What a cell gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellOutput {
    Text(String),
    /// An image as an address of `data:`; its sort is told by its bytes.
    Image(String),
    /// Something that is not shown: a page, a drawing with script, or more than a page takes.
    Hidden,
}

/// The cells of a notebook, and whether more come behind; None where the text is no notebook.
pub(super) fn cells(text: &str) -> Option<(Vec<NotebookCell>, bool)> {
    let whole: Value = serde_json::from_str(text).ok()?;
    whole.get("nbformat")?.as_u64()?;
    let all = whole.get("cells")?.as_array()?;
    let cells = all.iter().take(MAX_CELLS).map(cell).collect();
    Some((cells, all.len() > MAX_CELLS))
}

fn cell(cell: &Value) -> NotebookCell {
    let kind = match cell["cell_type"].as_str() {
        Some("code") => CellKind::Code,
        _ => CellKind::Text,
    };
    let given = cell["outputs"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut outputs: Vec<CellOutput> = given.iter().take(MAX_OUTPUTS).map(output).collect();
    if given.len() > MAX_OUTPUTS {
        outputs.push(CellOutput::Hidden);
    }
    NotebookCell {
        kind,
        source: cut(joined(&cell["source"])),
        outputs,
    }
}

fn output(output: &Value) -> CellOutput {
    match output["output_type"].as_str() {
        Some("stream") => CellOutput::Text(cut(joined(&output["text"]))),
        Some("error") => {
            let lines = output["traceback"].as_array();
            let lines = lines.map(Vec::as_slice).unwrap_or_default().iter();
            let lines: Vec<&str> = lines.filter_map(Value::as_str).collect();
            CellOutput::Text(cut(uncoloured(&lines.join("\n"))))
        }
        Some("display_data" | "execute_result") => data(&output["data"]),
        _ => CellOutput::Hidden,
    }
}

/// Of several forms of one output: an image that pages show, or else its text.
fn data(data: &Value) -> CellOutput {
    for kind in ["image/png", "image/jpeg", "image/gif", "image/webp"] {
        let text: String = joined(&data[kind]).split_whitespace().collect();
        if text.is_empty() {
            continue;
        }
        // What it says of itself counts for nothing: its bytes tell what it is.
        let bytes = STANDARD.decode(&text).unwrap_or_default();
        if let Some(kind) = image(&bytes) {
            return CellOutput::Image(format!("data:{kind};base64,{}", STANDARD.encode(bytes)));
        }
    }
    match &data["text/plain"] {
        Value::Null => CellOutput::Hidden,
        text => CellOutput::Text(cut(joined(text))),
    }
}

/// A text, or one in lines.
fn joined(text: &Value) -> String {
    match text {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_LETTERS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A traceback without the codes that colour it in a terminal.
fn uncoloured(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\u{1b}' => {
                // Up to the letter that ends the code.
                let _ = rest.find(char::is_ascii_alphabetic);
            }
            letter => plain.push(letter),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_notebook_is_text_and_images_and_nothing_of_it_runs() {
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\nrest");
        let script = STANDARD.encode("<script>alert(1)</script>");
        let notebook = json!({
            "nbformat": 4, "nbformat_minor": 5, "metadata": {},
            "cells": [
                {"cell_type": "markdown", "source": ["# <b>Title</b>\n", "text"]},
                {"cell_type": "code", "source": "1 + 1", "outputs": [
                    {"output_type": "execute_result", "data": {
                        "text/html": "<script>alert(1)</script>", "text/plain": ["2"]}},
                    {"output_type": "display_data", "data": {"image/png": format!("{png}\n")}},
                    {"output_type": "display_data", "data": {"image/png": script}},
                    {"output_type": "display_data", "data": {"image/svg+xml": "<svg onload='x'/>"}},
                    {"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]},
                    {"output_type": "error", "traceback": ["\u{1b}[0;31mNameError\u{1b}[0m: x"]},
                    {"output_type": 7},
                ]},
                7,
            ],
        });
        let (cells, more) = cells(&notebook.to_string()).expect("a notebook");
        assert!(!more && cells.len() == 3);
        assert_eq!(cells[0].source, "# <b>Title</b>\ntext");
        assert_eq!(cells[0].kind, CellKind::Text);
        let text = |text: &str| CellOutput::Text(text.to_owned());
        assert_eq!(
            cells[1].outputs,
            [
                text("2"),
                CellOutput::Image(format!("data:image/png;base64,{png}")),
                CellOutput::Hidden,
                CellOutput::Hidden,
                text("a\nb\n"),
                text("NameError: x"),
                CellOutput::Hidden,
            ]
        );
        for other in ["", "[]", "{}", "{\"nbformat\": 4}", "{\"cells\": []}"] {
            assert_eq!(super::cells(other), None, "{other}");
        }
    }

    #[test]
    fn a_notebook_of_many_cells_and_long_texts_is_cut() {
        let long = "x".repeat(MAX_LETTERS + 5);
        let cell = json!({"cell_type": "code", "source": long, "outputs": []});
        let notebook = json!({"nbformat": 4, "cells": vec![cell; MAX_CELLS + 1]});
        let (cells, more) = cells(&notebook.to_string()).expect("a notebook");
        assert!(more && cells.len() == MAX_CELLS);
        assert_eq!(cells[0].source.chars().count(), MAX_LETTERS + 1);
    }
}
