//! A run makes no allocations and no system calls.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::operators::{Binary, Range, Reduce, Slice, Sliding, Transpose};
use autotune_network::{
    Builder, Compiled, ConvLayer, DType, Graph, NodeId, Op, Seeded, Tensor, Workspace, rewrite, zoo,
};
use autotune_workloads::ReduceOp;

/// Allocator that counts the allocations of all threads.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Serialises the tests in this file, since the counter is global.
static ALONE: Mutex<()> = Mutex::new(());

/// Creates a network with convolutions, a residual, and all operators that move elements.
fn moving() -> Graph {
    let net = Builder::new("moving", Seeded { seed: 1 });
    let x = net.input("x", &[2, 16, 12, 12]);
    let a = x.conv("a", ConvLayer::new(16, Sliding::new(3).pad(1)).bias()).relu();
    let b = (a.conv("b", ConvLayer::new(16, Sliding::new(1))) + a).relu();
    net.output("y", b.concat(&[a, b], 1));
    let mut graph = net.finish().unwrap();

    let y = graph.outputs()[0].node;
    fn add(graph: &mut Graph, op: impl Into<Op>, operands: &[NodeId]) -> NodeId {
        graph.add("node", op, operands).unwrap()
    }
    let whole = |count| Range { start: 0, step: 1, count };
    let odd = Slice(vec![
        whole(2),
        whole(48),
        Range { start: 11, step: -1, count: 12 },
        Range { start: 1, step: 2, count: 6 },
    ]);
    let odd = add(&mut graph, odd, &[y]);
    let turned = add(&mut graph, Transpose(vec![3, 0, 2, 1]), &[odd]);
    graph.output("turned", turned);
    graph
}

/// Creates a network with means and powers of integers, which no kernel computes directly.
fn integers() -> Graph {
    let mut graph = Graph::new("integers");
    let x = graph.input("x", DType::I64, &[4, 6, 5]).unwrap();
    let op = Reduce { op: ReduceOp::Mean, axes: vec![0, 2], keep_axes: true };
    let mean = graph.add("mean", op, &[x]).unwrap();
    let y = graph.add("y", Binary::Sub, &[x, mean]).unwrap();
    graph.output("y", y);

    let five = graph.constant("five", Tensor::i64(&[], vec![5]).unwrap());
    let power = graph.add("power", Binary::Pow, &[x, five]).unwrap();
    graph.output("power", power);
    graph
}

fn networks() -> Vec<Graph> {
    let zoo = ["dqn", "lstm", "squeezenet"].map(|name| zoo::graph(name).unwrap());
    zoo.into_iter().chain([moving(), integers()]).map(|graph| rewrite(&graph).unwrap()).collect()
}

/// Creates a workspace, with inputs and outputs.
fn workspace(graph: &Graph, threads: usize) -> (Workspace, Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let steps = Cut::of(graph).steps;
    assert!(steps.iter().all(|step| !matches!(step.work, StepWork::Interpret(_))), "{}: {steps:?}", graph.name());
    let network: Arc<Compiled> = Compiled::new(graph, None, &Target::detect("cpu", Some(threads)).unwrap()).unwrap();
    let memory = |id: NodeId| vec![1.0; graph.node(id).shape.iter().product()];
    let inputs = graph.inputs().iter().map(|&id| memory(id)).collect();
    let outputs = graph.outputs().iter().map(|output| memory(output.node)).collect();
    (network.workspace().unwrap(), inputs, outputs)
}

#[test]
fn a_run_allocates_nothing() {
    let _alone = ALONE.lock().unwrap();
    for graph in networks() {
        for threads in [1, 2] {
            let (mut workspace, inputs, mut outputs) = workspace(&graph, threads);
            let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
            let mut outputs: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
            // A new thread makes allocations at its start.
            workspace.run(&inputs, &mut outputs).unwrap();
            let before = COUNT.load(Ordering::Relaxed);
            for _ in 0..10 {
                workspace.run(&inputs, &mut outputs).unwrap();
            }
            let allocations = COUNT.load(Ordering::Relaxed) - before;
            assert_eq!(allocations, 0, "{}, {threads} threads", graph.name());
        }
    }
}

/// Runs in a child process that the kernel kills on any system call except exit (seccomp strict
/// mode).
#[cfg(target_os = "linux")]
#[test]
fn a_run_on_one_thread_calls_no_system() {
    const REFUSED: i32 = 77;
    let _alone = ALONE.lock().unwrap();
    for graph in networks() {
        let (mut workspace, inputs, mut outputs) = workspace(&graph, 1);
        let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
        let mut outputs: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        // SAFETY: the child has only this thread, which neither allocates nor locks, and exits
        // without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                if libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) != 0 {
                    libc::_exit(REFUSED);
                }
                let is_done =
                    workspace.run(&inputs, &mut outputs).is_ok() && workspace.run(&inputs, &mut outputs).is_ok();
                libc::syscall(libc::SYS_exit, if is_done { 0 } else { 1 });
            }
        }

        let mut status = 0;
        // SAFETY: the child is ours, and no other code waits for it.
        let ended = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(ended, child);
        let has_ended = libc::WIFEXITED(status);
        if has_ended && libc::WEXITSTATUS(status) == REFUSED {
            eprintln!("this system has no seccomp: not checked");
            return;
        }
        assert!(has_ended && libc::WEXITSTATUS(status) == 0, "{}: {status:#x}", graph.name());
    }
}
