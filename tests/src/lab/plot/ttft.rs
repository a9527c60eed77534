//! How long requests wait: the distribution of time to first token, per policy.
//!
//! Both axes are stretched where it matters. Waits are logarithmic, for policies differ by
//! factors. The share of requests counts nines, so that the slowest hundredth, which
//! nobody would see at the top of a straight scale, has as much room as the faster half.

use super::scale::{Scale, duration_label};
use super::svg::{Anchor, Sheet, Weight};
use super::{Curve, WIDTH};
use crate::lab::outcome::{NEVER_MS, percentile};

const HEIGHT: f64 = 420.0;
/// Left, right, top and bottom of the plot itself.
const FRAME: [f64; 4] = [70.0, 600.0, 40.0, 370.0];
const POINTS: usize = 160;

/// The picture.
#[must_use]
pub fn ttft(title: &str, curves: &[Curve<'_>]) -> String {
    let [left, right, top, bottom] = FRAME;
    let waits: Vec<Vec<f64>> = curves.iter().map(sorted_waits).collect();
    let answered = waits.iter().flatten().copied().filter(|wait| *wait < NEVER_MS);
    let least = answered.clone().fold(f64::INFINITY, f64::min);
    let most = answered.fold(0.0, f64::max);
    let least = if least.is_finite() { least.max(1.0) } else { 1.0 };
    let x = Scale::logarithmic(least, most, (left, right));
    let requests = waits.iter().map(Vec::len).max().unwrap_or(0);
    let nines = if requests >= 1000 { 3.0 } else { 2.0 };
    let y = Scale::linear(0.0, nines, (bottom, top));
    let mut sheet = Sheet::new(WIDTH, HEIGHT, title);
    axes(&mut sheet, &x, &y, nines);
    for (number, (curve, waits)) in curves.iter().zip(&waits).enumerate() {
        let weight = Weight::of(curve.policy);
        let points: Vec<(f64, f64)> = (0..=POINTS)
            .map(|point| nines * point as f64 / POINTS as f64)
            .map(|nine| (percentile(waits, share(nine)), nine))
            .take_while(|(wait, _)| *wait < NEVER_MS)
            .map(|(wait, nine)| (x.at(wait), y.at(nine)))
            .collect();
        if !waits.is_empty() {
            sheet.curve(number, weight, &points);
        }
        legend(&mut sheet, number, curve.policy, percentile(waits, 0.99));
    }
    sheet.finish()
}

/// Milliseconds of every counted request.
fn sorted_waits(curve: &Curve<'_>) -> Vec<f64> {
    let wait = |ttft: std::time::Duration| ttft.as_secs_f64() * 1e3;
    let ttfts = curve.run.counted().map(crate::lab::outcome::Outcome::time_to_first_token);
    let mut waits: Vec<f64> = ttfts.map(|ttft| ttft.map_or(NEVER_MS, wait)).collect();
    waits.sort_unstable_by(f64::total_cmp);
    waits
}

/// Two nines are 0.99.
fn share(nines: f64) -> f64 {
    1.0 - 10_f64.powf(-nines)
}

fn axes(sheet: &mut Sheet, x: &Scale, y: &Scale, nines: f64) {
    let [left, right, top, bottom] = FRAME;
    for tick in x.ticks() {
        let at = x.at(tick);
        sheet.line("grid", (at, top), (at, bottom));
        sheet.text(at, bottom + 16.0, Anchor::Middle, "quiet", &duration_label(tick));
    }
    for percent in [0.0, 50.0, 90.0, 95.0, 99.0, 99.9] {
        let nine = -f64::log10(1.0 - percent / 100.0);
        if nine <= nines + 1e-9 {
            let at = y.at(nine);
            sheet.line("grid", (left, at), (right, at));
            sheet.text(left - 6.0, at + 4.0, Anchor::End, "quiet", &format!("{percent} %"));
        }
    }
    sheet.line("axis", (left, bottom), (right, bottom));
    sheet.line("axis", (left, top), (left, bottom));
    let middle = f64::midpoint(left, right);
    sheet.text(middle, bottom + 36.0, Anchor::Middle, "quiet", "time to first token");
    sheet.upright(18.0, f64::midpoint(top, bottom), "requests answered within (%, by nines)");
}

fn legend(sheet: &mut Sheet, number: usize, policy: &str, p99: f64) {
    let [_, right, top, _] = FRAME;
    let y = top + 14.0 + 22.0 * number as f64;
    let weight = Weight::of(policy);
    sheet.curve(number, weight, &[(right + 16.0, y - 4.0), (right + 48.0, y - 4.0)]);
    let p99 = if p99 >= NEVER_MS { "never".to_owned() } else { duration_label(p99) };
    sheet.text(right + 54.0, y, Anchor::Start, "", &format!("{policy}, P99 {p99}"));
}
