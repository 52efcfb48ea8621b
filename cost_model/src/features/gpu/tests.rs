//! Features of GPU programs compared with values computed by hand.

use std::slice::from_ref;

use autotune_ir::instruction::ThreadGroup;
use autotune_ir::machine::gpu::tensor_share;
use autotune_ir::program::LoopKind::{Block, Serial, Thread, Unrolled, Vectorized};
use autotune_ir::program::{Digit, Expr, InBounds, Node, Role, Scope, When};
use autotune_ir::{Affine, GpuTarget, Program, Target};
use autotune_schedules::gpu::{IMPLICIT_GEMM, MMA, TILED, WGMMA};
use autotune_schedules::{Config, ScheduleSpace, lower};
use autotune_workloads::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::features::tests::programs::{
    ProgramWriter, SMALL, at, close, column, count, gemm, load, mac, store, target, zero,
};
use crate::features::{RegisterUse, estimated_registers, extract, names, register_limit, set_register_use};

fn sm_90() -> Target {
    Target::detect("cuda:sm_90", None).unwrap()
}

fn row(program: &Program) -> Vec<f32> {
    extract(program, &sm_90())
}

/// Returns a copy of a matrix by 8 blocks of 64 threads; `index` returns the elements that thread
/// `t` of block `b` reads and stores.
fn copy(vector: usize, index: impl Fn(Affine, Affine, Affine) -> [Affine; 2]) -> Program {
    let mut b = ProgramWriter::new("matmul:m=512,n=512,k=1", &[]);
    let input = b.buffer(Role::Operand(0), Scope::Global, &[512 * 512]);
    let output = b.buffer(Role::Output, Scope::Global, &[512 * 512]);
    let body = b.each(Block, 8, |b, block| {
        b.each(Thread, 64, |b, thread| {
            b.each(Vectorized, vector, |_, v| {
                let [from, to] = index(block, thread, v);
                vec![store(at(output, &[to]), load(input, &[from]))]
            })
        })
    });
    b.stage(When::EveryRun, body);
    b.program
}

#[test]
fn neighbouring_threads_share_sectors() {
    let strided = |stride: i64| {
        copy(1, |b, t, _| {
            let to = b * 64 + t.clone();
            [t * stride, to]
        })
    };
    for (stride, sectors, use_of) in
        [(0, 1.0, 1.0 / 8.0), (1, 4.0, 1.0), (2, 8.0, 0.5), (8, 32.0, 0.125), (512, 32.0, 0.125)]
    {
        let row = row(&strided(stride));
        close(column(&row, "gpu.sectors.data.per_request"), sectors, &format!("stride {stride}"));
        close(column(&row, "gpu.coalescing.data.ratio"), use_of, &format!("stride {stride}"));
        close(column(&row, "gpu.sectors.output.per_request"), 4.0, "stored one after the other");
    }
    let shifted = copy(1, |b, t, _| {
        let to = b * 64 + t.clone();
        [t + 1, to]
    });
    close(column(&row(&shifted), "gpu.sectors.data.per_request"), 5.0, "not aligned");
}

#[test]
fn vectors_are_as_wide_as_alignment_and_conditions_allow() {
    let wide = |offset: i64| {
        copy(4, move |b, t, v| {
            let index = b * 256 + t * 4 + v + offset;
            [index.clone(), index]
        })
    };
    for (offset, width, sectors) in [(0, 4.0, 16.0), (2, 2.0, 16.0), (1, 1.0, 16.0)] {
        let row = row(&wide(offset));
        close(column(&row, "gpu.global_width.data.elements"), width, &format!("offset {offset}"));
        close(column(&row, "gpu.sectors.data.per_request"), sectors, &format!("offset {offset}"));
    }

    let guarded = |extent: usize| {
        let mut program = wide(0);
        fn guard(nodes: &mut [Node], extent: usize) {
            for node in nodes {
                if let Node::Store(store) = node {
                    let value = Box::new(store.value.clone());
                    let mut index = None;
                    value.for_each_load(&mut |load| index = load.index.first().cloned());
                    store.value = Expr::Guarded { when: vec![InBounds { index: index.unwrap(), extent }], value };
                } else if let Some(body) = node.body_mut() {
                    guard(body, extent);
                }
            }
        }
        guard(&mut program.stages[0].body, extent);
        program
    };

    close(column(&row(&guarded(2000)), "gpu.global_width.data.elements"), 4.0, "all or none");
    close(column(&row(&guarded(1999)), "gpu.global_width.data.elements"), 1.0, "some of a vector");
    let bytes = |program: &Program| column(&row(program), "gpu.l2.bytes_per_flop");
    let all = bytes(&wide(0));
    close(bytes(&guarded(1024)) / all, 0.75, "half of the loads do not happen");
}

