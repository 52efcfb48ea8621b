//! Summary of why candidates failed.

use autotune_measurement::{CandidateError, Measurement};

/// Largest number of causes listed.
const CAUSES: usize = 3;

/// Returns the most frequent causes of failure, one per line, most frequent first, each with the
/// message of its first example: `12 of 64: build failed: ...`. Empty if nothing failed.
pub fn failure_summary(measurements: &[Measurement]) -> String {
    let mut causes: Vec<(&'static str, usize, &CandidateError)> = Vec::new();
    for error in measurements.iter().filter_map(|m| m.outcome.as_ref().err()) {
        let kind = error.kind();
        match causes.iter_mut().find(|(k, _, _)| *k == kind) {
            Some((_, count, _)) => *count += 1,
            None => causes.push((kind, 1, error)),
        }
    }
    causes.sort_by_key(|&(_, count, _)| std::cmp::Reverse(count));
    let lines =
        causes.iter().take(CAUSES).map(|(_, count, example)| format!("{count} of {}: {example}", measurements.len()));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(error: CandidateError) -> Measurement {
        Measurement::of(Err(error))
    }

    #[test]
    fn most_frequent_cause_comes_first_in_its_own_words() {
        let crash = |n: u32| failed(CandidateError::Crash { message: format!("signal {n}") });
        let build = || failed(CandidateError::Build { message: "x.c:1:1: error: no".into() });
        let text = failure_summary(&[crash(11), build(), build(), crash(6), crash(4)]);
        assert_eq!(text, "3 of 5: crashed: signal 11\n2 of 5: build failed: x.c:1:1: error: no");
        assert_eq!(failure_summary(&[]), "");
    }

    #[test]
    fn only_a_few_causes_are_listed() {
        let all = [
            failed(CandidateError::Timeout { limit_secs: 1.0 }),
            failed(CandidateError::BuildTimeout { limit_secs: 1.0 }),
            failed(CandidateError::Lower { message: "a".into() }),
            failed(CandidateError::Build { message: "b".into() }),
        ];
        assert_eq!(failure_summary(&all).lines().count(), CAUSES);
    }
}
