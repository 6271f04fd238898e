//! Where values go on an axis, and where its ticks are.

/// How values become places between 0 and 1.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// From 0 to the value.
    Linear(f64),
    /// From the first to the second value, each step the same factor.
    Logarithmic(f64, f64),
}

impl Scale {
    /// A scale from 0 with room for all values, and ticks at round ones.
    pub fn linear(most: f64) -> (Scale, Vec<f64>) {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = round_step(most / 5.0);
        let count = (1.05 * most / step).ceil();
        let ticks = (0..=count as usize).map(|tick| tick as f64 * step).collect();
        (Scale::Linear(count * step), ticks)
    }

    /// A scale between powers of ten that hold all values, and ticks at 1, 10, 100, ...; if these
    /// are few, at 2 and 5 too.
    pub fn logarithmic(least: f64, most: f64) -> (Scale, Vec<f64>) {
        let (least, most) =
            if least > 0.0 && least.is_finite() { (least, most) } else { (0.1, 1.0) };
        let (first, last) = (least.log10().floor() as i32, (1.2 * most).log10().ceil() as i32);
        let last = last.max(first + 1);
        let between: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (low, high) = (10f64.powi(first), 10f64.powi(last));
        let decades = (first..=last).map(|decade| 10f64.powi(decade));
        let ticks = decades.flat_map(|decade| between.iter().map(move |factor| decade * factor));
        (Scale::Logarithmic(low, high), ticks.filter(|&tick| tick <= high * 1.001).collect())
    }

    /// The places from the first to the last, with none beyond.
    pub fn doubling(places: &[f64]) -> Scale {
        match (places.first(), places.last()) {
            (Some(&first), Some(&last)) if first < last => Scale::Logarithmic(first, last),
            (Some(&only), _) => Scale::Logarithmic(only / 2.0, only * 2.0),
            _ => Scale::Logarithmic(1.0, 2.0),
        }
    }

    /// Where a value goes; 0 is the beginning of the axis, 1 its end.
    pub fn place(self, value: f64) -> f32 {
        let place = match self {
            Scale::Linear(most) => value / most,
            Scale::Logarithmic(low, high) => (value / low).ln() / (high / low).ln(),
        };
        place.clamp(0.0, 1.0) as f32
    }
}

/// 1, 2 or 5 times a power of ten, at least this much.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= least * 0.999);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_leave_room() {
        let (scale, ticks) = Scale::linear(55.3);
        assert_eq!(ticks, [0.0, 20.0, 40.0, 60.0]);
        assert!(scale.place(55.3) < 1.0 && scale.place(0.0) == 0.0);
        let (_, ticks) = Scale::linear(0.0);
        assert!(ticks.len() >= 2);
        for most in [0.003, 1.0, 7.0, 99.9, 12345.0] {
            let (scale, ticks) = Scale::linear(most);
            assert!((3..=8).contains(&ticks.len()), "{most}: {ticks:?}");
            assert!(scale.place(most) <= 1.0 / 1.04, "{most}");
        }
    }

    #[test]
    fn powers_of_ten_hold_all_values() {
        let (scale, ticks) = Scale::logarithmic(0.03, 48.0);
        assert_eq!(ticks, [0.01, 0.1, 1.0, 10.0, 100.0]);
        assert!(scale.place(0.03) > 0.0 && scale.place(48.0) < 1.0);
        let (_, ticks) = Scale::logarithmic(3.0, 48.0);
        assert_eq!(ticks, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn one_place_is_in_the_middle() {
        assert_eq!(Scale::doubling(&[4096.0]).place(4096.0), 0.5);
        assert_eq!(Scale::doubling(&[1.0, 2.0, 4.0]).place(2.0), 0.5);
    }
}
