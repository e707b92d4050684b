//! Pictures for the terminal.

use crate::report::time;

/// One line of points (size, nanoseconds), in order of size.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: usize = 60;
const HEIGHT: usize = 14;

/// Times over sizes, both on logarithmic axes: a letter where something was measured, dots between, and `:` where `marks` are.
pub(crate) fn curves(series: &[Series], marks: &[f64]) -> Vec<String> {
    let all = || series.iter().flat_map(|series| series.points.iter().copied());
    let span = |pick: fn((f64, f64)) -> f64| {
        let low = all().map(|point| pick(point).max(1.0).ln()).fold(f64::INFINITY, f64::min);
        let high = all().map(|point| pick(point).max(1.0).ln()).fold(f64::NEG_INFINITY, f64::max);
        // A single size or time still has a width.
        if high - low < 0.01 { (low - 0.5, high + 0.5) } else { (low, high) }
    };
    if all().next().is_none() {
        return Vec::new();
    }
    let ((left, right), (bottom, top)) = (span(|point| point.0), span(|point| point.1));
    let column = |x: f64| ((x.max(1.0).ln() - left) / (right - left) * (WIDTH - 1) as f64).round() as usize;
    let row = |y: f64| ((top - y.max(1.0).ln()) / (top - bottom) * (HEIGHT - 1) as f64).round() as usize;
    let mut cells = vec![vec![' '; WIDTH]; HEIGHT];
    for &mark in marks.iter().filter(|mark| (left..=right).contains(&mark.max(1.0).ln())) {
        cells.iter_mut().for_each(|cells| cells[column(mark)] = ':');
    }
    for series in series {
        for pair in series.points.windows(2) {
            let [(x0, y0), (x1, y1)] = [pair[0], pair[1]].map(|(x, y)| (x.max(1.0).ln(), y.max(1.0).ln()));
            (column(pair[0].0)..=column(pair[1].0)).for_each(|at| {
                let x = left + (right - left) * at as f64 / (WIDTH - 1) as f64;
                let along = ((x - x0) / (x1 - x0)).clamp(0.0, 1.0);
                cells[row((y0 + (y1 - y0) * along).exp())][at] = '.';
            });
        }
    }
    let names = letters(series);
    for (series, &letter) in series.iter().zip(&names) {
        for &(x, y) in &series.points {
            let cell = &mut cells[row(y)][column(x)];
            *cell = if cell.is_alphabetic() { '*' } else { letter };
        }
    }
    let label = |row: usize| time((top - (top - bottom) * row as f64 / (HEIGHT - 1) as f64).exp());
    let mut lines = Vec::new();
    for (row, cells) in cells.iter().enumerate() {
        let labelled = row == 0 || row == HEIGHT / 2 || row == HEIGHT - 1;
        let (text, tick) = if labelled { (label(row), '+') } else { (String::new(), '|') };
        lines.push(format!("{text:>11} {tick}{}", cells.iter().collect::<String>()).trim_end().to_owned());
    }
    lines.push(format!("{:>11} +{}", "", "-".repeat(WIDTH)));
    let (first, last) = (left.exp().round().to_string(), right.exp().round().to_string());
    lines.push(format!("{:>11}  {first}{last:>1$}", "", WIDTH.saturating_sub(first.len())));
    let legend: Vec<String> =
        names.iter().zip(series).map(|(letter, series)| format!("{letter} {}", series.name)).collect();
    lines.push(format!("{:>11}  {}", "", legend.join("   ")));
    lines
}

/// A letter for each name: its first that no other has.
fn letters(series: &[Series]) -> Vec<char> {
    let mut taken = Vec::new();
    for series in series {
        let own = series.name.chars().chain('a'..='z').find(|c| c.is_alphabetic() && !taken.contains(c));
        taken.push(own.unwrap_or('?'));
    }
    taken
}

/// Bars with their times, and a note behind each.
pub(crate) fn bars(rows: &[(String, f64, String)]) -> Vec<String> {
    let longest = rows.iter().map(|row| row.1).fold(0.0, f64::max).max(1.0);
    let label = rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0);
    let bar = |(name, ns, note): &(String, f64, String)| {
        let length = ((ns / longest * 40.0).round() as usize).max(1);
        format!("{name:>label$}  {:<40} {:>10} {note}", "#".repeat(length), time(*ns)).trim_end().to_owned()
    };
    rows.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_cross_where_they_should() {
        let series = [
            Series { name: "cpu".into(), points: vec![(1e3, 1e3), (1e4, 1e4), (1e5, 1e5)] },
            Series { name: "cuda".into(), points: vec![(1e3, 1e4), (1e4, 1e4), (1e5, 1e4)] },
        ];
        let lines = curves(&series, &[1e4]);
        assert_eq!(lines.len(), HEIGHT + 3);
        assert!(lines[0].contains("100.00 µs") && lines[0].ends_with('c'), "{}", lines.join("\n"));
        // The two meet in the middle, on the mark.
        assert!(lines.iter().any(|line| line.contains('*')), "{}", lines.join("\n"));
        assert!(lines.iter().filter(|line| line.contains(':')).count() > HEIGHT / 2);
        assert!(lines[HEIGHT + 2].contains("c cpu   u cuda"));
        assert!(curves(&[], &[]).is_empty());
        // A single point is drawn, not divided by.
        let one = curves(&[Series { name: "cpu".into(), points: vec![(64.0, 500.0)] }], &[]);
        assert!(one.iter().any(|line| line.contains('c')));
    }

    #[test]
    fn bars_are_as_long_as_their_times() {
        let rows = [("64".to_owned(), 1000.0, String::new()), ("128".to_owned(), 2000.0, "chosen".to_owned())];
        let bars = bars(&rows);
        assert_eq!(bars[0].matches('#').count() * 2, bars[1].matches('#').count());
        assert!(bars[1].ends_with("chosen"));
    }
}
