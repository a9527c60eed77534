//! Where requests wait: the queue in every engine over time, a panel per policy.
//!
//! A fleet has too many engines for a line each, so a panel is a map: a row per engine, time
//! from left to right, darker where more requests wait. All panels share one scale, which
//! is logarithmic: one waiting request is visible beside a hundred.

use super::scale::{Scale, significant};
use super::svg::{Anchor, Sheet};
use super::{CAPTION, Curve, RIGHT, WIDTH, kind_label, kinds};

const LEFT: f64 = 150.0;
const TOP: f64 = 64.0;
const COLUMNS: usize = 138;
/// Shades that are told apart; cells of the same shade in a row become one.
const SHADES: f64 = 12.0;

/// The picture; `endpoints` are the engines' names.
#[must_use]
pub fn queue(title: &str, curves: &[Curve<'_>], endpoints: &[String]) -> String {
    let row = (160.0 / endpoints.len().max(1) as f64).clamp(3.0, 14.0);
    let panel = CAPTION + row * endpoints.len() as f64;
    let end = curves.iter().flat_map(|curve| &curve.run.samples).map(|sample| sample.at).max();
    let end = end.map_or(1.0, |end| end.since_origin().as_secs_f64().max(1.0));
    let maps: Vec<Vec<Vec<u32>>> =
        curves.iter().map(|curve| map(curve, endpoints.len(), end)).collect();
    let most = maps.iter().flatten().flatten().copied().max().unwrap_or(0);
    let mut sheet = Sheet::new(WIDTH, TOP + panel * curves.len() as f64 + 46.0, title);
    legend(&mut sheet, most);
    for (number, (curve, map)) in curves.iter().zip(&maps).enumerate() {
        let top = TOP + panel * number as f64;
        sheet.text(LEFT, top + 16.0, Anchor::Start, "", curve.policy);
        for kind in kinds(endpoints) {
            let middle = kind.0 as f64 + kind.1 as f64 / 2.0;
            let y = top + CAPTION + row * middle + 4.0;
            sheet.text(LEFT - 8.0, y, Anchor::End, "quiet", &kind_label(endpoints, kind));
        }
        for (endpoint, cells) in map.iter().enumerate() {
            let y = top + CAPTION + row * endpoint as f64;
            draw_row(&mut sheet, y, row, cells, most);
        }
        let bottom = top + panel;
        sheet.line("axis", (LEFT, bottom), (RIGHT, bottom));
    }
    time_axis(&mut sheet, TOP + panel * curves.len() as f64, end);
    sheet.finish()
}

/// Longest queue of each engine in each column of time.
fn map(curve: &Curve<'_>, endpoints: usize, end: f64) -> Vec<Vec<u32>> {
    let mut map = vec![vec![0; COLUMNS]; endpoints];
    for sample in &curve.run.samples {
        let share = sample.at.since_origin().as_secs_f64() / end;
        let column = ((share * COLUMNS as f64) as usize).min(COLUMNS - 1);
        if let Some(cells) = map.get_mut(sample.endpoint) {
            cells[column] = cells[column].max(sample.waiting);
        }
    }
    map
}

/// 0 to 1, in steps.
fn shade(waiting: u32, most: u32) -> f64 {
    let share = f64::from(waiting).ln_1p() / f64::from(most.max(1)).ln_1p();
    (share * SHADES).ceil() / SHADES
}

fn draw_row(sheet: &mut Sheet, y: f64, height: f64, cells: &[u32], most: u32) {
    let width = (RIGHT - LEFT) / COLUMNS as f64;
    let same = |a: &u32, b: &u32| shade(*a, most).to_bits() == shade(*b, most).to_bits();
    let mut column = 0;
    for part in cells.chunk_by(same) {
        if part[0] > 0 {
            let corner = (LEFT + width * column as f64, y);
            let size = (width * part.len() as f64, height - 0.5);
            sheet.bar(0, shade(part[0], most), corner, size);
        }
        column += part.len();
    }
}

fn legend(sheet: &mut Sheet, most: u32) {
    sheet.text(LEFT, 46.0, Anchor::Start, "quiet", "requests waiting in the engine");
    let steps: Vec<u32> =
        [1, 3, 10, 30, 100, 300, 1000].into_iter().filter(|step| *step < most).collect();
    for (place, waiting) in steps.into_iter().chain([most]).enumerate() {
        let x = LEFT + 190.0 + 62.0 * place as f64;
        if waiting > 0 {
            sheet.bar(0, shade(waiting, most), (x, 36.0), (16.0, 12.0));
        }
        sheet.text(x + 20.0, 46.0, Anchor::Start, "quiet", &waiting.to_string());
    }
}

fn time_axis(sheet: &mut Sheet, bottom: f64, end: f64) {
    let scale = Scale::linear(0.0, end, (LEFT, RIGHT));
    for tick in scale.ticks() {
        let x = scale.at(tick);
        sheet.line("axis", (x, bottom), (x, bottom + 4.0));
        sheet.text(x, bottom + 18.0, Anchor::Middle, "quiet", &significant(tick));
    }
    sheet.text(f64::midpoint(LEFT, RIGHT), bottom + 36.0, Anchor::Middle, "quiet", "time (s)");
}
