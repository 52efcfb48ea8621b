//! Who races on: a race has more racers than are worth timing to the end.

/// Rounds after which the slower half has had enough.
const HEATS: [usize; 2] = [3, 6];

/// Racers, besides the first, of whom none is sent home.
const FINALISTS: usize = 4;

/// The racers of a race, by number.
pub(crate) struct Heats {
    racing: Vec<usize>,
}

impl Heats {
    pub(crate) fn new(racers: usize) -> Self {
        Self { racing: (0..racers).collect() }
    }

    /// Who runs in a round, in which order: each round begins with another. After some rounds the slower half goes home, by the
    /// seconds that they took so far, but never the first, with whom the others are compared.
    pub(crate) fn round(&mut self, round: usize, run_secs: impl Fn(usize) -> f64) -> Vec<usize> {
        if HEATS.contains(&round) {
            let mut others: Vec<(f64, usize)> =
                self.racing.iter().filter(|&&i| i > 0).map(|&i| (run_secs(i), i)).collect();
            others.sort_by(|a, b| a.0.total_cmp(&b.0));
            let fast = &others[..others.len().min((others.len() / 2).max(FINALISTS))];
            self.racing.retain(|&i| i == 0 || fast.iter().any(|&(_, fast)| fast == i));
        }
        let mut order = self.racing.clone();
        order.rotate_left(round % self.racing.len().max(1));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_half_goes_home_but_not_the_first() {
        let secs = |i: usize| if i == 0 { 100.0 } else { 20.0 - i as f64 };
        let mut heats = Heats::new(17);
        let sorted = |mut order: Vec<usize>| {
            order.sort();
            order
        };
        for round in 0..20 {
            let order = sorted(heats.round(round, secs));
            let fastest = match round {
                0..3 => 1,
                3..6 => 9,
                _ => 13,
            };
            assert_eq!(order, [0].into_iter().chain(fastest..17).collect::<Vec<_>>(), "round {round}");
        }
    }

    #[test]
    fn few_racers_all_stay_and_take_turns_to_begin() {
        for racers in 0..=FINALISTS + 1 {
            let mut heats = Heats::new(racers);
            for round in 0..12 {
                let order = heats.round(round, |i| i as f64);
                assert_eq!(order.len(), racers);
                assert!(racers == 0 || order[0] == round % racers);
            }
        }
        // Times that are no numbers are the slowest.
        let mut heats = Heats::new(11);
        assert!((0..=6).all(|round| heats.round(round, |i| if i == 9 { f64::NAN } else { 1.0 }).len() > 4));
        assert!(!heats.racing.contains(&9));
    }
}
