//! Libraries compared with networks that run in the process, and with the reference.

#![allow(clippy::unwrap_used)]
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod cuda;
mod file;
mod loaded;
mod sets;
mod variants;

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;

use autotune_ir::{Isa, Target};
use autotune_network::operators::{Concat, Expand, Gather, Pad, Range, Slice, Sliding, Transpose};
use autotune_network::{
    Builder, Compiled, ConvLayer, DType, Fill, Graph, Library, LibraryError, Precision, Seeded, Tensor, Value, rewrite,
    zoo,
};
use autotune_workloads::{Activation, PadMode};
use loaded::{Loaded, ParallelFor, on_threads};

use crate::common::cases::for_cases;
use crate::common::graphs::brought;
use crate::common::random_graphs::random_graph;
use crate::common::{numbers, rng};

/// Compiles a network for `threads` threads; none if there is no assembler for this machine.
fn compiled(graph: &Graph, threads: usize) -> Option<Arc<Compiled>> {
    let mut target = Target::detect("cpu", None).unwrap();
    if let Target::Cpu(cpu) = &mut target {
        if !matches!(cpu.isa, Isa::Avx2 | Isa::Avx512) {
            eprintln!("skipped: no assembler for {}", cpu.isa);
            return None;
        }
        cpu.threads = threads;
    }
    Some(Compiled::new(graph, None, &target).unwrap())
}

/// Runs a library alone and on threads, twice each, and compares it bitwise with the network in
/// this process.
fn check(graph: &Graph, threads: usize, seed: u64, what: &str) -> Result<(), LibraryError> {
    let Some(network) = compiled(graph, threads) else { return Ok(()) };
    let library = Loaded::of(&network)?;
    assert_eq!(library.number("threads"), threads);
    let memory = library.workspace();
    assert_eq!(library.init(memory.start()), 0);
    for seed in [seed, seed + 1] {
        let inputs: Vec<Vec<f32>> = brought(graph, &mut rng(seed)).iter().map(|tensor| tensor.to_numbers()).collect();
        let mut wanted: Vec<Vec<f32>> =
            library.shapes("output").iter().map(|shape| vec![0.0; shape.iter().product()]).collect();
        let mut outputs: Vec<&mut [f32]> = wanted.iter_mut().map(Vec::as_mut_slice).collect();
        let given: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
        network.workspace().unwrap().run(&given, &mut outputs).unwrap();
        let bits = |tensors: &[Vec<f32>]| -> Vec<Vec<u32>> {
            tensors.iter().map(|tensor| tensor.iter().map(|x| x.to_bits()).collect()).collect()
        };
        let alone = library.results_in(&memory, &inputs, None);
        assert_eq!(bits(&alone), bits(&wanted), "{what}, inputs {seed}");
        let shared = library.results_in(&memory, &inputs, Some(on_threads));
        assert_eq!(bits(&shared), bits(&wanted), "{what} by threads, inputs {seed}");
    }
    Ok(())
}

#[test]
fn networks_of_the_zoo_compute_the_same_as_libraries() {
    for (name, threads) in [("dqn", 2), ("lstm", 3), ("dcgan", 2)] {
        for precision in Precision::OF_CPUS {
            let graph = rewrite(&zoo::graph(name).unwrap().with_precision(precision)).unwrap();
            check(&graph, threads, 1, &format!("{name} in {precision}")).unwrap();
        }
    }
}

/// Image patches and embedded tokens pass through two attention layers, normalised before each
/// branch (as in ViT) or after each sum (as in BERT, with a mask).
#[test]
fn networks_of_attention_compute_the_same_as_libraries() {
    const WIDTH: usize = 24;
    const TOKENS: usize = 1 + 12 + 6;

    for (is_normalised_first, threads) in [(true, 1), (true, 2), (false, 3)] {
        let net = Builder::new("attention", Seeded { seed: 5 });
        let patches = net
            .input("image", &[1, 3, 16, 12])
            .conv("patches", ConvLayer::new(WIDTH, Sliding::new(4).stride(4)).bias());
        let patches = patches.reshape(&[1, WIDTH, 12]).transpose(&[0, 2, 1]);
        let words = net.weight("words", &[9, WIDTH], Fill::deviation(0.5));
        let words = words.gather(net.input_of("tokens", DType::I64, &[1, 6]));
        let class = net.weight("class", &[1, 1, WIDTH], Fill::deviation(0.5));
        let mut x =
            class.concat(&[patches, words], 1) + net.weight("positions", &[1, TOKENS, WIDTH], Fill::deviation(0.5));
        let mask = (!is_normalised_first).then(|| net.input("mask", &[1, 1, 1, TOKENS]));

        for layer in 0..2 {
            let name = |part| format!("layer.{layer}.{part}");
            let normalised = |part, is_here, x| if is_here { Value::layer_norm(x, &name(part), 1e-6) } else { x };
            let attended = normalised("norm1", is_normalised_first, x).self_attention(&name("attention"), 3, mask);
            x = normalised("norm2", !is_normalised_first, x + attended);
            let wide = normalised("norm3", is_normalised_first, x).linear(&name("up"), 4 * WIDTH);
            let narrow = wide.activation(Activation::Gelu).linear(&name("down"), WIDTH);
            x = normalised("norm4", !is_normalised_first, x + narrow);
        }
        net.output("hidden", x);
        net.output("class", x.slice(1, 0..1).reshape(&[1, WIDTH]).linear("head", 10).softmax());

        let graph = net.finish().unwrap();
        for graph in [&graph, &rewrite(&graph).unwrap()] {
            check(graph, threads, 1, &format!("normalised first: {is_normalised_first}, {threads} threads")).unwrap();
        }
    }
}

