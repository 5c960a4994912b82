//! `fardel rehearse history`: what the sessions of a time would have waited under other rules of the queue.

use serde_json::{Value, json};

use super::args::{Format, RehearseHistory};
use super::client::HttpClient;
use super::error::CliError;
use super::output::{OutputStyle, span};
use super::{columns, complain, print, values};

pub(super) async fn history(
    client: &HttpClient,
    view: &OutputStyle,
    request: &RehearseHistory,
) -> Result<u8, CliError> {
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    let half_life = match &request.half_life {
        Some(time) => (values::seconds(time)? / 3_600).to_string(),
        None => String::new(),
    };
    let query = values::query(&[
        ("month", said(&request.month)),
        ("from", said(&request.from)),
        ("until", said(&request.until)),
        ("order", said(&request.order)),
        ("backfill", said(&request.backfill)),
        ("half_life_hours", half_life),
    ]);
    let path = format!("/api/v1/fair-share/rehearsal{query}");
    let body = client.get(&path).await?;
    if matches!(view.format, Format::Json | Format::Yaml) {
        print(&view.said(&body, "")?);
        return Ok(0);
    }
    if view.for_humans() {
        if body["sessions"] == 0 {
            complain("No session ended in that time.\n");
            return Ok(0);
        }
        if body["complete"] == false {
            complain("More sessions ended in that time: the earliest are played.\n");
        }
        print(&format!("{}\n", summary(&body)));
    }
    print(&view.list(&json!({"items": body["items"]}), columns::REHEARSED)?);
    Ok(0)
}

/// A line for what was recorded, one for the present rules and one for those tried.
fn summary(body: &Value) -> String {
    let line = |name: &str, figures: &Value| {
        let time = |field: &str| span(figures[field].as_u64().unwrap_or_default());
        let number = |field: &str| figures[field].as_f64().unwrap_or_default();
        let mut line = format!(
            "{name:<17} waited {} (95 %: {}, most: {}), slowdown {:.1} (95 %: {:.1}), GPUs busy {:.1}%",
            time("waited_p50_seconds"),
            time("waited_p95_seconds"),
            time("waited_max_seconds"),
            number("slowdown_mean"),
            number("slowdown_p95"),
            number("busy") * 100.0,
        );
        let left = figures["not_started"].as_u64().unwrap_or_default();
        if left > 0 {
            line.push_str(&format!(", {left} never started"));
        }
        line
    };
    let rules = |played: &Value| {
        let word = |field: &str| played[field].as_str().unwrap_or_default().to_owned();
        let rules = format!("{} {}", word("order"), word("backfill"));
        match word("order").as_str() {
            "fair" => format!("{rules} {} h", played["half_life_hours"]),
            _ => rules,
        }
    };
    let (present, tried) = (&body["present"], &body["tried"]);
    [
        format!("{} sessions", body["sessions"]),
        line("as it went", &body["recorded"]),
        line(&rules(present), &present["figures"]),
        line(&rules(tried), &tried["figures"]),
    ]
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_rules_has_a_line() {
        let figures = json!({
            "waited_p50_seconds": 90, "waited_p95_seconds": 3_600, "waited_max_seconds": 7_200,
            "slowdown_mean": 2.5, "slowdown_p95": 9.0, "busy": 0.5, "not_started": 0,
        });
        let mut left = figures.clone();
        left["not_started"] = json!(3);
        let body = json!({
            "sessions": 7, "recorded": figures,
            "present": {"order": "fifo", "backfill": "strict", "figures": figures},
            "tried": {
                "order": "fair", "backfill": "timed", "half_life_hours": 24, "figures": left,
            },
        });
        let text = summary(&body);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[2].starts_with("fifo strict"), "{text}");
        assert!(lines[2].contains("waited 1m30s (95 %: 1h00m"), "{text}");
        assert!(lines[3].starts_with("fair timed 24 h"), "{text}");
        assert!(lines[3].ends_with("3 never started"), "{text}");
    }
}
