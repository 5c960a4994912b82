//! Where a refusal stands in a form that was refused: beside its field, which is marked, has the focus and keeps what
//! was typed. Works on the finished markup of a page, so that every form of every page shows a fault alike. Never
//! decides what is wrong.

use rules::refusal::Refusal;

use super::components::{self, Alert, FormFieldError, escaped};
use crate::doors::text::{Text, codes};

/// A form that was refused.
#[derive(Clone, Debug)]
pub struct RefusedForm {
    /// Where the form is sent; the first form of the page with it is meant.
    action: String,
    faults: Vec<FormFieldError>,
    /// Names and values as they were sent.
    typed: Vec<(String, String)>,
}

impl RefusedForm {
    /// The form at `action` with each message of a refusal at the field it names.
    pub fn new(t: Text, action: &str, refusal: &Refusal) -> Self {
        Self::with_faults(action, field_faults(t, refusal))
    }

    /// The form at `action` with these messages; a field has each of its messages once.
    pub fn with_faults(action: &str, all: Vec<FormFieldError>) -> Self {
        let mut faults: Vec<FormFieldError> = Vec::new();
        for fault in all {
            match faults.iter_mut().find(|known| known.field == fault.field) {
                Some(known) if known.message.contains(&fault.message) => {}
                Some(known) => {
                    known.message.push(' ');
                    known.message.push_str(&fault.message);
                }
                None => faults.push(fault),
            }
        }
        Self {
            action: action.to_owned(),
            faults,
            typed: Vec::new(),
        }
    }

    /// Puts every message at this field of the form.
    pub fn at(mut self, field: &str) -> Self {
        for fault in &mut self.faults {
            field.clone_into(&mut fault.field);
        }
        self
    }

    /// Puts what names no field at this one.
    pub fn otherwise_at(mut self, field: &str) -> Self {
        for fault in self
            .faults
            .iter_mut()
            .filter(|fault| fault.field.is_empty())
        {
            field.clone_into(&mut fault.field);
        }
        self
    }

    /// What was typed into a field, for a choice that the page itself marks; empty where nothing was.
    pub fn chosen(&self, field: &str) -> &str {
        let mut typed = self.typed.iter();
        typed
            .find(|(name, _)| name == field)
            .map_or("", |(_, value)| value)
    }

    /// What was typed, by field, where the page itself does not put it back. Secrets are left out by the caller.
    pub fn with<'a>(mut self, typed: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        self.typed.extend(typed.into_iter().map(owned));
        self
    }
}

/// The messages of a refusal, each with the last part of the place it names; empty where it names none.
pub fn field_faults(t: Text, refusal: &Refusal) -> Vec<FormFieldError> {
    let name = |pointer: &str| pointer.rsplit('/').next().unwrap_or_default().to_owned();
    let fields = refusal.fields.iter().map(|field| FormFieldError {
        field: name(&field.pointer),
        message: codes::field(t, &field.code, &field.text),
    });
    let mut all: Vec<FormFieldError> = fields.collect();
    if let Some(pointer) = &refusal.pointer {
        all.push(FormFieldError {
            field: name(pointer),
            message: codes::refusal(t, refusal),
        });
    }
    if all.is_empty() {
        all.push(FormFieldError {
            field: String::new(),
            message: codes::refusal(t, refusal),
        });
    }
    all
}

/// A page with the faults of one of its forms: each behind its control, which says that it is wrong and by what text;
/// the first has the focus. What belongs to no control of the form stands at the form's beginning. A form that opens
/// over the page is marked to be open. Gives None where the page has no such form.
///
/// Costs one pass over the form for each fault and each value.
pub fn marked(page: &str, refused: &RefusedForm) -> Option<String> {
    let action = format!(" action=\"{}\"", escaped(&refused.action));
    let begin = page.match_indices("<form ").map(|(at, _)| at).find(|at| {
        // A form that asks with the same address, a search or a template, is refused by no answer.
        tag(page, *at).is_some_and(|tag| tag.contains(&action) && tag.contains(" method=\"post\""))
    })?;
    let end = begin + page[begin..].find("</form>")?;
    let mut form = page[begin..end].to_owned();
    for (name, value) in &refused.typed {
        put_value(&mut form, name, value);
    }
    let mut loose = String::new();
    let mut first = true;
    for fault in &refused.faults {
        if !mark(&mut form, fault, first) {
            loose.push_str(&format!(
                "<p class=\"fault\" role=\"alert\">{}</p>",
                escaped(&fault.message)
            ));
        }
        first = false;
    }
    let head = tag(&form, 0)?.len();
    if !loose.is_empty() {
        let title = form.find("</h2>").map(|at| at + "</h2>".len());
        form.insert_str(title.unwrap_or(head), &loose);
        if !form.contains(" autofocus") {
            focus_first(&mut form);
        }
    }
    if tag(&form, 0)?.contains(" popover") {
        form.insert_str("<form".len(), " data-open");
    }
    Some([&page[..begin], &form, &page[end..]].concat())
}