/// Each workspace reads the weights at the address that it was given.
#[test]
fn weights_may_be_where_the_program_has_copied_them() {
    let graph = rewrite(&zoo::graph("dqn").unwrap()).unwrap();
    let Some(network) = compiled(&graph, 2) else { return };
    let library = Loaded::of(&network).unwrap();
    let (memory, other, mut weights) = (library.workspace(), library.workspace(), library.copied_weights());
    let refused = |workspace, weights| library.error(library.use_weights(workspace, weights)).unwrap();
    assert!(refused(memory.start(), weights.start()).contains("not initialised"));
    assert!(refused(ptr::null_mut(), weights.start()).contains("workspace is NULL"));
    [&memory, &other].into_iter().for_each(|memory| assert_eq!(library.init(memory.start()), 0));
    for bad in [ptr::null_mut(), weights.start().wrapping_byte_add(32)] {
        assert!(refused(memory.start(), bad).contains("copy of the weights"));
    }

    let inputs: Vec<Vec<f32>> = brought(&graph, &mut rng(1)).iter().map(|tensor| tensor.to_numbers()).collect();
    let wanted = library.results_in(&memory, &inputs, None);
    assert_eq!(library.use_weights(memory.start(), weights.start()), 0);
    for threads in [None, Some(on_threads as ParallelFor)] {
        assert_eq!(library.results_in(&memory, &inputs, threads), wanted);
    }
    weights.clear();
    assert!(library.results_in(&memory, &inputs, None).iter().flatten().all(|&x| x == 0.0));
    assert_eq!(library.results_in(&other, &inputs, None), wanted);
}

/// Graphs with interpreted nodes are rejected with a one-line message; others compute the same.
#[test]
fn random_graphs_compute_the_same_as_libraries_or_are_refused() {
    let made = Cell::new(0);
    for_cases(60, |seed, choices| {
        let graph = random_graph(seed, 8 + seed as usize % 24, choices);
        let threads = 1 + seed as usize % 3;
        let rounded = graph.clone().with_precision(Precision::Bf16);
        for graph in [&graph, &rewrite(&graph).unwrap(), &rounded] {
            match check(graph, threads, seed, &format!("seed {seed}")) {
                Ok(()) => made.set(made.get() + 1),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.starts_with("node '") && text.lines().count() == 1, "seed {seed}: {text}");
                }
            }
        }
    });
    let made = made.get();
    assert!(made > 60, "{made} of 180 graphs became libraries");
}

/// Copies without kernels: backwards, strided, along all axes, of one element and of none.
#[test]
fn copies_of_elements_that_lie_apart_are_the_same() {
    let mut graph = Graph::new("copies");
    let x = graph.input("x", DType::F32, &[2, 3, 40, 5]).unwrap();
    let range = |start, count, step| Range { start, count, step };
    let slices = [
        [range(1, 2, -1), range(0, 3, 1), range(39, 20, -2), range(4, 5, -1)],
        [range(0, 2, 1), range(0, 2, 1), range(1, 33, 1), range(0, 5, 1)],
        [range(0, 2, 1), range(2, 1, 1), range(0, 40, 1), range(1, 3, 1)],
        [range(0, 2, 1), range(0, 2, 2), range(5, 7, 1), range(0, 1, 1)],
    ];

    for (number, ranges) in slices.into_iter().enumerate() {
        let part = graph.add(format!("slice{number}"), Slice(ranges.to_vec()), &[x]).unwrap();
        graph.output(format!("slice{number}"), part);
    }
    for (number, perm) in [[3, 2, 1, 0], [1, 0, 3, 2], [0, 3, 1, 2]].into_iter().enumerate() {
        let turned = graph.add(format!("turned{number}"), Transpose(perm.to_vec()), &[x]).unwrap();
        graph.output(format!("turned{number}"), turned);
    }

    let row = graph.input("row", DType::F32, &[3, 1, 1]).unwrap();
    let wide = graph.add("wide", Expand(vec![4, 3, 9, 2]), &[row]).unwrap();
    graph.output("wide", wide);
    let joined = graph.add("joined", Concat { axis: 2 }, &[wide, wide]).unwrap();
    graph.output("joined", joined);
    let one = graph.input("one", DType::I64, &[]).unwrap();
    graph.output("one", one);
    check(&graph, 2, 1, "copies").unwrap();
}

