//! Smaller runs that still fail: delta debugging ("Simplifying and Isolating Failure-Inducing
//! Input", Zeller and Hildebrandt, 2002), of steps and of decisions alike.

use crate::schedule::Replay;

/// How many runs may still be made.
#[derive(Debug)]
pub(super) struct Budget(pub(super) u64);

impl Budget {
    fn take(&mut self) -> bool {
        let left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        left
    }
}

/// A smallest list of elements that still fails, found by taking elements away. Without any one of
/// them it does not fail, unless the budget was spent first.
pub(super) fn fewest<T: Clone>(
    mut all: Vec<T>,
    budget: &mut Budget,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut size = all.len().div_ceil(2);
    while size > 0 {
        let (mut at, mut shrunk) = (0, false);
        while at < all.len() {
            let end = (at + size).min(all.len());
            let fewer: Vec<T> = all[..at].iter().chain(&all[end..]).cloned().collect();
            if !budget.take() {
                return all;
            }
            if fails(&fewer) {
                (all, shrunk) = (fewer, true);
            } else {
                at = end;
            }
        }
        // Once more with single ones, as long as that helps.
        size = if size > 1 { size / 2 } else { usize::from(shrunk) };
    }
    all
}

/// The fewest decisions that still fail.
pub(super) fn decisions(
    replay: Replay,
    budget: &mut Budget,
    mut fails: impl FnMut(&Replay) -> bool,
) -> Replay {
    let mut tried = |candidate: &Replay, budget: &mut Budget| budget.take() && fails(candidate);
    let eager = Replay::eager(replay.seed());
    if tried(&eager, budget) {
        return eager;
    }
    // What is held until it is needed does not depend on how often others run.
    let held = replay.held(|_| true);
    let replay = if tried(&held, budget) { held } else { replay };
    let list = fewest(replay.list(), budget, |list| fails(&replay.with(list)));
    let mut smallest = replay.with(&list);
    for index in 0..list.len() {
        let held = smallest.held(|other| other == index);
        if held != smallest && budget.take() && fails(&held) {
            smallest = held;
        }
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_needed() {
        let all: Vec<u32> = (0..100).collect();
        let mut runs = 0;
        let fewer = fewest(all, &mut Budget(10_000), |some| {
            runs += 1;
            [17, 18, 93].iter().all(|needed| some.contains(needed))
        });
        assert_eq!(fewer, [17, 18, 93]);
        assert!(runs < 200, "{runs}");
        assert_eq!(fewest(vec![1, 2, 3], &mut Budget(10), |_| true), [0; 0]);
    }

    #[test]
    fn a_budget_that_is_spent_leaves_what_fails() {
        let fewer = fewest((0..64).collect(), &mut Budget(4), |some| some.contains(&5));
        assert!(fewer.contains(&5) && fewer.len() == 16, "{fewer:?}");
    }

    #[test]
    fn decisions_are_taken_away_and_made_plain() {
        let replay: Replay = "3:A#1+2,A#4,B#1+7,B#2?1,C#1/4".parse().unwrap();
        let smallest = |fails: fn(&str) -> bool| {
            let fails = |replay: &Replay| fails(&replay.to_string());
            decisions(replay.clone(), &mut Budget(1000), fails).to_string()
        };
        assert_eq!(smallest(|_| true), "3:eager");
        assert_eq!(smallest(|text| text.contains("B#1")), "3:B#1");
        assert_eq!(smallest(|text| text.contains("B#1+7")), "3:B#1+7");
        assert_eq!(smallest(|text| text.contains("A#4") && text.contains("/4")), "3:A#4,C#1/4");
        assert_eq!(smallest(|text| !text.contains("eager")), "3:");
    }
}
