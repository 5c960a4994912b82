//! How a form asks for one of the projects, domains or images of a site: of a few by a list, of more by a field into
//! which one is typed, with the first of them offered. Knows no form and reads nothing.

use std::fmt::Write as _;

use super::components::{Choice, Markup, escaped};
use crate::doors::text::Text;

/// Choices that a form lists; of more one is typed, and so many are offered. Higher: the page of a site with a thousand
/// projects is 80 KB longer, and nobody finds theirs in it. Lower: a site of a few departments types.
pub const MAX_LISTED: usize = 50;

/// What there is to choose, and how.
#[derive(Debug, Default)]
pub struct ChoiceField {
    /// All of them, or the first of too many.
    choices: Vec<Choice>,
    /// What the field holds, where there are too many for a list.
    typed: Option<String>,
    /// Where the page asks for what else has what is typed; empty: it offers the first ones only.
    asks: &'static str,
    /// That there are more than those that it offers; empty where it offers all, and where it asks.
    note: String,
    /// Why what it holds is none of the choices; empty for nothing, and where the page marks its refused form.
    fault: String,
}

impl ChoiceField {
    /// The field for these choices. `sent` is what a form sent; where that is nothing and one is typed, it holds the
    /// chosen one.
    pub fn of(t: Text, mut choices: Vec<Choice>, sent: &str) -> Self {
        if choices.len() <= MAX_LISTED {
            return Self {
                choices,
                ..Self::default()
            };
        }
        let typed = match sent.trim().is_empty() {
            true => {
                let chosen = choices.iter().find(|one| one.chosen);
                chosen.map_or_else(String::new, |one| one.value.clone())
            }
            false => sent.to_owned(),
        };
        choices.truncate(MAX_LISTED);
        Self {
            choices,
            typed: Some(typed),
            note: t.common_choices_first(MAX_LISTED),
            ..Self::default()
        }
    }

    /// The same, asking at this address for what it offers while one is typed. Without script it offers the first ones.
    pub fn asking(self, address: &'static str) -> Self {
        Self {
            asks: address,
            note: String::new(),
            ..self
        }
    }

    /// The same with what was sent and why it is refused, for a form that only asks; a list stays as it is.
    pub fn refused(self, sent: &str, why: String) -> Self {
        match self.typed {
            None => self,
            Some(_) => Self {
                typed: Some(sent.to_owned()),
                fault: why,
                ..self
            },
        }
    }

    /// True where there is nothing to choose from.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// True where one of several is chosen.
    pub fn is_open(&self) -> bool {
        self.choices.len() > 1
    }