/// Indices that are fractional, negative, out of range on either side, and NaN.
#[test]
fn rows_are_found_by_any_number() {
    let mut graph = Graph::new("rows");
    let table = graph.constant("table", numbers(&mut rng(1), &[5, 3]));
    let rows = graph.input("rows", DType::I64, &[9]).unwrap();
    let found = graph.add("found", Gather { axis: 0 }, &[table, rows]).unwrap();
    graph.output("found", found);
    let Some(network) = compiled(&graph, 1) else { return };
    let library = Loaded::of(&network).unwrap();
    let given = vec![0.0, 4.0, 3.99, -1.0, 5.0, 1e30, f32::NAN, f32::NEG_INFINITY, 2.0];
    let found = library.results(std::slice::from_ref(&given), None).remove(0);
    let table = graph.evaluate(&[Tensor::i64(&[9], vec![0, 4, 3, 4, 4, 4, 0, 0, 2]).unwrap()]).unwrap();
    assert_eq!(found, table[0].to_numbers());
}

/// Every padding mode, with different amounts on each side.
#[test]
fn images_are_padded_the_same() {
    for (number, pad) in [[1, 2, 3, 0], [0, 1, 0, 2], [2, 0, 4, 3]].into_iter().enumerate() {
        for mode in [PadMode::Constant, PadMode::Reflect, PadMode::Edge] {
            let mut graph = Graph::new("padded");
            let x = graph.input("x", DType::F32, &[2, 3, 4, 5]).unwrap();
            let [above, below, left, right] = pad;
            let pad = vec![[0, 0], [0, 0], [above, below], [left, right]];
            let padded = graph.add("padded", Pad { pad, mode, value: 0.75 }, &[x]).unwrap();
            graph.output("padded", padded);
            let Some(network) = compiled(&graph, 1) else { return };
            let library = Loaded::of(&network).unwrap();
            let x = brought(&graph, &mut rng(number as u64)).remove(0);
            let wanted = graph.evaluate(std::slice::from_ref(&x)).unwrap()[0].to_numbers();
            assert_eq!(library.results(&[x.to_numbers()], None), [wanted], "case {number}, {mode:?}");
        }
    }
}

#[test]
fn a_library_says_what_it_is_and_what_is_wrong() {
    let mut graph = Graph::new("words");
    let x = graph.input("the \u{e9}mage", DType::F32, &[2, 3]).unwrap();
    let mask = graph.input("mask", DType::Bool, &[]).unwrap();
    let turned = graph.add("turned", Transpose(vec![1, 0]), &[x]).unwrap();
    graph.output("turned", turned);
    graph.output("mask */ again", mask);
    let Some(network) = compiled(&graph, 2) else { return };
    let library = Loaded::of(&network).unwrap();
    assert_eq!((library.number("inputs"), library.number("outputs")), (2, 2));
    assert_eq!(library.shapes("input"), [vec![2, 3], vec![]]);
    assert_eq!(library.shapes("output"), [vec![3, 2], vec![]]);
    let texts = |word: &str| [0, 1, 2, usize::MAX].map(|tensor| library.text_of(word, tensor));
    assert_eq!(texts("input_name"), [Some("the \u{e9}mage".into()), Some("mask".into()), None, None]);
    assert_eq!(texts("input_type"), [Some("f32".into()), Some("bool".into()), None, None]);
    assert_eq!(texts("output_name"), [Some("turned".into()), Some("mask */ again".into()), None, None]);
    assert_eq!(library.number_of("input_elements", 2) + library.number_of("output_rank", 7), 0);

    // Every error code has a message.
    let memory = library.workspace();
    let words: Vec<Option<String>> = (-1..10).map(|error| library.error(error)).collect();
    assert!(words[0].is_none() && words[10].is_none() && words[1..10].iter().all(Option::is_some), "{words:?}");
    let (inputs, mut output) = ([1.0f32; 6], [0.0f32; 6]);
    let from = [inputs.as_ptr(), inputs.as_ptr()];
    let to = [output.as_mut_ptr(), output.as_mut_ptr()];
    assert_eq!(library.init(ptr::null_mut()), 1);
    assert_eq!(library.init(memory.start().wrapping_byte_add(4)), 1);
    assert_eq!(library.run(ptr::null_mut(), &from, &to, None), 1);
    assert_eq!(library.run(memory.start().wrapping_byte_add(32), &from, &to, None), 1);
    assert_eq!(library.run(memory.start(), &from, &to, None), 3);
    assert_eq!(library.init(memory.start()), 0);
    assert_eq!(library.run(memory.start(), &[ptr::null(), from[1]], &to, None), 4);
    assert_eq!(library.run(memory.start(), &from, &[to[0], ptr::null_mut()], None), 4);
    assert_eq!(output, [0.0; 6]);
    assert_eq!(library.run(memory.start(), &from, &to, None), 0);
    assert_eq!(output, [1.0; 6]);

    // A workspace that another library initialised is rejected.
    let other = Loaded::of(&network).unwrap();
    assert_eq!(other.run(memory.start(), &from, &to, None), 3);
}

