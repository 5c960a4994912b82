//! `fardel statement verify`: follows a saved statement line by line and names the first that is not as it was signed. Needs
//! the file and the certificate of the authority, and no server.

use api::statements::{StatementAmounts, StatementItem, StatementView};
use base::tls::signature::SigningAuthority;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::audit::{AuditHash, hash_of_hex};
use rules::refusal::Refusal;
use rules::refusals;
use rules::statement::{
    STATEMENT_FORM, StatementBreak, StatementHead, StatementLine, check_sums, total,
};
use rules::units::Timestamp;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// What a good statement holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct VerifiedStatement {
    pub(super) installation: Uuid,
    pub(super) month: String,
    /// Lines that the file shows, totals among them.
    pub(super) lines: u64,
    /// Lines of the whole month, with totals and those of others.
    pub(super) lines_of_month: u64,
    pub(super) closed_at: Timestamp,
}

fn sha256(bytes: &[u8]) -> AuditHash {
    Sha256::digest(bytes).into()
}

/// Checks a statement as the API gives it. Costs a digest a line.
///
/// Errors: `statement.file-malformed`, `statement.signature-wrong`, `statement.lines-wrong`, `statement.line-changed`,
/// `statement.total-wrong`, `statement.file-total-wrong`, `statement.amount-wrong`.
pub(super) fn verify(
    text: &[u8],
    authority: &SigningAuthority,
) -> Result<VerifiedStatement, Refusal> {
    let file: StatementView =
        serde_json::from_slice(text).map_err(|error| refusals::statement_file_malformed(&error))?;
    let signature = STANDARD.decode(&file.signature).unwrap_or_default();
    if !authority.signed(file.statement.as_bytes(), &signature) {
        return Err(refusals::statement_signature_wrong(&file.month));
    }
    let head: StatementHead = serde_json::from_str(&file.statement)
        .map_err(|error| refusals::statement_file_malformed(&error))?;
    let at = |hour: i64| Timestamp::from_millis(hour.saturating_mul(3_600_000));
    // What stands beside the signed text says the same.
    let same = head.statement == STATEMENT_FORM
        && (&head.month, &head.currency, &head.time_zone)
            == (&file.month, &file.currency, &file.time_zone)
        && (head.closed_at, at(head.from), at(head.until))
            == (file.closed_at, file.from, file.until);
    if !same {
        return Err(refusals::statement_signature_wrong(&file.month));
    }
    let digests: Option<Vec<AuditHash>> = file
        .digests
        .iter()
        .map(|digest| hash_of_hex(digest))
        .collect();
    let digests = digests.filter(|digests| head.has_lines(digests, sha256));
    let Some(digests) = digests else {
        return Err(refusals::statement_lines_wrong(&file.month));
    };
    let mut lines = Vec::with_capacity(file.items.len() + file.totals.len());
    let mut last = 0;
    for (items, is_total) in [(&file.items, false), (&file.totals, true)] {
        for item in items {
            let line = line(item, &head, &digests, is_total)?;
            // Each once, in their order: totals stand behind what they sum.
            if line.position <= last {
                return Err(refusals::statement_line_changed(line.position));
            }
            last = line.position;
            lines.push(line);
        }
    }
    check_sums(&lines, &head.prices()).map_err(StatementBreak::refusal)?;
    let (used, amount) = total(lines.iter().filter(|line| !line.part.is_total()));
    if StatementAmounts::new(used, amount) != file.total {
        return Err(refusals::statement_file_total_wrong());
    }
    Ok(VerifiedStatement {
        installation: head.installation,
        month: head.month,
        lines: lines.len() as u64,
        lines_of_month: head.lines,
        closed_at: head.closed_at,
    })
}

/// The line that an item shows, where it is what was signed in its place.
fn line(
    item: &StatementItem,
    head: &StatementHead,
    digests: &[AuditHash],
    is_total: bool,
) -> Result<StatementLine, Refusal> {
    let changed = || refusals::statement_line_changed(item.position);
    let place = usize::try_from(item.position).ok();
    let signed = place.and_then(|place| digests.get(place.checked_sub(1)?));
    if signed != Some(&sha256(item.statement.as_bytes())) {
        return Err(changed());
    }
    let line: StatementLine = serde_json::from_str(&item.statement).map_err(|_| changed())?;
    let same = line.position == item.position
        && line.month == head.month
        && line.part.is_total() == is_total
        && StatementItem::new(&line, item.statement.clone()) == *item;
    match same {
        true => Ok(line),
        false => Err(changed()),
    }
}

#[cfg(test)]
mod tests {
    use base::observe::Clock;
    use base::tls::keeper::Keeper;
    use base::tls::names::HostNames;
    use rules::audit::{NO_HASH, hex};
    use rules::metering::UsageSum;
    use rules::names::UserId;
    use rules::statement::{FrozenUse, HourPrices, StatementPart, chained, lines_of};
    use rules::tenancy::{DomainId, ProjectId};
    use serde_json::{Value, json};

    use super::*;

    fn keeper() -> (tempfile::TempDir, Keeper, SigningAuthority) {
        let folder = tempfile::tempdir().expect("a folder");
        let keeper = Keeper::open(
            &folder.path().join("tls"),
            Clock::system(),
            HostNames::of_this_machine(),
        )
        .expect("certificates");
        let authority = SigningAuthority::read(&keeper.authority().pem).expect("a certificate");
        (folder, keeper, authority)
    }