/// Returns a program in which threads `x`, `y` of a block of `extents` read the element `index` of
/// shared memory for a multiply-add.
fn shared(extents: [usize; 2], vector: usize, index: impl Fn(Affine, Affine, Affine) -> Affine) -> Program {
    let mut b = ProgramWriter::new("matmul:m=32,n=32,k=8", &[("k", 8, true)]);
    let input = b.buffer(Role::Operand(0), Scope::Global, &[4096]);
    let tile = b.buffer(Role::Packed, Scope::Shared, &[4096]);
    let fragment = b.buffer(Role::Packed, Scope::Register, &[4]);
    let acc = b.buffer(Role::Accumulator, Scope::Register, &[]);

    let body = b.each(Block, 1, |b, _| {
        b.each(Thread, extents[0], |b, x| {
            b.each(Thread, extents[1], |b, y| {
                let thread = x.clone() * extents[1] as i64 + y.clone();
                let mut body = vec![store(at(tile, from_ref(&thread)), load(input, from_ref(&thread)))];
                body.push(Node::Barrier);
                body.extend(b.each(Serial, 8, |b, k| {
                    let mut body = b.each(Vectorized, vector, |_, v| {
                        vec![store(at(fragment, from_ref(&v)), load(tile, &[index(x, y, v.clone())]))]
                    });
                    let product = load(fragment, &[zero()]);
                    body.extend(b.each(Unrolled, 1, |_, _| vec![mac(at(acc, &[]), product.clone(), product, &[k])]));
                    body
                }));
                [acc, fragment, tile].into_iter().fold(body, |body, buffer| vec![Node::Alloc { buffer, body }])
            })
        })
    });
    b.stage(When::EveryRun, body);
    b.program
}

#[test]
fn different_elements_of_a_bank_conflict() {
    type Index = fn(Affine, Affine, Affine) -> Affine;
    let cases: [([usize; 2], usize, f64, Index); 8] = [
        ([1, 32], 1, 1.0, |_, y, _| y),
        ([1, 32], 1, 2.0, |_, y, _| y * 2),
        ([1, 32], 1, 32.0, |_, y, _| y * 32),
        ([1, 32], 1, 1.0, |_, y, _| y * 33),
        ([8, 16], 1, 1.0, |x, _, _| x * 32), // a broadcast to each of two rows: the same bank, two elements
        ([8, 16], 1, 1.0, |x, _, _| x),
        ([1, 32], 4, 1.0, |_, y, v| y * 4 + v),
        ([1, 32], 4, 4.0, |_, y, v| y * 16 + v),
    ];

    for (i, (extents, vector, ways, index)) in cases.into_iter().enumerate() {
        let ways = if i == 4 { 2.0 } else { ways };
        let row = row(&shared(extents, vector, index));
        close(column(&row, "gpu.conflicts.data.load.ways"), ways, &format!("case {i}"));
        close(column(&row, "gpu.shared_width.data.load.elements"), vector as f64, &format!("case {i}"));
        close(column(&row, "gpu.conflicts.data.store.ways"), 1.0, "stored one after the other");
    }

    let row = row(&shared([8, 16], 1, |_, y, _| y));
    close(count(&row, "gpu.shared_load.log2_fmas_per_request"), 1.0, "a load for each multiply-add");
    close(count(&row, "gpu.barrier.log2_fmas_per_barrier"), 8.0, "one barrier");
    close(count(&row, "gpu.wait.log2_fmas_per_wait"), 8.0, "one copy");
    close(column(&row, "gpu.prefetched.flag"), 0.0, "straight to shared memory");
    close(column(&row, "gpu.warp_use.ratio"), 1.0, "128 threads");
    close(count(&row, "gpu.shared.log2_bytes"), 4.0 * 4096.0, "the tile");
    close(column(&row, "gpu.registers.count"), 24.0 + 4.0 + 1.0 + 4.0, "overhead, fragment, sum, copy");
}

