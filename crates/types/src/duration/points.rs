//! Several durations in one field: the points before the end of a run at which the workload gets a
//! notice.

use std::{fmt, str::FromStr};

use schemars::Schema;

use super::{DurationError, ExtendedDuration, Grammar};

/// The most points of a field. The schema of the CRD has the same number.
const MOST_POINTS: usize = 8;

/// The points before the end of a run at which a notice is given: durations of a grammar, separated
/// by commas, such as `1h,10m`. The longest comes first, and none comes twice. A single duration of
/// zero stands for no point at all, as does the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Points<D>([D; MOST_POINTS]);

/// A grammar of durations of which a field may have several.
pub trait PointsGrammar: Grammar + Copy + Ord + fmt::Display {
    /// The expected form of several durations, as messages continue "must be …".
    const POINTS_EXPECTED: &'static str;

    /// Converts to [`ExtendedDuration`], which then prints the text of this grammar.
    fn extended(self) -> ExtendedDuration;

    /// Returns the JSON schema of several durations.
    fn points_schema() -> Schema;
}

impl<D: PointsGrammar> Points<D> {
    /// Returns the points, the longest first.
    pub fn iter(&self) -> impl Iterator<Item = D> {
        self.0.into_iter().take_while(|point| !point.is_zero())
    }

    /// Returns the longest point. Zero: there is no point.
    pub fn longest(&self) -> D {
        self.iter().next().unwrap_or_default()
    }

    /// Converts each point to [`ExtendedDuration`].
    pub fn extended(self) -> Points<ExtendedDuration> {
        Points(self.0.map(D::extended))
    }
}

/// Makes a single point, or none of a duration of zero.
impl<D: PointsGrammar> From<D> for Points<D> {
    fn from(point: D) -> Self {
        let mut points = Self::default();
        let [longest, ..] = &mut points.0;
        *longest = point;
        points
    }
}

impl<D: PointsGrammar> FromStr for Points<D> {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let mut points = Vec::new();
        for (place, item) in text.split(',').enumerate() {
            if place >= MOST_POINTS {
                return Err(DurationError::TooMany);
            }
            let item = if place > 0 { item.trim_start_matches(' ') } else { item };
            if item.is_empty() && text.contains(',') {
                return Err(DurationError::NoItem);
            }
            points.push(item.parse::<D>()?);
        }
        if points.len() > 1 && points.iter().any(Grammar::is_zero) {
            return Err(DurationError::ZeroAmongOthers);
        }
        let total =
            points.iter().try_fold(0i64, |total, point| total.checked_add(point.extended().as_nanos()));
        total.ok_or(DurationError::OutOfRange)?;
        points.sort_unstable_by(|one, other| other.cmp(one));
        points.dedup();
        let mut read = Self::default();
        for (place, point) in read.0.iter_mut().zip(points) {
            *place = point;
        }
        Ok(read)
    }
}

impl<D: PointsGrammar> fmt::Display for Points<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.longest().fmt(f)?;
        self.iter().skip(1).try_for_each(|point| write!(f, ",{point}"))
    }
}

impl<D: PointsGrammar> Grammar for Points<D> {
    const EXPECTED: &'static str = D::POINTS_EXPECTED;

    fn schema() -> Schema {
        D::points_schema()
    }
}