/// A page that has no such form, with the messages at the beginning of its content.
pub fn above(page: &str, refused: &RefusedForm) -> String {
    let told: String = refused
        .faults
        .iter()
        .map(|fault| {
            let alert = Some(Alert::bad(fault.message.as_str()));
            components::alert(&alert).as_str().to_owned()
        })
        .collect();
    let main = page
        .find("<main ")
        .and_then(|at| Some(at + tag(page, at)?.len()));
    match main {
        Some(at) => [&page[..at], &told, &page[at..]].concat(),
        None => page.to_owned(),
    }
}

/// The tag that begins at `at`, with its brackets.
fn tag(text: &str, at: usize) -> Option<&str> {
    let rest = text.get(at..)?;
    // Attributes are escaped when they are written, so that no bracket stands in them.
    Some(&rest[..=rest.find('>')?])
}

/// Where the control of that name begins, and its kind; hidden ones are none.
fn control(form: &str, name: &str) -> Option<(usize, &'static str)> {
    let wanted = format!(" name=\"{}\"", escaped(name));
    ["input", "textarea", "select"]
        .into_iter()
        .flat_map(|kind| {
            let tags = form
                .match_indices(&format!("<{kind} ")[..])
                .map(|(at, _)| at)
                .collect::<Vec<_>>();
            tags.into_iter().map(move |at| (at, kind))
        })
        .find(|(at, _)| {
            tag(form, *at)
                .is_some_and(|tag| tag.contains(&wanted) && !tag.contains(" type=\"hidden\""))
        })
}

fn attribute(tag: &str, name: &str) -> Option<std::ops::Range<usize>> {
    let begin = tag.find(&format!(" {name}=\""))?;
    let value = begin + name.len() + 3;
    Some(begin..value + tag[value..].find('"')? + 1)
}

fn put_value(form: &mut String, name: &str, value: &str) {
    let Some((at, kind)) = control(form, name) else {
        return;
    };
    let Some(tag) = tag(form, at).map(str::to_owned) else {
        return;
    };
    let value = escaped(value);
    match kind {
        "input" if !tag.contains(" type=\"radio\"") && !tag.contains(" type=\"checkbox\"") => {
            let old = attribute(&tag, "value").unwrap_or(tag.len() - 1..tag.len() - 1);
            form.replace_range(at + old.start..at + old.end, &format!(" value=\"{value}\""));
        }
        "textarea" => {
            let begin = at + tag.len();
            if let Some(length) = form[begin..].find("</textarea>") {
                form.replace_range(begin..begin + length, &value);
            }
        }
        _ => {}
    }
}

/// Marks the control of a fault and puts the message behind it; false where the form has none.
fn mark(form: &mut String, fault: &FormFieldError, first: bool) -> bool {
    let Some((at, kind)) = control(form, &fault.field) else {
        return false;
    };
    let Some(old) = tag(form, at).map(str::to_owned) else {
        return false;
    };
    let id = format!("fault-{}", escaped(&fault.field));
    let mut new = old.clone();
    let described = match attribute(&old, "aria-describedby") {
        Some(range) => {
            let others = old[range.clone()]
                .split('"')
                .nth(1)
                .unwrap_or_default()
                .to_owned();
            new.replace_range(range, "");
            format!("{id} {others}")
        }
        None => id.clone(),
    };
    let focus = if first { " autofocus" } else { "" };
    let marks = format!(" aria-invalid=\"true\" aria-describedby=\"{described}\"{focus}");
    new.insert_str(kind.len() + 1, &marks);
    form.replace_range(at..at + old.len(), &new);
    let mut behind = at + new.len();
    if kind != "input" {
        let close = format!("</{kind}>");
        behind += form[behind..]
            .find(&close)
            .map_or(0, |length| length + close.len());
    }
    // A number in a row with a handle and a unit: there is no room behind it, but below its row.
    if form[..at].ends_with("<span class=\"v\">") {
        behind += form[behind..]
            .find("</span>")
            .map_or(0, |length| length + "</span>".len());
    }
    let message = format!(
        "<span class=\"fault\" id=\"{id}\" role=\"alert\" data-fault=\"{}\">{}</span>",
        escaped(&fault.field),
        escaped(&fault.message)
    );
    form.insert_str(behind, &message);
    true
}

