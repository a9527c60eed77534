//! The text format as Python's client writes it.

use std::fmt::Write as _;
use std::time::Duration;

use crate::histogram::Histogram;

/// One series' line. `labels` come in alphabetical order, without braces.
pub(super) fn series(page: &mut String, name: &str, labels: &str, value: f64) {
    let value = number(value);
    // Writing to a string does not fail.
    let _ = match labels {
        "" => writeln!(page, "{name} {value}"),
        labels => writeln!(page, "{name}{{{labels}}} {value}"),
    };
}

/// HELP and TYPE.
pub(super) fn header(page: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// The lines of a histogram; `labels` must sort around `le` by themselves, hence two parts.
pub(super) fn histogram(
    page: &mut String,
    name: &str,
    (before, after): (&str, &str),
    histogram: &Histogram,
) {
    let join = |parts: [&str; 3]| {
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(",")
    };
    let bucket = format!("{name}_bucket");
    for (bound, count) in histogram.cumulative() {
        let bound = format!("le=\"{}\"", number(bound));
        series(page, &bucket, &join([before, &bound, after]), count as f64);
    }
    let labels = join([before, "", after]);
    series(page, &format!("{name}_count"), &labels, histogram.count() as f64);
    series(page, &format!("{name}_sum"), &labels, histogram.sum());
}

/// A family that tells when another one's series began; a counter's comes without `_total`.
pub(super) fn created(page: &mut String, name: &str, help: &str, labels: &[String], at: Duration) {
    let name = format!("{name}_created");
    header(page, &name, help, "gauge");
    for labels in labels {
        series(page, &name, labels, at.as_secs_f64());
    }
}

/// A number as Python's client writes it: like Go from a million on, like Python below.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let plain = format!("{value:?}");
    match plain.find('.') {
        Some(dot) if value > 0.0 && dot > 6 => {
            let mantissa = format!("{}.{}{}", &plain[..1], &plain[1..dot], &plain[dot + 1..]);
            format!("{}e+0{}", mantissa.trim_end_matches(['0', '.']), dot - 1)
        }
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_like_those_of_the_real_page() {
        let written = [67852.0, 1_073_741_824.0, 4_888_645_632.0, 0.004, 1_795_962_941.5, 0.0];
        let expected =
            ["67852.0", "1.073741824e+09", "4.888645632e+09", "0.004", "1.7959629415e+09", "0.0"];
        assert_eq!(written.map(number), expected);
        assert_eq!(number(f64::INFINITY), "+Inf");
        assert_eq!(number(2_000_000.0), "2e+06");
    }
}
