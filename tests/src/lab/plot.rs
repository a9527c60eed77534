//! Plots of runs, as SVG written by hand.
//!
//! Three questions have a plot each: how long do requests wait, at which engine, and who
//! gets how many. A picture stands alone: it names its axes with their units, follows the
//! reader's light or dark theme, and tells policies apart by dash as well as by a colour from a
//! palette for the colour-blind. Same runs, same bytes.

use super::outcome::Run;

mod queue;
mod scale;
mod share;
mod svg;
mod ttft;

pub use queue::queue;
pub use share::share;
pub use ttft::ttft;

/// Width of every picture.
const WIDTH: f64 = 860.0;
/// Where its panels end.
const RIGHT: f64 = 840.0;
/// Room above a panel for its policy's name.
const CAPTION: f64 = 24.0;

/// A policy's run, to be drawn among others of the same scenario and seed.
#[derive(Clone, Copy, Debug)]
pub struct Curve<'a> {
    /// Name of the policy.
    pub policy: &'a str,
    /// What became of its requests.
    pub run: &'a Run,
}

/// All three pictures of a scenario, by file name: `<stem>-ttft.svg` and so on.
#[must_use]
pub fn pictures(
    stem: &str,
    title: &str,
    curves: &[Curve<'_>],
    endpoints: &[String],
) -> [(String, String); 3] {
    [
        (format!("{stem}-ttft.svg"), ttft(title, curves)),
        (format!("{stem}-queue.svg"), queue(title, curves, endpoints)),
        (format!("{stem}-share.svg"), share(title, curves, endpoints)),
    ]
}

/// Neighbours of the same name, as `(first, count)`: engines are labelled by kind.
fn kinds(endpoints: &[String]) -> Vec<(usize, usize)> {
    let mut kinds: Vec<(usize, usize)> = Vec::new();
    for (number, name) in endpoints.iter().enumerate() {
        match kinds.last_mut().filter(|(first, _)| endpoints[*first] == *name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((number, 1)),
        }
    }
    kinds
}

/// `8b on 1 x h100 (4)`.
fn kind_label(endpoints: &[String], (first, count): (usize, usize)) -> String {
    match count {
        1 => endpoints[first].clone(),
        _ => format!("{} ({count})", endpoints[first]),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gateway_core::Time;

    use super::*;
    use crate::lab::outcome::{Fate, Outcome, Sample};

    fn at(milliseconds: u64) -> Time {
        Time::from_origin(Duration::from_millis(milliseconds))
    }

    /// Request `n` waits `n` times `step` ms; every fifth is refused.
    fn run(step: u64) -> Run {
        let outcome = |number: u64| {
            let answered = number % 5 != 4;
            Outcome {
                arrived: at(number * 10),
                endpoint: answered.then_some((number % 3) as usize),
                sent: Some(at(number * 10)),
                first_token: answered.then(|| at(number * 10 + number * step)),
                finished: None,
                prompt_tokens: 1,
                cached_tokens: 0,
                output_tokens: 1,
                preemptions: 0,
                floor: Duration::ZERO,
                target: Duration::from_secs(1),
                fate: if answered { Fate::Answered } else { Fate::Shed },
            }
        };
        let sample = |number: u64| Sample {
            at: at(number / 3 * 1000),
            endpoint: (number % 3) as usize,
            waiting: if number % 3 == 1 { number as u32 } else { 0 },
            running: 1,
        };
        Run {
            outcomes: (0..500).map(outcome).collect(),
            samples: (0..90).map(sample).collect(),
            counted_from: Time::ZERO,
            counted_until: None,
            end: at(30_000),
            endpoints: 3,
        }
    }

    fn names() -> Vec<String> {
        ["8b on h100", "8b on h100", "8b on <a10g>"].map(str::to_owned).to_vec()
    }

    /// Tags are closed in order and no number is missing.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap();
            let name = |tag: &str| tag.split([' ', '\n']).next().unwrap().to_owned();
            match tag.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop(), Some(name(closed)), "{tag}"),
                None if tag.ends_with('/') => {}
                None => open.push(name(tag)),
            }
        }
        assert!(open.is_empty(), "{open:?}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn pictures_are_well_formed_and_name_their_policies_and_units() {
        let (slow, fast) = (run(100), run(10));
        let curves = [
            Curve { policy: "round & robin", run: &slow },
            Curve { policy: "predicted", run: &fast },
        ];
        let pictures = pictures("mixed-85", "mixed", &curves, &names());
        let units = ["time to first token", "time (s)", "share of requests (%)"];
        assert_eq!(pictures[0].0, "mixed-85-ttft.svg");
        for ((_, svg), unit) in pictures.into_iter().zip(units) {
            assert_well_formed(&svg);
            for text in ["round &amp; robin", "predicted", "mixed", unit, "prefers-color-scheme"] {
                assert!(svg.contains(text), "no {text} in {svg}");
            }
        }
        assert!(share("mixed", &curves, &names()).contains("8b on &lt;a10g&gt;"));
    }

    #[test]
    fn pictures_of_nothing_are_still_pictures() {
        let nothing = Run::default();
        let curves = [Curve { policy: "predicted", run: &nothing }];
        for svg in [ttft("s", &curves), queue("s", &curves, &[]), share("s", &curves, &[])] {
            assert_well_formed(&svg);
        }
    }

    #[test]
    fn neighbours_of_one_kind_get_one_label() {
        let labels: Vec<String> =
            kinds(&names()).into_iter().map(|kind| kind_label(&names(), kind)).collect();
        assert_eq!(labels, ["8b on h100 (2)", "8b on <a10g>"]);
    }
}
