//! The report page: every table with its plots, as one HTML file without scripts.

use std::fmt::Write as _;

use super::table::{cells, header, title};
use super::{Group, Report};

const STYLE: &str = "\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid #8886; text-align: right; }
th:first-child, td:first-child { text-align: left; }
tr.ours td { font-weight: 600; }
img { max-width: 100%; display: block; margin: 1rem 0; }
";

/// The page's text. `about` says in a sentence or two what was run, where and how; `plots`
/// names the image files of a scenario at a load, relative to the page.
#[must_use]
pub fn html(report: &Report, about: &str, plots: impl Fn(&str, f64) -> Vec<String>) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Routing lab</title>\n<style>\n{STYLE}</style>\n\
         <h1>Routing lab</h1>\n<p>{}</p>\n\
         <p>Time to first token, median over the seeds; <b>x name</b> is the P99 over that \
         of the named policy: less than 1 is better.</p>\n",
        escaped(about),
    );
    for group in report.groups() {
        section(&mut html, &group);
        for plot in plots(&group.scenario, group.load) {
            let plot = escaped(&plot);
            // Writing to a string cannot fail.
            let _ = writeln!(html, "<img src=\"{plot}\" alt=\"{plot}\">");
        }
    }
    html.push_str("</html>\n");
    html
}

fn section(html: &mut String, group: &Group) {
    // Writing to a string cannot fail.
    let _ = write!(html, "<h2>{}</h2>\n<div class=\"wide\"><table>\n<tr>", escaped(&title(group)));
    for name in header() {
        let _ = write!(html, "<th>{}</th>", escaped(&name));
    }
    html.push_str("</tr>\n");
    for standing in &group.standings {
        let is_ours = standing.policy.starts_with("predicted");
        html.push_str(if is_ours { "<tr class=\"ours\">" } else { "<tr>" });
        for cell in cells(group, standing) {
            let _ = write!(html, "<td>{}</td>", escaped(&cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}

/// Text as HTML and SVG show it.
pub(in crate::lab) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    #[test]
    fn page_has_a_table_and_plots_for_every_scenario() {
        let report =
            Report { rows: vec![row("mixed", "predicted", 0, 9.0), row("lora", "<b>", 0, 9.0)] };
        let plots = |scenario: &str, load: f64| vec![format!("{scenario}-{load}.svg")];
        let html = html(&report, "Two runs & no more.", plots);
        assert_eq!(html.matches("<table>").count(), 2);
        assert!(html.contains("<img src=\"mixed-0.85.svg\""));
        assert!(html.contains("&lt;b&gt;") && html.contains("runs &amp; no"), "{html}");
        assert!(!html.contains("<script"));
    }
}
