//! From ratings to a choice, ties at random.
//!
//! A pick and an explanation go through the same ballot, so that an explanation
//! cannot say anything else than what a pick would do.

use fastrand::Rng;

use super::{PolicySettings, predicted, weighted};
use crate::score::no_hit_lru::ColdOrder;
use crate::score::{Scene, Sheet};

/// State of policies that have any: whose turn it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rotation {
    /// The first slot that has not had its turn.
    next: u32,
}

impl Rotation {
    /// Notes that `slot` was picked.
    pub(crate) fn picked(&mut self, slot: u32) {
        self.next = slot + 1;
    }

    /// The candidate whose turn it is; `candidates` are ascending.
    fn turn(self, candidates: &[u32]) -> u32 {
        let at = candidates.partition_point(|&slot| slot < self.next);
        candidates.get(at).or_else(|| candidates.first()).copied().unwrap_or(0)
    }
}

/// The rated candidates of one decision.
#[derive(Debug)]
pub(crate) struct Ballot<'a> {
    policy: &'a PolicySettings,
    candidates: &'a [u32],
    totals: &'a [f64],
    /// The total from which on candidates are tied with the best.
    floor: f64,
}

impl<'a> Ballot<'a> {
    /// Rates `candidates` (not empty, ascending) into `totals`.
    pub(crate) fn rate(
        policy: &'a PolicySettings,
        scene: &Scene<'_>,
        candidates: &'a [u32],
        cold: &ColdOrder,
        rotation: Rotation,
        totals: &'a mut Vec<f64>,
    ) -> Self {
        match policy {
            PolicySettings::Predicted(settings) => {
                predicted::rate(settings, scene, candidates, totals);
            }
            PolicySettings::Weighted(weights) => {
                let sheet = Sheet::gather(weights, scene, candidates, cold);
                weighted::rate(weights, scene, &sheet, candidates, totals);
            }
            PolicySettings::LeastRequest | PolicySettings::PowerOfTwo => {
                fill(totals, candidates, |slot| -busyness(scene, slot));
            }
            PolicySettings::Random => fill(totals, candidates, |_| 0.0),
            PolicySettings::RoundRobin => {
                let turn = rotation.turn(candidates);
                fill(totals, candidates, |slot| f64::from(u8::from(slot == turn)));
            }
        }
        let floor = match policy {
            PolicySettings::Predicted(_) => predicted::floor(scene, candidates, totals),
            _ => totals.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        };
        Self { policy, candidates, totals, floor }
    }

    /// Takes one candidate.
    pub(crate) fn choose(&self, rng: &mut Rng) -> u32 {
        if matches!(self.policy, PolicySettings::PowerOfTwo) {
            return self.duel(rng);
        }
        let floor = self.floor;
        let tied = self.totals.iter().filter(|&&total| total >= floor).count();
        let mut skip = if tied > 1 { rng.usize(..tied) } else { 0 };
        for (&slot, &total) in self.candidates.iter().zip(self.totals) {
            if total >= floor {
                if skip == 0 {
                    return slot;
                }
                skip -= 1;
            }
        }
        self.candidates[0]
    }

    /// Every candidate that [`choose`](Self::choose) could take.
    pub(crate) fn winners(&self) -> Vec<u32> {
        let floor = if matches!(self.policy, PolicySettings::PowerOfTwo) {
            self.second_least()
        } else {
            self.floor
        };
        let rated = self.candidates.iter().zip(self.totals);
        rated.filter(|(_, total)| **total >= floor).map(|(&slot, _)| slot).collect()
    }

    /// The better of two distinct candidates drawn at random; the first if equal.
    fn duel(&self, rng: &mut Rng) -> u32 {
        let count = self.candidates.len();
        if count < 2 {
            return self.candidates[0];
        }
        let first = rng.usize(..count);
        let mut second = rng.usize(..count - 1);
        if second >= first {
            second += 1;
        }
        if self.totals[second] > self.totals[first] {
            self.candidates[second]
        } else {
            self.candidates[first]
        }
    }

    /// What a candidate needs to win a duel against somebody.
    fn second_least(&self) -> f64 {
        let (mut least, mut second) = (f64::INFINITY, f64::INFINITY);
        for &total in self.totals {
            if total < least {
                (least, second) = (total, least);
            } else {
                second = second.min(total);
            }
        }
        if second.is_finite() { second } else { least }
    }
}

fn fill(totals: &mut Vec<f64>, candidates: &[u32], total: impl Fn(u32) -> f64) {
    totals.clear();
    totals.extend(candidates.iter().map(|&slot| total(slot)));
}

/// Own requests in flight, this one included, relative to what the endpoint should get.
fn busyness(scene: &Scene<'_>, slot: u32) -> f64 {
    let row = scene.row(slot);
    f64::from(row.own.in_flight + 1) / (row.weight * scene.ramp(slot))
}
