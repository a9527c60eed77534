//! Who gets how many: each engine's share of the requests, a panel per policy.
//!
//! The dashed line is an equal share. On a fleet of unlike engines bars should not be equal.

use super::scale::{Scale, significant};
use super::svg::{Anchor, Sheet};
use super::{CAPTION, Curve, RIGHT, WIDTH, kind_label, kinds};

const LEFT: f64 = 60.0;
const TOP: f64 = 34.0;
const PANEL: f64 = 104.0;

/// The picture; `endpoints` are the engines' names.
#[must_use]
pub fn share(title: &str, curves: &[Curve<'_>], endpoints: &[String]) -> String {
    let shares: Vec<Vec<f64>> =
        curves.iter().map(|curve| percentages(curve, endpoints.len())).collect();
    let most = shares.iter().flatten().copied().fold(1.0, f64::max);
    let width = (RIGHT - LEFT) / endpoints.len().max(1) as f64;
    let bottom = TOP + PANEL * curves.len() as f64;
    let mut sheet = Sheet::new(WIDTH, bottom + 30.0, title);
    for (number, (curve, shares)) in curves.iter().zip(&shares).enumerate() {
        let top = TOP + PANEL * number as f64 + CAPTION;
        let y = Scale::linear(0.0, most, (TOP + PANEL * (number + 1) as f64, top));
        sheet.text(LEFT, top - 8.0, Anchor::Start, "", curve.policy);
        for (endpoint, percent) in shares.iter().enumerate() {
            let height = y.at(0.0) - y.at(*percent);
            let corner = (LEFT + width * endpoint as f64 + width * 0.1, y.at(*percent));
            sheet.bar(number, 0.9, corner, (width * 0.8, height));
        }
        let equal = y.at(100.0 / endpoints.len().max(1) as f64);
        sheet.line("mean", (LEFT, equal), (RIGHT, equal));
        sheet.line("axis", (LEFT, y.at(0.0)), (RIGHT, y.at(0.0)));
        for tick in [0.0, most] {
            let at = y.at(tick) + if tick > 0.0 { 10.0 } else { 0.0 };
            sheet.text(LEFT - 6.0, at, Anchor::End, "quiet", &significant(tick));
        }
    }
    sheet.upright(16.0, f64::midpoint(TOP, bottom), "share of requests (%)");
    for kind in kinds(endpoints) {
        let middle = LEFT + width * (kind.0 as f64 + kind.1 as f64 / 2.0);
        sheet.text(middle, bottom + 18.0, Anchor::Middle, "quiet", &kind_label(endpoints, kind));
    }
    sheet.finish()
}

/// Per cent of the counted requests that went to each engine.
fn percentages(curve: &Curve<'_>, endpoints: usize) -> Vec<f64> {
    let mut counts = vec![0_u32; endpoints];
    for endpoint in curve.run.counted().filter_map(|outcome| outcome.endpoint) {
        if let Some(count) = counts.get_mut(endpoint) {
            *count += 1;
        }
    }
    let total = counts.iter().sum::<u32>().max(1);
    counts.into_iter().map(|count| f64::from(count) * 100.0 / f64::from(total)).collect()
}
