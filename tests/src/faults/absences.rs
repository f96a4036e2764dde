//! The spans of time in which a process can't answer. `servers` writes, and the plans about a
//! webhook read: a wrong answer within a span is no violation.

use jiff::Timestamp;

/// The spans in which a process can't answer, each from a blow until the process is back. The last
/// may still go on.
#[derive(Debug, Default)]
pub(super) struct Absences(Vec<(Timestamp, Option<Timestamp>)>);

impl Absences {
    /// Begins a span. The beginning of a span that still goes on moves: the process could answer
    /// until now.
    pub fn begin(&mut self, at: Timestamp) {
        match self.0.last_mut() {
            Some((began, None)) => *began = at,
            _ => self.0.push((at, None)),
        }
    }

    /// Ends the span that still goes on, if there is one.
    pub fn end(&mut self, at: Timestamp) {
        if let Some((_, ended @ None)) = self.0.last_mut() {
            *ended = Some(at);
        }
    }

    /// True if a span overlaps the time from `from` to `to`.
    pub fn touch(&self, from: Timestamp, to: Timestamp) -> bool {
        self.0.iter().any(|(began, ended)| *began <= to && ended.is_none_or(|ended| from <= ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn only_what_is_asked_or_answered_while_a_process_is_away_is_excused() {
        let mut absences = Absences::default();
        assert!(!absences.touch(at(0), at(99)));
        absences.begin(at(10));
        absences.end(at(20));
        absences.end(at(50));
        for (asked, answered, is_excused) in
            [(8, 9, false), (9, 10, true), (12, 13, true), (9, 21, true), (20, 25, true), (21, 22, false)]
        {
            assert_eq!(absences.touch(at(asked), at(answered)), is_excused, "{asked} {answered}");
        }
        absences.begin(at(30));
        assert!(absences.touch(at(60), at(61)), "it lasts");
    }

    #[test]
    fn a_listener_that_still_accepts_is_no_absence() {
        let mut absences = Absences::default();
        absences.begin(at(10));
        absences.begin(at(11));
        absences.end(at(20));
        assert!(!absences.touch(at(9), at(10)) && absences.touch(at(10), at(11)));
    }
}