fn focus_first(form: &mut String) {
    let first = form
        .match_indices("<input ")
        .map(|(at, _)| at)
        .find(|at| tag(form, *at).is_some_and(|tag| !tag.contains("hidden")));
    if let Some(at) = first {
        form.insert_str(at + "<input".len(), " autofocus");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<form action=\"/b\" method=\"get\"><input name=\"memory\" value=\"1\"></form>\
        <form id=\"limits\" popover action=\"/b\" method=\"post\"><h2>Limits</h2><input type=\"hidden\" name=\"back\">\
        <input id=\"m\" name=\"memory\" value=\"1\" aria-describedby=\"help\"><textarea name=\"env\">A</textarea></form>";

    fn refused(field: &str, typed: &[(&str, &str)]) -> RefusedForm {
        let fault = FormFieldError {
            field: field.to_owned(),
            message: "No <size>.".to_owned(),
        };
        RefusedForm::with_faults("/b", vec![fault]).with(typed.iter().copied())
    }

    #[test]
    fn a_fault_stands_behind_its_control_with_what_was_typed() {
        let page = marked(
            PAGE,
            &refused("memory", &[("memory", "ba\"nana"), ("env", "B<")]),
        )
        .expect("a form");
        assert!(
            page.starts_with(
                "<form action=\"/b\" method=\"get\"><input name=\"memory\" value=\"1\"></form>"
            ),
            "{page}"
        );
        assert!(
            page.contains(
                "<form data-open id=\"limits\" popover action=\"/b\" method=\"post\"><h2>Limits</h2>\
                 <input type=\"hidden\" name=\"back\">\
                 <input aria-invalid=\"true\" aria-describedby=\"fault-memory help\" autofocus id=\"m\" name=\"memory\" \
                 value=\"ba&quot;nana\"><span class=\"fault\" id=\"fault-memory\" role=\"alert\" data-fault=\"memory\">\
                 No &lt;size&gt;.</span><textarea name=\"env\">B&lt;</textarea></form>"
            ),
            "{page}"
        );
    }

    #[test]
    fn a_field_with_two_faults_is_marked_once_and_has_both() {
        let fault = |message: &str| FormFieldError {
            field: "memory".to_owned(),
            message: message.to_owned(),
        };
        let faults = vec![fault("Too much."), fault("No size."), fault("Too much.")];
        let page = marked(PAGE, &RefusedForm::with_faults("/b", faults)).expect("a form");
        assert_eq!(page.matches("aria-invalid").count(), 1, "{page}");
        assert!(page.contains(">Too much. No size.</span>"), "{page}");
    }

    #[test]
    fn a_fault_of_no_control_stands_at_the_beginning_of_its_form() {
        let page = marked(PAGE, &refused("resources", &[])).expect("a form");
        assert!(
            page.contains("<h2>Limits</h2><p class=\"fault\" role=\"alert\">No &lt;size&gt;.</p>"),
            "{page}"
        );
        assert!(page.contains("<input autofocus id=\"m\""), "{page}");
        // A hidden control can show nothing.
        let page = marked(PAGE, &refused("back", &[])).expect("a form");
        assert!(page.contains("<p class=\"fault\""), "{page}");
        let bare = "<main id=\"main\"><p>no form</p></main>";
        assert!(marked(bare, &refused("memory", &[])).is_none());
        let told = above(bare, &refused("memory", &[]));
        assert!(
            told.starts_with("<main id=\"main\"><div class=\"banner\"")
                && told.contains("No &lt;size&gt;."),
            "{told}"
        );
    }

    #[test]
    fn a_fault_of_a_number_with_a_unit_stands_below_both() {
        let row = PAGE.replace(
            "<textarea name=\"env\">A</textarea>",
            "<div><span class=\"v\"><input name=\"cpu\">cores</span></div>",
        );
        let page = marked(&row, &refused("cpu", &[])).expect("a form");
        assert!(
            page.contains("name=\"cpu\">cores</span><span class=\"fault\" id=\"fault-cpu\""),
            "{page}"
        );
    }

    #[test]
    fn a_fault_of_a_text_area_stands_behind_it() {
        let page = marked(PAGE, &refused("env", &[])).expect("a form");
        assert!(
            page.contains("name=\"env\">A</textarea><span class=\"fault\" id=\"fault-env\""),
            "{page}"
        );
    }
}