#[test]
fn digits_that_no_thread_has_touch_nothing() {
    let mut b = ProgramWriter::new("matmul:m=32,n=32,k=8", &[]);
    let input = b.buffer(Role::Operand(0), Scope::Global, &[64, 64]);
    let output = b.buffer(Role::Output, Scope::Global, &[64, 64]);
    let (row_var, column_var) = (b.var("x"), b.var("y"));
    let body = b.each(Block, 2, |b, _| {
        b.each(Thread, 64, |_, t| {
            let digits = vec![Digit { var: row_var, extent: 3 }, Digit { var: column_var, extent: 8 }];
            let index = [row_var, column_var].map(Affine::var);
            let body = vec![store(at(output, &index), load(input, &index))];
            vec![Node::Unflatten { value: t, digits, body }]
        })
    });
    b.stage(When::EveryRun, body);
    let row = row(&b.program);
    close(column(&row, "gpu.sectors.data.per_request"), 3.0, "3 rows of 8 elements");
    close(column(&row, "gpu.coalescing.data.ratio"), 1.0, "whole sectors");
    // 24 of 64 threads work in each of two blocks: 24/64 of two warps, for a load and a store of 3
    // sectors each.
    let bytes = 2.0 * (24.0 / 64.0 * 2.0) * 2.0 * 3.0 * 32.0;
    close(column(&row, "gpu.l2.bytes_per_flop"), bytes / (2.0 * 32.0 * 32.0 * 8.0), "of those that work");
}