    /// What the lead of the first of two projects reads.
    fn saved(keeper: &Keeper) -> Value {
        let used = |project: u128, user: u128| FrozenUse {
            part: StatementPart::Use,
            domain: "default".to_owned(),
            domain_id: DomainId::DEFAULT,
            project: format!("p{project}"),
            project_id: ProjectId(Uuid::from_u128(project)),
            user: format!("u{user}"),
            user_id: UserId(Uuid::from_u128(user)),
            used: UsageSum {
                session: 3_600_000,
                gpu: 360_000_000 * u64::try_from(user).expect("small"),
                ..UsageSum::default()
            },
        };
        let prices = HourPrices {
            currency: "KRW".to_owned(),
            gpu: 1_500_000_000,
            ..HourPrices::default()
        };
        let all = vec![used(1, 1), used(1, 2), used(2, 3)];
        let lines = lines_of("2026-10", all, &prices, || [7; 16]);
        let texts: Vec<String> = lines.iter().map(StatementLine::canonical).collect();
        let digests: Vec<AuditHash> = texts.iter().map(|text| sha256(text.as_bytes())).collect();
        let head = StatementHead {
            closed_at: Timestamp::from_millis(1_800_000_000_000),
            core_price: 0,
            currency: prices.currency.clone(),
            from: 490_000,
            gib_price: 0,
            gpu_price: prices.gpu,
            hash: hex(&chained(&digests, sha256)),
            installation: Uuid::from_u128(5),
            lines: digests.len() as u64,
            month: "2026-10".to_owned(),
            previous: hex(&NO_HASH),
            statement: STATEMENT_FORM,
            time_zone: "UTC".to_owned(),
            until: 490_744,
        };
        let shown = |part: &dyn Fn(&StatementLine) -> bool| -> Vec<StatementItem> {
            let both = lines.iter().zip(&texts);
            both.filter(|(line, _)| line.project == "p1" && part(line))
                .map(|(line, text)| StatementItem::new(line, text.clone()))
                .collect()
        };
        let items = shown(&|line| !line.part.is_total());
        let (used, amount) = total(
            lines
                .iter()
                .filter(|line| line.project == "p1" && !line.part.is_total()),
        );
        let at = |hour: i64| Timestamp::from_millis(hour * 3_600_000);
        let text = head.canonical();
        let signature = STANDARD.encode(keeper.sign(text.as_bytes()).expect("signed"));
        let view = StatementView {
            month: head.month.clone(),
            from: at(head.from),
            until: at(head.until),
            time_zone: head.time_zone.clone(),
            closed_at: head.closed_at,
            currency: head.currency.clone(),
            total: StatementAmounts::new(used, amount),
            items,
            totals: shown(&|line| line.part.is_total()),
            statement: text,
            signature,
            digests: digests.iter().map(|digest| hex(digest)).collect(),
        };
        serde_json::to_value(view).expect("JSON")
    }

    fn code(file: &Value, authority: &SigningAuthority) -> String {
        match verify(file.to_string().as_bytes(), authority) {
            Ok(_) => "good".to_owned(),
            Err(refusal) => refusal.code,
        }
    }

    #[test]
    fn every_edit_of_a_saved_statement_is_found() {
        let (_folder, keeper, authority) = keeper();
        let (_other, _, stranger) = self::keeper();
        let good = saved(&keeper);
        let found = verify(good.to_string().as_bytes(), &authority).expect("whole");
        assert_eq!((found.lines, found.lines_of_month), (3, 7));
        assert_eq!(code(&good, &stranger), "statement.signature-wrong");
        let edits: [(&str, Value, &str); 9] = [
            ("/month", json!("2026-09"), "statement.signature-wrong"),
            ("/currency", json!("USD"), "statement.signature-wrong"),
            ("/total/gpu_units", json!(1), "statement.file-total-wrong"),
            (
                "/items/0/used/gpu_units",
                json!(1),
                "statement.line-changed",
            ),
            ("/items/0/user", json!("u9"), "statement.line-changed"),
            ("/items/1/statement", json!("{}"), "statement.line-changed"),
            (
                "/totals/0/used/amount_micros",
                json!(1),
                "statement.line-changed",
            ),
            ("/digests/6", json!("00"), "statement.lines-wrong"),
            ("/signature", json!(""), "statement.signature-wrong"),
        ];
        for (at, value, expected) in edits {
            let mut changed = good.clone();
            *changed.pointer_mut(at).expect(at) = value;
            assert_eq!(code(&changed, &authority), expected, "{at}");
        }
        let mut fewer = good.clone();
        fewer["items"].as_array_mut().expect("a list").remove(0);
        assert_eq!(code(&fewer, &authority), "statement.total-wrong");
        let mut alone = fewer.clone();
        alone["totals"] = json!([]);
        assert_eq!(code(&alone, &authority), "statement.file-total-wrong");
        let mut twice = good.clone();
        let first = twice["items"][0].clone();
        twice["items"]
            .as_array_mut()
            .expect("a list")
            .insert(0, first);
        assert_eq!(code(&twice, &authority), "statement.line-changed");
        assert_eq!(code(&json!({}), &authority), "statement.file-malformed");
    }
}
