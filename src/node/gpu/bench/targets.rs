//! What a slice is promised to be worth, against figures that were measured. Measures nothing.

use serde_json::Value;

/// A promise, what it was measured to be, and whether that is enough.
pub type PromiseRow<'a> = dyn FnMut(&str, &str, Option<f64>, &dyn Fn(f64) -> bool) + 'a;

/// The promises of a slice against what was measured.
pub fn targets<'f>(figure: &dyn Fn(&str) -> Option<&'f Value>, row: &mut PromiseRow<'_>) {
    let at = |word: &str, pointer: &str| figure(word)?.pointer(pointer);
    let most = |key: &str| {
        let rows = at("gpu-memory", "/rows")?.as_array()?;
        let values = rows.iter().filter_map(|row| row[key].as_f64());
        values.reduce(f64::max)
    };
    row(
        "memory of a slice beyond its limit, bytes, worst path",
        "0",
        most("above_limit"),
        &|v| v == 0.0,
    );
    row(
        "memory of a slice below its limit, bytes, worst path",
        "≤ 2097152",
        most("below_limit"),
        &|v| v <= 2_097_152.0,
    );
    row(
        "a launch with our library, ns more",
        "< 20",
        at("gpu-launch", "/added_by_the_hook").and_then(Value::as_f64),
        &|v| v < 20.0,
    );
    let rows = |beginning: &str, key: &str, worst: fn(f64, f64) -> f64| {
        let rows = at("gpu-share", "/rows")?.as_array()?.iter();
        let of = rows.filter(|row| {
            row["how"]
                .as_str()
                .is_some_and(|how| how.starts_with(beginning))
        });
        of.filter_map(|row| row[key].as_f64()).reduce(worst)
    };
    row(
        "share alone, points off, worst",
        "≤ 2",
        rows("alone", "worst_error_points", f64::max),
        &|v| v <= 2.0,
    );
    row(
        "shares together, points off, worst",
        "≤ 2",
        rows("together, hard", "worst_error_points", f64::max),
        &|v| v <= 2.0,
    );
    row(
        "work of all together, of the whole card's, least",
        "≥ 0.97",
        rows("together, hard", "of_the_whole_card", f64::min),
        &|v| v >= 0.97,
    );
    row(
        "a changed share is felt within, ms",
        "≤ 200",
        at("gpu-share", "/resize/settled_ms").and_then(Value::as_f64),
        &|v| v <= 200.0,
    );
}
