//! Text in columns.

/// Rows in columns as wide as they need be; the first row is the head. Every column
/// but the first is set to the right when all below its head are numbers or `-`.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(|column| width(rows, column)).collect();
    let right: Vec<bool> = (0..columns).map(|column| is_numeric(rows, column)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let cell =
                if right[column] { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            line.push_str(if column == 0 { "" } else { "  " });
            line.push_str(&cell);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn width(rows: &[Vec<String>], column: usize) -> usize {
    rows.iter()
        .filter_map(|row| row.get(column))
        .map(|cell| cell.chars().count())
        .max()
        .unwrap_or(0)
}

fn is_numeric(rows: &[Vec<String>], column: usize) -> bool {
    let mut cells = rows.iter().skip(1).filter_map(|row| row.get(column));
    column > 0
        && cells
            .all(|cell| cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
}

/// A number for people, or `-` when there is none.
pub(super) fn number(value: &serde_json::Value, decimals: usize) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// A text, or `-` when there is none.
pub(super) fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_text_to_the_left() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows =
            [row(["NAME", "N", "STATE"]), row(["a", "100", "serving"]), row(["long", "-", "-"])];
        assert_eq!(table(&rows), "NAME    N  STATE\na     100  serving\nlong    -  -\n");
    }
}