fn tiled(workload: &str, knobs: &str) -> (Workload, Config) {
    let config = format!(r#"{{"sketch":"tiled","knobs":{{{knobs}}}}}"#);
    (workload.parse().unwrap(), serde_json::from_str(&config).unwrap())
}

/// Returns a product of 2048 cubed with `tile` along both spatial axes.
fn square(tile: [usize; 3], chunk: usize, stages: usize) -> Program {
    let (workload, config) = tiled(
        "matmul:m=2048,n=2048,k=2048",
        &format!(
            r#""tile.m":{tile:?},"tile.n":{tile:?},"tile.k":[{chunk}],"order":["m","n"],"weights":"inplace","vector.data":"4",
            "vector.weight":"4","pad":"4","stages":"{stages}","unroll":"8","split":"1""#
        ),
    );
    lower(&workload, &sm_90(), &config).unwrap()
}

#[test]
fn occupancy_is_that_of_the_scarcest_resource() {
    // 256 threads with 64 partial sums and 2 x 8 elements: 24 + 64 + 16, and 2 copies of one round.
    let row = row(&square([128, 64, 4], 8, 1));
    close(column(&row, "gpu.registers.count"), 24.0 + 64.0 + 16.0 + 2.0 * 4.0, "registers");
    close(count(&row, "gpu.accumulators.log2_count"), 64.0, "8 x 8");
    let shared = 4.0 * 2.0 * 8.0 * 132.0;
    close(count(&row, "gpu.shared.log2_bytes"), shared, "two chunks of 8 rows of 128, padded");
    let room = |limit: &str| count(&row, &format!("gpu.room.{limit}.log2_blocks"));
    close(room("threads"), 8.0, "of 2048");
    close(room("registers"), 2.0, "65536 / (112 * 256)");
    close(room("shared"), (228.0 * 1024.0 / (shared + 1024.0)).floor(), "of 228 KiB");
    close(room("blocks"), 32.0, "slots");
    close(column(&row, "gpu.occupancy.ratio"), 2.0 * 256.0 / 2048.0, "two blocks");
    close(count(&row, "gpu.blocks.log2_count"), 256.0, "16 x 16");
    close(count(&row, "gpu.waves.log2_count"), 256.0 / 264.0, "132 multiprocessors, two blocks each");
    close(column(&row, "gpu.tail.ratio"), 256.0 / 264.0, "some get two, some one");
    close(count(&row, "gpu.shared_load.log2_fmas_per_request"), 64.0 / 4.0, "4 vectors of 4 for 64 multiply-adds");
}

#[test]
fn prefetched_chunks_are_told_from_those_waited_for() {
    let [one, two] = [1, 2].map(|stages| row(&square([128, 64, 4], 8, stages)));
    close(column(&one, "gpu.prefetched.flag"), 0.0, "one stage");
    close(column(&two, "gpu.prefetched.flag"), 1.0, "two stages");
    close(count(&one, "gpu.wait.log2_fmas_per_wait"), 64.0 * 8.0, "each chunk");
    close(count(&two, "gpu.wait.log2_fmas_per_wait"), 64.0 * 2048.0, "the first chunk");
    close(count(&one, "gpu.barrier.log2_fmas_per_barrier"), 64.0 * 8.0 / 2.0, "two barriers a chunk");
    close(count(&two, "gpu.barrier.log2_fmas_per_barrier"), 64.0 * 8.0, "one barrier a chunk");
}

#[test]
fn larger_tiles_are_estimated_faster() {
    let tiles = [[16, 16, 1], [32, 32, 2], [64, 64, 4], [128, 64, 4]];
    let times = tiles.map(|tile| count(&row(&square(tile, 16, 2)), "gpu.estimate.run.log2_per_peak"));
    assert!(times.is_sorted_by(|a, b| a > b), "{times:?}");
    assert!((1.0..2.5).contains(&times[3]), "{times:?}");
}

/// The default schedule is close to the best of random ones, by the feature that estimates time.
#[test]
fn untuned_schedules_are_estimated_well() {
    let target = sm_90();
    for text in [
        "matmul:m=1024,n=1024,k=1024",
        "matmul:m=4096,n=4096,k=4096",
        "matmul:m=1,n=1000,k=512",
        "conv2d:c=64,h=56,w=56,o=64,k=3,p=1,exact",
        "conv2d:c=256,h=14,w=14,o=256,k=3,p=1,exact",
        "conv2d:n=32,c=512,h=7,w=7,o=512,k=3,p=1,exact",
        "conv2d:c=64,h=56,w=56,o=128,k=1,s=2",
        "conv2d:c=96,h=28,w=28,o=96,k=3,p=1,g=96",
    ] {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let time = |config: &Config| {
            count(&row(&lower(&workload, &target, config).unwrap()), "gpu.estimate.run.log2_per_peak")
        };
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut times: Vec<f64> = (0..60).map(|_| time(&space.sample(&mut rng))).collect();
        times.sort_by(f64::total_cmp);
        let own = time(&space.default_config());
        assert!(own < times[6], "{text}: {own}, {times:?}");
    }
}

/// The registers in the features equal those that the sketches count for their rules.
#[test]
fn registers_are_those_of_the_sketch() {
    let target = sm_90();
    let gpu = target.gpu().unwrap();
    for (seed, text) in [
        "matmul:m=197,n=768,k=256",
        "conv2d:c=32,h=28,w=28,o=64,k=3,p=1,exact",
        "conv2d:c=32,h=9,w=9,o=32,k=3,p=1,g=32",
        "matmul:m=197,n=768,k=256,dtype=bf16",
        "conv2d:c=32,h=28,w=28,o=64,k=3,p=1,dtype=f16",
        "conv2d:n=3,c=24,h=17,w=11,o=40,k=1,s=2,dtype=tf32",
    ]
    .into_iter()
    .enumerate()
    {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
        for _ in 0..40 {
            let config = space.sample(&mut rng);
            let sketches = [&TILED, &IMPLICIT_GEMM, &MMA, &WGMMA];
            let sketch = sketches.into_iter().find(|sketch| sketch.name == config.sketch).unwrap();
            let own = sketch.tiling(&workload, gpu, config.config()).unwrap().registers();

            let row = row(&lower(&workload, &target, &config).unwrap());
            close(column(&row, "gpu.registers.count"), own as f64, &format!("{text} {config}"));
        }
    }
}

/// Features of matrix instructions, computed by hand for a product of 4096 cubed with 4 x 2 warps
/// of 32 x 64: a warp's tile is 2 x 8 instructions.
#[test]
fn matrix_instructions_are_counted_at_their_rate() {
    let config = r#"{"sketch":"mma","knobs":{"tile.m":[128,32],"tile.n":[128,64],"tile.k":[CHUNK],"weights":"inplace",
        "stages":"4","raster":"1","split":"1"}}"#;
    for (sm, dtype, chunk) in [("sm_80", "f16", 32), ("sm_90", "bf16", 32), ("sm_80", "tf32", 16)] {
        let target = Target::detect(&format!("cuda:{sm}"), None).unwrap();
        let workload: Workload = format!("matmul:m=4096,n=4096,k=4096,dtype={dtype}").parse().unwrap();
        let config: Config = serde_json::from_str(&config.replace("CHUNK", &chunk.to_string())).unwrap();
        let mma = MMA.tiling(&workload, target.gpu().unwrap(), &config).unwrap();
        let row = extract(&lower(&workload, &target, &config).unwrap(), &target);

        let multiprocessors = target.gpu().unwrap().multiprocessors as f64;
        let blocks = 32.0 * 32.0;
        let tail = (blocks / multiprocessors).ceil() * multiprocessors / blocks;
        let share = tensor_share(target.gpu().unwrap().api, ThreadGroup::Warp);
        close(count(&row, "gpu.estimate.compute.log2_per_peak"), tail / share, "nothing but multiply-adds");
        // Each thread has 64 sums for each of two steps of a chunk, and reads 2 rows and 4 columns.
        let steps = chunk as f64 / mma.instruction_steps() as f64;
        close(count(&row, "gpu.accumulators.log2_count"), 64.0, "2 x 8 instructions of 4");
        let fmas = 64.0 * mma.instruction_steps() as f64 * steps;
        close(count(&row, "gpu.shared_load.log2_fmas_per_request"), fmas / (steps * (2.0 + 4.0)), "fragments");
        close(count(&row, "gpu.shared_turn.log2_fmas_per_turn"), fmas / (4.0 * steps * (2.0 + 4.0)), "no conflicts");
        close(count(&row, "gpu.barrier.log2_fmas_per_barrier"), fmas, "one barrier a chunk");
        close(column(&row, "gpu.prefetched.flag"), 1.0, "three chunks ahead");
        close(column(&row, "gpu.coalescing.data.ratio"), 1.0, "rows of whole sectors");
        let width = 16 / workload.dtype().bytes();
        close(column(&row, "gpu.global_width.data.elements"), width as f64, "16 bytes at once");
    }
}

