//! A sheet to draw on.

use std::fmt::Write as _;

use crate::lab::report::escaped;

/// Colours by role, light and dark. `c0` to `c6` are after Okabe and Ito (2008), who chose
/// them for all kinds of colour vision; the dark ones are lighter versions of the same hues.
const STYLE: &str = "\
svg { background: var(--paper); font: 12px system-ui, sans-serif; \
--paper: #fff; --ink: #1b1b1b; --quiet: #5c5c5c; --grid: #ddd; \
--c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b8578f; --c4: #b87f00; --c5: #2e8bc0; --c6: #444 }
@media (prefers-color-scheme: dark) { svg { \
--paper: #16181c; --ink: #ececec; --quiet: #a8a8a8; --grid: #34373d; \
--c0: #56b4e9; --c1: #ff8b47; --c2: #35cfa2; --c3: #e79ac4; --c4: #f0c04f; --c5: #9fd3f5; --c6: #ccc } }
text { fill: var(--ink) } .quiet { fill: var(--quiet) } .title { font-size: 15px; font-weight: 600 }
.grid { stroke: var(--grid) } .axis { stroke: var(--quiet) } .curve { fill: none; stroke-width: 1.8 }
.strong { stroke-width: 3 } .mean { stroke: var(--ink); stroke-dasharray: 4 3 }
";

const COLOURS: usize = 7;
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "9 3 2 3"];

/// Where a text is fixed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A sheet; units are pixels, the origin is at the top left.
#[derive(Debug)]
pub(super) struct Sheet {
    width: f64,
    height: f64,
    title: String,
    body: String,
}

impl Sheet {
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let mut sheet = Self { width, height, title: escaped(title), body: String::new() };
        sheet.text(12.0, 22.0, Anchor::Start, "title", title);
        sheet
    }

    pub(super) fn finish(self) -> String {
        let Self { width, height, title, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style>\n{body}</svg>\n"
        )
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    /// A text that reads upwards, for the vertical axis.
    pub(super) fn upright(&mut self, x: f64, y: f64, text: &str) {
        let text = escaped(text);
        self.add(format_args!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\" \
             class=\"quiet\">{text}</text>"
        ));
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// A line through `points` in the manner of series `number`.
    pub(super) fn curve(&mut self, number: usize, weight: Weight, points: &[(f64, f64)]) {
        let class = if weight == Weight::Strong { "curve strong" } else { "curve" };
        let (colour, dash) = (number % COLOURS, DASHES[number % DASHES.len()]);
        let path = points.iter().fold(String::new(), |mut path, (x, y)| {
            // Writing to a string cannot fail.
            let _ = write!(path, "{x:.1},{y:.1} ");
            path
        });
        let path = path.trim_end();
        self.add(format_args!(
            "<polyline class=\"{class}\" style=\"stroke: var(--c{colour}); \
             stroke-dasharray: {dash}\" points=\"{path}\"/>"
        ));
    }

    /// A filled rectangle in the colour of series `number`.
    pub(super) fn bar(
        &mut self,
        number: usize,
        opacity: f64,
        corner: (f64, f64),
        size: (f64, f64),
    ) {
        let colour = number % COLOURS;
        self.add(format_args!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
             style=\"fill: var(--c{colour}); fill-opacity: {opacity:.2}\"/>",
            corner.0, corner.1, size.0, size.1
        ));
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }
}

/// How much a curve stands out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Weight {
    Plain,
    Strong,
}

impl Weight {
    /// Our own default policy is what a reader looks for.
    pub(super) fn of(policy: &str) -> Self {
        if policy.starts_with("predicted") { Self::Strong } else { Self::Plain }
    }
}
