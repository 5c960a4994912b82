//! What a mail with notices says: the sentences of the page of notices in the reader's language, with addresses behind them.
//! Plain text, never markup. Decides nothing: which notices, and whose, the server says.

use server::actions::mail::{MailReader, MailText, MailWriter};
use server::actions::notices::OwnNotice;

use super::notices;
use super::request_context::LocalClock;
use crate::doors::text::{Language, Text};

/// Writes mail in the words of the console.
pub(super) struct ConsoleMail {
    /// What the machine calls itself: it stands in front of each subject where the site has no name.
    pub(super) site: String,
}

impl ConsoleMail {
    fn site_of<'a>(&'a self, reader: &MailReader<'a>) -> &'a str {
        match reader.site {
            "" => self.site.as_str(),
            name => name,
        }
    }
}

impl MailWriter for ConsoleMail {
    fn of_notices(&self, reader: &MailReader<'_>, all: &[OwnNotice], more: usize) -> MailText {
        let t = text_of(reader);
        let clock = LocalClock::of(t, reader.time_zone);
        let mut parts = Vec::new();
        let mut first = String::new();
        for notice in all {
            let row = notices::row(t, &clock, reader.now, notice);
            let said = format!("{} {}", row.name, row.what);
            let mut part = said.clone();
            if first.is_empty() {
                first = said;
            }
            if !row.why.is_empty() {
                part.push('\n');
                part.push_str(&row.why);
            }
            if let Some(href) = row.href {
                part.push_str(&format!("\n{}{href}", reader.origin));
            }
            parts.push(part);
        }
        if more > 0 {
            parts.push(format!("{}\n{}/notices", t.mail_more(more), reader.origin));
        }
        let what = match (all.len() + more).saturating_sub(1) {
            0 => first,
            others => t.mail_subject_more(&first, others),
        };
        let foot = t.mail_foot(format!("{}/me", reader.origin));
        // An account that names no zone has its times in UTC, which a reader elsewhere has to know.
        let zone = t.reservations_zone(clock.name());
        MailText {
            subject: format!("[{}] {what}", self.site_of(reader)),
            body: format!("{}\n\n-- \n{zone}\n{foot}\n", parts.join("\n\n")),
        }
    }

    fn trial(&self, reader: &MailReader<'_>) -> MailText {
        let (t, site) = (text_of(reader), self.site_of(reader));
        MailText {
            subject: format!("[{site}] {}", t.mail_trial_subject()),
            body: format!("{}\n\n{}\n", t.mail_trial_body(site), reader.origin),
        }
    }
}

/// The language that the account has; English where it has none, for mail is asked for by no browser.
fn text_of(reader: &MailReader<'_>) -> Text {
    Text::new(Language::from_code(reader.language).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use rules::session::Outcome;
    use rules::units::Timestamp;
    use server::actions::notices::NoticeKind;

    use super::*;

    fn notice(about: NoticeKind) -> OwnNotice {
        OwnNotice {
            key: "event 7".to_owned(),
            event: Some(7),
            at: Timestamp::from_millis(1_800_000_000_000),
            about,
            session: Some("019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f".to_owned()),
            name: Some("train".to_owned()),
            unread: true,
        }
    }

    #[test]
    fn mail_says_what_the_page_of_notices_says_in_the_readers_language_and_time() {
        let writer = ConsoleMail {
            site: "gpu-01".to_owned(),
        };
        let now = Timestamp::from_millis(1_800_000_000_000);
        let ends = now.plus_seconds(600);
        let all = [
            notice(NoticeKind::WillEnd(ends)),
            notice(NoticeKind::Ended(Some(Outcome::Failed), None)),
        ];
        for (language, zone) in [("en", "UTC"), ("ko", "Asia/Seoul"), ("", "")] {
            let reader = MailReader {
                language,
                time_zone: zone,
                origin: "https://gpu.lab",
                site: "",
                now,
            };
            let mail = writer.of_notices(&reader, &all, 0);
            let t = text_of(&reader);
            let clock = LocalClock::of(t, zone);
            let rows = all.each_ref().map(|one| notices::row(t, &clock, now, one));
            for row in &rows {
                let line = format!("train {}", row.what);
                assert!(mail.body.contains(&line), "{language}: {}", mail.body);
            }
            let link = "\nhttps://gpu.lab/sessions/019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f\n";
            assert_eq!(mail.body.matches(link).count(), 2, "{}", mail.body);
            assert!(mail.body.contains("https://gpu.lab/me"), "{}", mail.body);
            let zone = if zone.is_empty() { "UTC" } else { zone };
            let told = format!("\n{}\n", t.reservations_zone(zone));
            assert!(mail.body.contains(&told), "{}", mail.body);
            let subject = t.mail_subject_more(format!("train {}", rows[0].what), 1_usize);
            assert_eq!(mail.subject, format!("[gpu-01] {subject}"));
            assert!(!mail.body.contains('<'), "{}", mail.body);
        }
    }
}
