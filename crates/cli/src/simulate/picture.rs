//! The hours of each queue before and after, as a picture.
//!
//! Called by `simulate --output svg`. The picture has no script and loads nothing, and follows the
//! reader's light or dark colours. Names of queues come from tenants, and are escaped.

use std::fmt::Write;

use super::past::{Past, Unit};
use crate::print::{amount, printable};

/// The number of queues that are shown, those with the most hours. The others are added up in one
/// row.
const SHOWN: usize = 20;

/// The largest number of characters in a line of text.
const LINE: usize = 110;
/// The largest number of characters of a queue's name.
const NAME: usize = 28;

/// The left end of bars, the width of the longest bar, and the height of a row, in units of the
/// picture.
const LEFT: f64 = 220.0;
const WIDEST: f64 = 500.0;
const ROW: usize = 40;

const STYLE: &str = "
    .page { fill: #ffffff; } .before { fill: #8c959f; } .after { fill: #0969da; } text { font: 14px sans-serif; fill: #1f2328; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; } .before { fill: #656c76; } .after { fill: #4493f8; } text { fill: #f0f6fc; }
    }
  ";

/// Returns an SVG with two bars for each queue: the hours that its runs used by the baseline, and
/// those that they would have used.
pub fn picture(sentence: &str, before: &Past, after: &Past, unit: Unit) -> String {
    let [used, left] = [before, after].map(|past| by_queue(past, unit));
    let bars = before.queues.iter().zip(used.into_iter().zip(left));
    let mut bars: Vec<_> = bars.map(|(queue, (used, left))| (&*queue.name, used, left)).collect();
    bars.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
    let others = bars.split_off(bars.len().min(SHOWN));
    let (used, left) = others.iter().fold((0.0, 0.0), |(used, left), of| (used + of.1, left + of.2));
    let others = format!("others ({})", others.len());
    bars.extend((used > 0.0).then_some((others.as_str(), used, left)));
    let longest = bars.iter().flat_map(|(_, used, left)| [*used, *left]).fold(f64::MIN_POSITIVE, f64::max);
    let lines = lines(&printable(sentence));
    let top = lines.len().saturating_mul(20).saturating_add(40);
    let height = bars.len().saturating_mul(ROW).saturating_add(top);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 {height}\" role=\"img\" aria-labelledby=\"title\">\n  <title id=\"title\">{}</title>\n  <style>{STYLE}</style>\n  <rect class=\"page\" width=\"960\" height=\"{height}\"/>\n",
        escaped(&lines.join(" "))
    );
    for (number, line) in lines.iter().enumerate() {
        text(&mut svg, 20.0, number.saturating_mul(20).saturating_add(30), line);
    }
    for (number, (name, used, left)) in bars.iter().enumerate() {
        let y = number.saturating_mul(ROW).saturating_add(top);
        let name: String = printable(name).chars().take(NAME).collect();
        text(&mut svg, 20.0, y.saturating_add(18), &name);
        for (class, of, y) in [("before", used, y), ("after", left, y.saturating_add(14))] {
            let width = of / longest * WIDEST;
            // a write to a string can't fail
            _ = writeln!(
                svg,
                r#"  <rect class="{class}" x="{LEFT}" y="{y}" width="{width:.1}" height="12"/>"#
            );
        }
        let label = format!("{} → {} {}", amount(*used), amount(*left), unit.hours());
        text(&mut svg, LEFT + used.max(*left) / longest * WIDEST + 8.0, y.saturating_add(18), &label);
    }
    svg + "</svg>\n"
}

/// Returns the unit-hours of each queue, at the place of its number.
fn by_queue(past: &Past, unit: Unit) -> Vec<f64> {
    let mut used = vec![0.0; past.queues.len()];
    for run in &past.runs {
        let hours = run.used(unit, past.known_since, run.end);
        used.get_mut(run.queue as usize).into_iter().for_each(|of| *of += hours);
    }
    used
}

/// Adds a text to the picture.
fn text(svg: &mut String, x: f64, y: usize, text: &str) {
    _ = writeln!(svg, "  <text x=\"{x:.1}\" y=\"{y}\">{}</text>", escaped(text));
}

/// Breaks a text into lines at spaces.
fn lines(text: &str) -> Vec<String> {
    text.split(' ').fold(Vec::new(), |mut lines, word| {
        match lines.last_mut() {
            Some(line) if line.len().saturating_add(word.len()) < LINE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
        lines
    })
}

/// Escapes a text for the content of an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