    /// The only choice; None where there are none or several.
    pub fn only(&self) -> Option<&Choice> {
        match &self.choices[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The control with this name and id: a list, or a field with its help behind it. `hint` is an example of what is
    /// typed; `help` says what may be, and is empty where the field says enough.
    pub fn control(&self, name: &str, hint: &str, help: &str) -> Markup {
        let mut out = String::new();
        let Some(typed) = &self.typed else {
            let _ = write!(
                out,
                "<select class=\"inp\" id=\"{name}\" name=\"{name}\">{}</select>",
                self.options()
            );
            return Markup::finished(out);
        };
        let help = [help, self.note.as_str()].map(str::trim).join(" ");
        let help = help.trim();
        let wrong = " aria-invalid=\"true\" autofocus aria-describedby=\"fault-";
        let described = match (self.fault.as_str(), help) {
            ("", "") => String::new(),
            ("", _) => format!(" aria-describedby=\"{name}-help\""),
            (_, "") => format!("{wrong}{name}\""),
            (_, _) => format!("{wrong}{name} {name}-help\""),
        };
        let asks = match self.asks {
            "" => String::new(),
            address => format!(
                " hx-get=\"{address}\" hx-trigger=\"input delay:150ms\" hx-target=\"#{name}-offered\" \
                 hx-swap=\"innerHTML\" hx-sync=\"this:replace\""
            ),
        };
        let _ = write!(
            out,
            "<input class=\"inp\" id=\"{name}\" name=\"{name}\" value=\"{}\" placeholder=\"{}\" autocomplete=\"off\" \
             autocapitalize=\"none\" spellcheck=\"false\" list=\"{name}-offered\"{described}{asks}>\
             <datalist id=\"{name}-offered\">{}</datalist>",
            escaped(typed),
            escaped(hint),
            offered(self.choices.iter())
        );
        if !self.fault.is_empty() {
            let _ = write!(
                out,
                "<span class=\"fault\" id=\"fault-{name}\" role=\"alert\" data-fault=\"{name}\">{}</span>",
                escaped(&self.fault)
            );
        }
        if !help.is_empty() {
            let _ = write!(
                out,
                "<span class=\"help\" id=\"{name}-help\">{}</span>",
                escaped(help)
            );
        }
        Markup::finished(out)
    }

    fn options(&self) -> String {
        let option = |one: &Choice| {
            let chosen = if one.chosen { " selected" } else { "" };
            let (value, name) = (escaped(&one.value), escaped(&one.name));
            format!("<option value=\"{value}\"{chosen}>{name}</option>")
        };
        self.choices.iter().map(option).collect()
    }
}

/// The options for what was typed so far: the choices that have it in their value or name, at most as many as a page
/// lists; of nothing the first ones.
pub fn found(choices: &[Choice], typed: &str) -> String {
    let typed = typed.trim().to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&typed);
    let fits = |one: &&Choice| has(&one.value) || has(&one.name);
    offered(choices.iter().filter(fits).take(MAX_LISTED))
}

/// The options beside a typed value; what an empty field means is no option.
fn offered<'a>(choices: impl Iterator<Item = &'a Choice>) -> String {
    let named = choices.filter(|one| !one.value.is_empty());
    let option = |one: &Choice| {
        let name = match one.name == one.value {
            true => String::new(),
            false => escaped(&one.name),
        };
        format!("<option value=\"{}\">{name}</option>", escaped(&one.value))
    };
    named.map(option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains(count: usize) -> Vec<Choice> {
        let name = |n: usize| format!("domain-{n:04}");
        (0..count)
            .map(|n| Choice::new(name(n), name(n), n == 2))
            .collect()
    }

    fn control(field: &ChoiceField) -> String {
        field
            .control("domain", "default", "Name of a domain.")
            .as_str()
            .to_owned()
    }

    #[test]
    fn a_few_choices_are_a_list() {
        let field = ChoiceField::of(Text::default(), domains(MAX_LISTED), "");
        let shown = control(&field);
        assert_eq!(shown.matches("<option ").count(), MAX_LISTED);
        assert!(
            shown.contains("<option value=\"domain-0002\" selected>domain-0002</option>"),
            "{shown}"
        );
        assert!(!shown.contains("<input"), "{shown}");
        assert!(field.is_open() && field.only().is_none());
        let one = ChoiceField::of(Text::default(), domains(1), "");
        assert!(!one.is_open() && one.only().is_some());
        assert!(ChoiceField::default().is_empty());
    }

    #[test]
    fn of_many_choices_one_is_typed() {
        for count in [MAX_LISTED + 1, 1_000] {
            let shown = control(&ChoiceField::of(Text::default(), domains(count), ""));
            assert!(
                shown.contains(" value=\"domain-0002\" placeholder"),
                "{shown}"
            );
            assert!(shown.contains(" list=\"domain-offered\""), "{shown}");
            assert!(shown.contains("id=\"domain-help\""), "{shown}");
            assert_eq!(shown.matches("<option ").count(), MAX_LISTED, "{count}");
        }
        // What was sent stays, whatever it is.
        let typed = control(&ChoiceField::of(
            Text::default(),
            domains(1_000),
            "no \"such\"",
        ));
        assert!(typed.contains(" value=\"no &quot;such&quot;\""), "{typed}");
    }

    #[test]
    fn a_field_that_is_refused_says_why_and_a_list_stays() {
        let refused = |count| {
            ChoiceField::of(Text::default(), domains(count), "")
                .refused("none", "No <such>.".into())
        };
        let shown = control(&refused(1_000));
        for part in [
            " value=\"none\"",
            " aria-invalid=\"true\" autofocus aria-describedby=\"fault-domain domain-help\"",
            "<span class=\"fault\" id=\"fault-domain\" role=\"alert\" data-fault=\"domain\">No &lt;such&gt;.</span>",
        ] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
        assert!(!control(&refused(2)).contains("fault"));
    }

    #[test]
    fn what_was_typed_finds_choices_beyond_the_first() {
        let all = domains(1_000);
        let options = |typed| found(&all, typed);
        assert_eq!(
            options(" Domain-0999 "),
            "<option value=\"domain-0999\"></option>"
        );
        for many in ["", "domain"] {
            assert_eq!(options(many).matches("<option ").count(), MAX_LISTED);
        }
        assert_eq!(options("nothing"), "");
        let field = || ChoiceField::of(Text::default(), domains(1_000), "");
        // It says that it knows more than it offers, unless it offers what is typed.
        let said = "Name of a domain. The first 50 are suggested; any other can be typed.</span>";
        let plain = control(&field());
        assert!(plain.contains(said) && !plain.contains("hx-get"), "{plain}");
        let bare = field().control("domain", "default", "");
        assert!(bare.as_str().contains("id=\"domain-help\">The first 50"));
        let asking = control(&field().asking("/choices/domains"));
        assert!(!asking.contains("The first"), "{asking}");
        assert!(
            asking.contains(" hx-get=\"/choices/domains\" hx-trigger"),
            "{asking}"
        );
    }

    #[test]
    fn what_an_empty_field_means_is_not_offered() {
        let mut all = vec![Choice::new("", "All users", true)];
        all.extend(domains(MAX_LISTED));
        let shown = control(&ChoiceField::of(Text::default(), all, ""));
        assert!(shown.contains(" value=\"\" placeholder"), "{shown}");
        assert!(!shown.contains("<option value=\"\""), "{shown}");
    }
}