/// Elements are rounded to bf16 by an instruction of an extension, outside of any dot product.
#[test]
fn a_library_requires_the_extensions_that_its_kernels_use() {
    let graph = rewrite(&zoo::graph("dqn").unwrap()).unwrap();
    for precision in [Precision::F32, Precision::Bf16] {
        let Some(network) = compiled(&graph.clone().with_precision(precision), 1) else { return };
        let instructions = Library::of(&network, "words", "words.so").unwrap().instruction_set();
        let target = Target::detect("cpu", None).unwrap();
        let has = |name: &str| target.cpu().unwrap().features.iter().any(|feature| feature == name);
        // Tile instructions multiply parts of bf16 in f32.
        let wanted = has("avx512bf16") && (precision == Precision::Bf16 || has("amx"));
        assert_eq!(instructions.contains("AVX512_BF16"), wanted, "{precision}: {instructions}");
    }
}

/// The CPU check is patched to require a feature that does not exist: bit 16 of ecx from leaf 1.
#[test]
fn a_processor_that_lacks_instructions_is_refused() {
    let graph = rewrite(&zoo::graph("dqn").unwrap()).unwrap();
    let Some(network) = compiled(&graph, 1) else { return };
    let library = Loaded::changed(&network, "a_network", |bytes| {
        // `and r9d, FMA | OSXSAVE | AVX; mov r10d, FMA | OSXSAVE | AVX`.
        let wanted = 0x1800_1000u32.to_le_bytes();
        for opcode in [&[0x41, 0x81, 0xe1][..], &[0x41, 0xba]] {
            let instruction = [opcode, &wanted].concat();
            let mut places = (0..bytes.len() - 8).filter(|&at| bytes[at..].starts_with(&instruction));
            let at = places.next().unwrap();
            assert_eq!(places.next(), None);
            bytes[at + opcode.len() + 2] |= 1;
        }
    });
    let library = library.unwrap();
    let memory = library.workspace();
    assert_eq!(library.init(memory.start()), 2);
    assert!(library.error(2).unwrap().contains("lacks instructions"));
    let (x, mut y) = (vec![0.0f32; 4 * 84 * 84], [0.0f32; 18]);
    assert_eq!(library.run(memory.start(), &[x.as_ptr()], &[y.as_mut_ptr()], None), 3);
}

#[test]
fn threads_with_a_workspace_each_do_not_disturb_one_another() {
    let graph = rewrite(&zoo::graph("dqn").unwrap()).unwrap();
    let Some(network) = compiled(&graph, 2) else { return };
    let library = Loaded::of(&network).unwrap();
    let inputs =
        |seed| -> Vec<Vec<f32>> { brought(&graph, &mut rng(seed)).iter().map(|tensor| tensor.to_numbers()).collect() };
    let wanted: Vec<_> = (0..4).map(|seed| library.results(&inputs(seed), None)).collect();
    assert_ne!(wanted[0], wanted[1]);
    std::thread::scope(|scope| {
        for (seed, wanted) in wanted.iter().enumerate() {
            let (library, inputs) = (&library, inputs(seed as u64));
            scope.spawn(move || {
                let memory = library.workspace();
                assert_eq!(library.init(memory.start()), 0);
                for run in 0..20 {
                    let threads = (run % 5 == 0).then_some(on_threads as ParallelFor);
                    assert_eq!(&library.results_in(&memory, &inputs, threads), wanted, "inputs {seed}, run {run}");
                }
            });
        }
    });
}
