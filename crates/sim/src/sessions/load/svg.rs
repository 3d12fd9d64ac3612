//! The sawtooth as a picture.

use super::tally::{Outcome, Tooth};
use std::fmt::Write;

const WIDTH: f64 = 1_200.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 170.0;
const TITLE: f64 = 30.0;
const FOOT: f64 = 40.0;

/// The lives of all workers over virtual time, a panel for each outcome: a line grows with every
/// session, and a dot is a restart.
pub fn svg(outcomes: &[Outcome]) -> String {
    let all = || outcomes.iter().flat_map(|outcome| &outcome.teeth);
    let until = all().map(|tooth| tooth.at_ms).max().unwrap_or(1).max(1);
    let longest = all().filter_map(|tooth| tooth.lifetime).max().unwrap_or(1).max(1);
    let height = outcomes.len() as f64 * PANEL + FOOT;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#333\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fcfcf9\"/>\n"
    );
    for (place, outcome) in outcomes.iter().enumerate() {
        let panel = Panel { top: place as f64 * PANEL + TITLE, until, longest };
        panel.draw(outcome, &mut text);
    }
    let seconds = until as f64 / 1e3;
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{:.0}\">0 s</text>\
         <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">a line is a worker: sessions in its \
         life; a dot is a restart</text>\
         <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{seconds:.0} s</text>",
        height - 15.0,
        WIDTH / 2.0,
        height - 15.0,
        WIDTH - RIGHT,
        height - 15.0,
    );
    text.push_str("</svg>\n");
    text
}

struct Panel {
    top: f64,
    until: u64,
    longest: u32,
}

impl Panel {
    fn x(&self, at_ms: u64) -> f64 {
        LEFT + at_ms as f64 / self.until as f64 * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, lifetime: u32) -> f64 {
        let height = PANEL - TITLE - 10.0;
        self.top + height - f64::from(lifetime) / f64::from(self.longest) * height
    }

    fn draw(&self, outcome: &Outcome, text: &mut String) {
        let figure = |name| outcome.figure(name);
        let _ = writeln!(
            text,
            "<text x=\"{LEFT}\" y=\"{:.0}\"><tspan font-weight=\"bold\">{}</tspan>: at most {} \
             out, {:.2} on average; {:.2} % of the sessions waited; {:.2} restarts per ideal one\
             </text>",
            self.top - 8.0,
            outcome.contender.name(),
            figure("out_max"),
            figure("out_mean"),
            figure("waited_percent"),
            figure("restarts_per_ideal_ratio"),
        );
        for lifetime in [0, self.longest] {
            let y = self.y(lifetime);
            let _ = writeln!(
                text,
                "<path d=\"M{LEFT} {y:.1}H{:.0}\" stroke=\"#ccc\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#777\">{lifetime}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
            );
        }
        let workers = outcome.teeth.iter().map(|tooth| tooth.worker + 1).max().unwrap_or(0);
        for worker in 0..workers {
            let hue = worker * 360 / workers;
            let teeth = outcome.teeth.iter().filter(|tooth| tooth.worker == worker);
            let (line, dots) = self.line(teeth);
            let _ = writeln!(
                text,
                "<g stroke=\"hsl({hue} 65% 42%)\" stroke-width=\"1.3\">\
                 <path d=\"{line}\" fill=\"none\"/><path d=\"{dots}\" stroke-width=\"6\" \
                 stroke-linecap=\"round\"/></g>"
            );
        }
    }

    /// The path of a worker's lives, and one that has a dot where each ended.
    fn line<'a>(&self, teeth: impl Iterator<Item = &'a Tooth>) -> (String, String) {
        let (mut line, mut dots) = (format!("M{LEFT} {:.1}", self.y(0)), String::new());
        let mut height = self.y(0);
        for tooth in teeth {
            let x = self.x(tooth.at_ms);
            match tooth.lifetime {
                Some(0) => {
                    height = self.y(0);
                    let _ = write!(line, "M{x:.1} {height:.1}");
                }
                Some(lifetime) => {
                    height = self.y(lifetime);
                    let _ = write!(line, "L{x:.1} {height:.1}");
                }
                None => {
                    let _ = write!(line, "H{x:.1}");
                    let _ = write!(dots, "M{x:.1} {height:.1}h0");
                }
            }
        }
        (line, dots)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Contender, Options, run};
    use super::*;

    #[test]
    fn a_picture_has_a_panel_for_everybody_and_a_dot_for_every_restart_drawn() {
        let options = Options { sessions: 1_000, ..Options::default() };
        let outcomes = Contender::ALL.map(|contender| run(&options, contender));
        let picture = svg(&outcomes);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        for contender in Contender::ALL {
            assert!(picture.contains(contender.name()), "{}", contender.name());
        }
        let teeth = outcomes.iter().flat_map(|outcome| &outcome.teeth);
        let restarts = teeth.filter(|tooth| tooth.lifetime.is_none()).count();
        assert!(restarts > 50, "{restarts}");
        assert_eq!(picture.matches("h0").count(), restarts);
    }
}
