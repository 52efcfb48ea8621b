//! Threads of a session.
#![allow(clippy::unwrap_used)]

use autotune_db::EmptySource;
use autotune_graph::zoo;

use super::*;

#[test]
fn helpers_of_every_workspace_wait_as_the_options_say() {
    let run = |waiting| {
        let target = Some(Target::detect("cpu", Some(2)).unwrap());
        let options =
            SessionOptions { target, source: Some(Arc::new(EmptySource)), waiting, ..SessionOptions::default() };
        let session = Session::of_graph(&zoo::graph("dqn").unwrap(), options).unwrap();
        let shapes: InputShapes = session.shapes().map(|range| range.fixed().unwrap()).collect();

        // The second run has a workspace of its own, since the first still has the other.
        let mut runs = [session.prepare(&shapes).unwrap(), session.prepare(&shapes).unwrap()];
        for run in &mut runs {
            assert_eq!(run.workspace.of(&shapes).unwrap().device.waiting(), waiting);
        }
        session.run(&[Tensor::f32(&shapes[0], vec![0.5; shapes[0].iter().product()]).unwrap()]).unwrap()
    };
    assert_eq!(run(Waiting::Spin), run(Waiting::Sleep));
}
