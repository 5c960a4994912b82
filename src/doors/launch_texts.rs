//! The texts of a launch that a form and a command line take as they are typed, and what page and table show of a
//! session as it is. A text stands here once: flag, box, request, heading. Never reads what a text means; the server
//! does.

use api::sessions::{LaunchRequest, SessionView};
use clap::Args;
use serde::Deserialize;

use super::text::Text;

/// The texts as they were typed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(default)]
pub struct LaunchTexts {
    /// What it is for, in one line; `fardel session get` shows it
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Reservation with which it starts, by name or id; `fardel reservation ls` lists them
    #[arg(
        long,
        value_name = "RESERVATION",
        conflicts_with = "start_at",
        help_heading = "Time"
    )]
    pub reservation: Option<String>,
    /// Resource group whose nodes it runs on; `fardel group ls` lists them [default: the first that you may use]
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// What it reaches outside: none, list or proxy, of those that its policy allows [default: the policy's first]
    #[arg(long, value_name = "NETWORK")]
    pub network: Option<String>,
    /// Limits of its processes: memlock=unlimited,stack=64m, or default [default: as its image recommends]
    #[arg(
        long,
        visible_alias = "ulimit",
        value_name = "LIMITS",
        help_heading = "Resources"
    )]
    pub ulimits: Option<String>,
    /// Apps to start once it runs, and ports to open, by commas: jupyter,board:6006,8501
    #[arg(long = "app", value_name = "NAME[:PORT]")]
    pub apps: Option<String>,
}

/// One text.
#[derive(Debug, Clone, Copy)]
pub struct LaunchText<'a> {
    /// Of its box, and of its field in the request.
    pub name: &'static str,
    pub flag: &'static str,
    pub typed: &'a str,
}

/// The box of one text in the form.
#[derive(Debug, Clone)]
pub struct TextBox {
    pub name: &'static str,
    pub title: &'static str,
    pub help: &'static str,
    pub typed: String,
}

/// One thing that is shown of a session as it is. `Style` is what a list hands to each of its columns; none of these
/// looks at it.
pub struct ShownText<Style> {
    /// Of the line that the command line prints.
    pub heading: &'static str,
    /// The words in front of it on a page.
    pub title: fn(Text) -> &'static str,
    /// Empty where there is nothing to show.
    pub give: fn(&SessionView, &Style) -> String,
}

impl LaunchTexts {
    /// The texts of a launch that is asked for once more.
    pub fn of(request: &LaunchRequest) -> Self {
        Self {
            description: request.description.clone(),
            reservation: request.reservation.clone(),
            group: request.group.clone(),
            network: request.network.clone(),
            ulimits: request.ulimits.clone(),
            apps: request.apps.clone(),
        }
    }

    /// A launch that asks for these, and otherwise for what is usual.
    pub fn request(&self) -> LaunchRequest {
        LaunchRequest {
            description: said(self.description.as_deref()),
            reservation: said(self.reservation.as_deref()),
            group: said(self.group.as_deref()),
            network: said(self.network.as_deref()),
            ulimits: said(self.ulimits.as_deref()),
            apps: said(self.apps.as_deref()),
            ..LaunchRequest::default()
        }
    }

    /// Those in which something stands, without blanks around it.
    pub fn given(&self) -> impl Iterator<Item = LaunchText<'_>> {
        let all = [
            ("description", "--description", &self.description),
            ("reservation", "--reservation", &self.reservation),
            ("group", "--group", &self.group),
            ("network", "--network", &self.network),
            ("ulimits", "--ulimits", &self.ulimits),
            ("apps", "--app", &self.apps),
        ];
        all.into_iter().filter_map(|(name, flag, typed)| {
            let typed = typed.as_deref().map_or("", str::trim);
            (!typed.is_empty()).then_some(LaunchText { name, flag, typed })
        })
    }

    /// The boxes of the form, in their order, with what stands in them.
    pub fn boxes(&self, t: Text) -> Vec<TextBox> {
        let one = |name, title, help, typed: &Option<String>| TextBox {
            name,
            title,
            help,
            typed: typed.clone().unwrap_or_default(),
        };
        vec![
            one(
                "description",
                t.launch_text_description(),
                t.launch_text_description_help(),
                &self.description,
            ),
            one(
                "reservation",
                t.launch_text_reservation(),
                t.launch_text_reservation_help(),
                &self.reservation,
            ),
            one(
                "group",
                t.launch_text_group(),
                t.launch_text_group_help(),
                &self.group,
            ),
            one(
                "network",
                t.launch_text_network(),
                t.launch_text_network_help(),
                &self.network,
            ),
            one(
                "ulimits",
                t.launch_text_ulimits(),
                t.launch_text_ulimits_help(),
                &self.ulimits,
            ),
            one(
                "apps",
                t.launch_text_apps(),
                t.launch_text_apps_help(),
                &self.apps,
            ),
        ]
    }
}

/// What is shown of a session as it is, in its order.
pub fn shown<Style>() -> [ShownText<Style>; 5] {
    [
        ShownText {
            heading: "PROJECT",
            title: Text::sessions_project,
            give: |session, _| session.project.name.to_string(),
        },
        ShownText {
            heading: "GROUP",
            title: Text::launch_text_group,
            // Empty while the site has only one.
            give: |session, _| {
                session
                    .group
                    .as_ref()
                    .map_or(String::new(), ToString::to_string)
            },
        },
        ShownText {
            heading: "DESCRIPTION",
            title: Text::launch_text_description,
            give: |session, _| session.description.clone().unwrap_or_default(),
        },
        ShownText {
            heading: "ULIMITS",
            title: Text::launch_text_ulimits,
            give: |session, _| session.ulimits.clone(),
        },
        ShownText {
            heading: "APPS",
            title: Text::launch_text_apps,
            give: |session, _| session.apps.clone(),
        },
    ]
}

/// A text without blanks around it; None for nothing else.
fn said(typed: Option<&str>) -> Option<String> {
    let typed = typed.map(str::trim).filter(|typed| !typed.is_empty());
    typed.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every text, as a form sends it.
    fn typed() -> LaunchTexts {
        let fields = LaunchTexts::default().boxes(Text::default()).into_iter();
        let sent = fields.map(|field| (field.name, format!(" a {} ", field.name)));
        serde_json::from_value(sent.collect()).expect("texts")
    }

    #[test]
    fn a_text_is_flag_box_and_field_of_the_request() {
        let texts = typed();
        let request = serde_json::to_value(texts.request()).expect("JSON");
        let command = <LaunchTexts as Args>::augment_args(clap::Command::new("run"));
        let boxes = texts.boxes(Text::default());
        for (text, field) in texts.given().zip(&boxes) {
            assert_eq!((text.name, text.typed), (field.name, field.typed.trim()));
            assert_eq!(request[text.name], text.typed);
            let mut flags = command.get_arguments().filter_map(clap::Arg::get_long);
            assert!(
                flags.any(|flag| text.flag == format!("--{flag}")),
                "{text:?}"
            );
        }
        assert_eq!(texts.given().count(), boxes.len());
        assert_eq!(command.get_arguments().count(), boxes.len());
        let again = LaunchTexts::of(&texts.request());
        assert_eq!(again.request(), texts.request());
        assert_eq!(LaunchTexts::default().given().count(), 0);
    }
}
