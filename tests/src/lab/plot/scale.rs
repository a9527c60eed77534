//! Scales: from values to pixels, and the values worth a tick.

/// A linear or logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    pixels: (f64, f64),
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Linear,
    Logarithmic,
}

impl Scale {
    /// `from..to` onto `pixels`; an empty range is widened.
    pub(super) fn linear(from: f64, to: f64, pixels: (f64, f64)) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self { from, to, pixels, kind: Kind::Linear }
    }

    /// The decades around `from..to` (positive) onto `pixels`.
    pub(super) fn logarithmic(from: f64, to: f64, pixels: (f64, f64)) -> Self {
        let from = 10_f64.powf(from.max(1e-9).log10().floor());
        let to = 10_f64.powf(to.max(from * 1.001).log10().ceil());
        Self { from, to, pixels, kind: Kind::Logarithmic }
    }

    /// Pixel of a value; values outside are put on the edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear => (value - self.from) / (self.to - self.from),
            Kind::Logarithmic => {
                (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
            }
        };
        self.pixels.0 + share.clamp(0.0, 1.0) * (self.pixels.1 - self.pixels.0)
    }

    /// Round values within: powers of ten, or steps of 1, 2 or 5 of them.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match self.kind {
            Kind::Logarithmic => {
                let (first, last) =
                    (self.from.log10().round() as i32, self.to.log10().round() as i32);
                (first..=last).map(|power| 10_f64.powi(power)).collect()
            }
            Kind::Linear => {
                let rough = (self.to - self.from) / 6.0;
                let power = 10_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
                let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
                let (first, last) =
                    ((self.from / step).ceil() as i64, (self.to / step).floor() as i64);
                (first..=last).map(|number| number as f64 * step).collect()
            }
        }
    }
}

/// A time in milliseconds as people write it.
pub(super) fn duration_label(milliseconds: f64) -> String {
    if milliseconds < 1000.0 {
        format!("{} ms", significant(milliseconds))
    } else {
        format!("{} s", significant(milliseconds / 1000.0))
    }
}

/// Three digits at most, without needless zeros.
pub(super) fn significant(value: f64) -> String {
    let decimals = if value >= 100.0 { 0 } else { usize::from(value < 10.0) + 1 };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the values are exact")]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_numbers() {
        assert_eq!(
            Scale::linear(0.0, 58.0, (0.0, 1.0)).ticks(),
            [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
        );
        assert_eq!(Scale::linear(0.0, 0.0, (0.0, 1.0)).ticks().len(), 6);
    }

    #[test]
    fn logarithmic_axes_have_whole_decades() {
        let scale = Scale::logarithmic(35.0, 4_000.0, (100.0, 400.0));
        assert_eq!(scale.ticks(), [10.0, 100.0, 1_000.0, 10_000.0]);
        assert_eq!(
            [10.0, 100.0, 10_000.0, 1.0].map(|value| scale.at(value).round()),
            [100.0, 200.0, 400.0, 100.0]
        );
    }

    #[test]
    fn labels_have_no_needless_digits() {
        let labels = [0.5, 10.0, 100.0, 1_000.0, 12_345.0, 250_000.0].map(duration_label);
        assert_eq!(labels, ["0.5 ms", "10 ms", "100 ms", "1 s", "12.3 s", "250 s"]);
        assert_eq!([0.0, 12.0, 99.96, 200.0].map(significant), ["0", "12", "100", "200"]);
    }
}
