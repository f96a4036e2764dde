//! Tables in kubectl's style: upper-case headers, columns three spaces apart.
//!
//! Used by all commands. Each cell is made [`printable`] here, so callers may pass texts of
//! tenants.

use jiff::Timestamp;
use tenure_types::hidden::is_hidden;

use super::age;

/// The number of spaces between columns.
const BETWEEN: usize = 3;

/// A column of a table: its header, and its cell for a row. A cell with an age is `<none>` if no
/// time is given.
pub type Column<R> = (&'static str, fn(&R, Option<Timestamp>) -> String);

/// Columns under upper-case headers, each as wide as its widest cell.
#[derive(Debug)]
pub struct Table {
    widths: Vec<usize>,
}

impl Table {
    /// Returns columns that are as wide as these rows need. The first row has the headers.
    pub fn fitting(rows: &[Vec<String>]) -> Self {
        let mut widths = Vec::new();
        for row in rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        Self { widths }
    }

    /// Returns one row as a line. Nothing is padded after the last cell. A cell that is too wide
    /// moves the next ones.
    pub fn line(&self, row: &[String]) -> String {
        let mut line = String::new();
        for (place, cell) in row.iter().enumerate() {
            line.push_str(&printable(cell));
            let width = self.widths.get(place).copied().unwrap_or_default();
            let padding = width.saturating_sub(cell.chars().count()).saturating_add(BETWEEN);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        format!("{}\n", line.trim_end())
    }
}

/// Returns a table with these headers.
pub fn table(headers: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let headers = headers.iter().map(|header| (*header).to_owned()).collect();
    let rows: Vec<_> = std::iter::once(headers).chain(rows).collect();
    let table = Table::fitting(&rows);
    rows.iter().map(|row| table.line(row)).collect()
}

/// The headers and the rows of one table among others.
pub type TablePart = (Vec<&'static str>, Vec<Vec<String>>);

/// Returns tables, with an empty line between them. Tables without rows are left out.
pub fn tables(parts: impl IntoIterator<Item = TablePart>) -> String {
    let parts = parts.into_iter().filter(|(_, rows)| !rows.is_empty());
    parts.map(|(headers, rows)| table(&headers, rows)).collect::<Vec<_>>().join("\n")
}

/// Returns a text that is safe to show: each hidden character is replaced by U+FFFD. Tenants write
/// some of the texts that we show: they might send commands to the terminal, or turn the direction
/// of the text that follows.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns a cell. None: `<none>`.
pub fn cell(text: Option<impl Into<String>>) -> String {
    text.map_or_else(|| "<none>".into(), Into::into)
}

/// Returns a cell with a time to the second. None: `<none>`.
pub fn moment_cell(at: Option<Timestamp>) -> String {
    cell(at.map(age::moment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(rows: &[&[&str]]) -> String {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
        let table = Table::fitting(&rows);
        rows.iter().map(|row| table.line(row)).collect()
    }

    #[test]
    fn columns_are_three_spaces_apart_and_lines_end_with_their_last_word() {
        let expected = "NAME     AGE      STATE\na        <none>   Running\nlonger   5s\n";
        assert_eq!(
            printed(&[&["NAME", "AGE", "STATE"], &["a", "<none>", "Running"], &["longer", "5s", ""]]),
            expected
        );
    }

    #[test]
    fn nothing_that_others_have_written_commands_the_terminal() {
        assert_eq!(printed(&[&["\u{1b}[2Ja\nb"]]), "\u{fffd}[2Ja\u{fffd}b\n");
    }

    #[test]
    fn a_later_row_may_be_wider() {
        let table = Table::fitting(&[vec!["A".into(), "B".into()]]);
        assert_eq!(table.line(&["long".into(), "b".into(), "c".into()]), "long   b   c\n");
    }
}
