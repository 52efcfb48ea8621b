//! The workloads that docs/workloads.md shows are ones.

use autotune_schedules::Workload;

#[test]
fn workloads_of_the_documentation_are_read_and_said_again() {
    let page = include_str!("../../docs/workloads.md");
    let quoted = page.split('`').skip(1).step_by(2);
    let shown: Vec<&str> =
        quoted.filter(|text| text.split_once(':').is_some_and(|(_, sizes)| sizes.contains('='))).collect();
    assert!(shown.len() >= 20, "{shown:?}");

    for text in shown {
        let workload: Workload = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        let again: Workload = workload.to_string().parse().unwrap_or_else(|e| panic!("{text}, said again: {e}"));
        assert_eq!(again, workload, "{text}");
    }
}