/// All features of every sketch and element type are finite, and no estimate beats the device's
/// peak.
#[test]
fn every_sketch_of_every_type_has_estimates() {
    for (seed, (target, text)) in [
        ("cuda:sm_90", "matmul:m=1000,n=520,k=776,dtype=f16,bias"),
        ("cuda:sm_90", "conv2d:n=8,c=64,h=56,w=56,o=64,k=3,p=1,dtype=bf16"),
        ("cuda:sm_86", "conv2d:n=4,c=3,h=64,w=64,o=64,k=7,s=2,p=3,dtype=tf32,bias"),
        ("cuda:sm_70", "conv2d:c=32,h=28,w=28,o=64,k=3,p=1,dtype=f16"),
        ("opencl", "conv2d:c=32,h=28,w=28,o=64,k=3,p=1"),
    ]
    .into_iter()
    .enumerate()
    {
        let (target, workload) = (Target::detect(target, None).unwrap(), text.parse::<Workload>().unwrap());
        let space = ScheduleSpace::new(&workload, &target);
        let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
        for _ in 0..40 {
            let config = space.sample(&mut rng);
            let row = extract(&lower(&workload, &target, &config).unwrap(), &target);
            assert!(row.iter().all(|value| value.is_finite()), "{text} {config}");
            let most = count(&row, "gpu.estimate.run.log2_per_peak");
            // Winograd's algorithm needs fewer multiply-adds.
            assert!(most >= if config.is_exact() { 0.999 } else { 0.25 }, "{text} {config}: {most}");
        }
    }
}

#[test]
fn register_use_from_the_compiler_replaces_the_estimate() {
    let target = sm_90();
    let gpu = target.gpu().unwrap();
    // 256 threads, with an estimate of 112 registers.
    let estimated = row(&square([128, 64, 4], 8, 1));
    assert_eq!((estimated_registers(&estimated), register_limit(&estimated, gpu)), (112.0, 255.0));
    assert_eq!(register_limit(&row(&square([128, 128, 4], 8, 1)), gpu), 64.0, "1024 threads");
    let mut same = estimated.clone();
    set_register_use(&mut same, gpu, RegisterUse { registers: 112.0, spill_bytes: 0.0 });
    for (name, (a, b)) in names().iter().zip(estimated.iter().zip(&same)) {
        close((*a).into(), (*b).into(), name);
    }
    for (registers, room) in [(40.0, 6.0), (64.0, 4.0), (65.0, 3.0), (168.0, 1.0)] {
        let mut row = estimated.clone();
        set_register_use(&mut row, gpu, RegisterUse { registers, spill_bytes: 96.0 });
        close(column(&row, "gpu.compiled.registers.count"), registers.into(), "as told");
        close(count(&row, "gpu.compiled.spills.log2_bytes"), 96.0, "as told");
        close(count(&row, "gpu.compiled.room.log2_blocks"), room, "of 65536 registers");
        close(column(&row, "gpu.compiled.occupancy.ratio"), room * 256.0 / 2048.0, "of 2048 threads");
        close(column(&row, "gpu.registers.count"), 112.0, "still estimated");
    }
}

#[test]
fn programs_of_cpus_have_no_such_columns() {
    for target in [target(2), Target::Gpu(GpuTarget::stated("opencl").unwrap())] {
        let row = extract(&gemm(SMALL), &target);
        let columns = || names().iter().zip(&row).filter(|(name, _)| name.starts_with("gpu."));
        assert!(columns().count() > 40 && columns().all(|(_, value)| *value == 0.0));
    }
}
