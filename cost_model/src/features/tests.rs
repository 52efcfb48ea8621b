//! Hand-built programs with hand-computed columns, and properties over random ones.

use autotune_schedules::program::{
    Access, AxisInfo, Buffer, BufferId, Expr, Layout, Loop, LoopKind, Node, Role, Scope, Stage,
    Store, StoreMode, When,
};
use autotune_schedules::{
    Affine, Config, CpuTarget, Program, ScheduleSpace, Target, VarId, Workload, lower,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::footprint::{LINE_BYTES, Region};
use super::nest::Nest;
use super::register::pieces;
use super::totals::busiest_thread;
use super::*;

/// Writes programs node by node.
struct Builder {
    program: Program,
}

impl Builder {
    fn new(workload: &str, axes: &[(&str, usize, bool)]) -> Self {
        let axes = axes
            .iter()
            .map(|&(name, extent, reduce)| AxisInfo {
                name: name.into(),
                extent,
                reduce,
            })
            .collect();
        let workload = workload.parse().unwrap();
        Self {
            program: Program {
                workload,
                axes,
                vars: Vec::new(),
                buffers: Vec::new(),
                stages: Vec::new(),
            },
        }
    }

    fn buffer(&mut self, role: Role, scope: Scope, shape: &[usize]) -> BufferId {
        let name = format!("b{}", self.program.buffers.len());
        self.program.buffers.push(Buffer {
            name,
            role,
            scope,
            shape: shape.to_vec(),
            layout: Layout::Plain,
        });
        BufferId(self.program.buffers.len() as u32 - 1)
    }

    fn var(&mut self, name: &str) -> VarId {
        self.program.vars.push(name.into());
        VarId(self.program.vars.len() as u32 - 1)
    }

    /// A loop around the body that is made from its variable.
    fn each(
        &mut self,
        kind: LoopKind,
        extent: usize,
        body: impl FnOnce(&mut Self, Affine) -> Vec<Node>,
    ) -> Vec<Node> {
        let var = self.var("v");
        let body = body(self, Affine::var(var));
        vec![Node::Loop(Loop {
            var,
            extent,
            kind,
            body,
        })]
    }

    fn stage(&mut self, when: When, body: Vec<Node>) {
        let name = format!("stage{}", self.program.stages.len());
        self.program.stages.push(Stage { name, when, body });
    }
}

fn at(buffer: BufferId, index: &[Affine]) -> Access {
    Access {
        buffer,
        index: index.to_vec(),
    }
}

fn load(buffer: BufferId, index: &[Affine]) -> Expr {
    Expr::Load(at(buffer, index))
}

fn store(dst: Access, value: Expr) -> Node {
    Node::Store(Store {
        dst,
        mode: StoreMode::Assign,
        value,
        point: Vec::new(),
    })
}

fn mac(dst: Access, a: Expr, b: Expr, point: &[Affine]) -> Node {
    let value = Expr::Mul(Box::new(a), Box::new(b));
    Node::Store(Store {
        dst,
        mode: StoreMode::Accumulate,
        value,
        point: point.to_vec(),
    })
}

fn zero() -> Affine {
    Affine::constant(0)
}

use LoopKind::{Parallel, Serial, Unrolled, Vectorized};

/// Sizes of a packed matrix product: register tiles of `rows` x `columns`, rows divided into the largest multiple of
/// `rows` and a remainder tree.
#[derive(Clone, Copy, Debug)]
struct Gemm {
    m: usize,
    n: usize,
    k: usize,
    rows: usize,
    columns: usize,
}

fn gemm(g: Gemm) -> Program {
    let axes = [
        ("b", 1, false),
        ("m", g.m, false),
        ("n", g.n, false),
        ("k", g.k, true),
    ];
    let mut b = Builder::new(&format!("matmul:m={},n={},k={}", g.m, g.n, g.k), &axes);
    let a = b.buffer(Role::Input, Scope::Global, &[1, g.m, g.k]);
    let w = b.buffer(Role::Weight, Scope::Global, &[1, g.k, g.n]);
    let c = b.buffer(Role::Output, Scope::Global, &[1, g.m, g.n]);
    let panels = g.n / g.columns;
    let p = b.buffer(Role::Packed, Scope::Global, &[panels, g.k, g.columns]);
    let pack = b.each(Parallel, panels, |b, jo| {
        b.each(Serial, g.k, |b, k| {
            b.each(Serial, g.columns, |_, ji| {
                let column = jo.clone() * g.columns as i64 + ji.clone();
                vec![store(
                    at(p, &[jo, k.clone(), ji]),
                    load(w, &[zero(), k, column]),
                )]
            })
        })
    });
    b.stage(When::AheadOfTime, pack);
    let mut trees = gemm_tree(&mut b, g, [a, p, c], g.rows, g.m / g.rows, 0);
    if !g.m.is_multiple_of(g.rows) {
        trees.extend(gemm_tree(
            &mut b,
            g,
            [a, p, c],
            g.m % g.rows,
            1,
            g.m / g.rows * g.rows,
        ));
    }
    b.stage(When::EveryRun, trees);
    b.program
}

fn gemm_tree(
    b: &mut Builder,
    g: Gemm,
    [a, p, c]: [BufferId; 3],
    rows: usize,
    tiles: usize,
    first: usize,
) -> Vec<Node> {
    let acc = b.buffer(Role::Accumulator, Scope::Register, &[rows, g.columns]);
    b.each(Parallel, tiles, |b, io| {
        b.each(Serial, g.n / g.columns, |b, jo| {
            let row = |r: Affine| io.clone() * rows as i64 + r + first as i64;
            let column = |v: Affine| jo.clone() * g.columns as i64 + v;
            let mut body = b.each(Unrolled, rows, |b, r| {
                b.each(Vectorized, g.columns, |_, v| {
                    vec![store(at(acc, &[r, v]), Expr::Const(0.0))]
                })
            });
            body.extend(b.each(Serial, g.k, |b, k| {
                b.each(Unrolled, rows, |b, r| {
                    b.each(Vectorized, g.columns, |_, v| {
                        let data = load(a, &[zero(), row(r.clone()), k.clone()]);
                        let weight = load(p, &[jo.clone(), k.clone(), v.clone()]);
                        let point = [zero(), row(r.clone()), column(v.clone()), k];
                        vec![mac(at(acc, &[r, v]), data, weight, &point)]
                    })
                })
            }));
            body.extend(b.each(Unrolled, rows, |b, r| {
                b.each(Vectorized, g.columns, |_, v| {
                    let dst = at(c, &[zero(), row(r.clone()), column(v.clone())]);
                    vec![store(dst, load(acc, &[r, v]))]
                })
            }));
            vec![Node::Alloc { buffer: acc, body }]
        })
    })
}

/// A 3x3 convolution of stride 1 that copies its input into a padded buffer first, vectorised along the width; writes
/// its partial sums to memory.
fn padded_conv(c: usize, hw: usize, o: usize) -> Program {
    let axes = [
        ("n", 1, false),
        ("o", o, false),
        ("oh", hw, false),
        ("ow", hw, false),
        ("c", c, true),
        ("kh", 3, true),
    ];
    let mut b = Builder::new(
        &format!("conv2d:c={c},h={hw},w={hw},o={o},k=3,p=1"),
        &[axes.as_slice(), &[("kw", 3, true)]].concat(),
    );
    let data = b.buffer(Role::Input, Scope::Global, &[1, c, hw, hw]);
    let weight = b.buffer(Role::Weight, Scope::Global, &[o, c, 3, 3]);
    let out = b.buffer(Role::Output, Scope::Global, &[1, o, hw, hw]);
    let padded = b.buffer(Role::Packed, Scope::Global, &[1, c, hw + 2, hw + 2]);
    let copy = b.each(Parallel, c, |b, c| {
        b.each(Serial, hw, |b, h| {
            b.each(Vectorized, hw, |_, w| {
                let dst = at(padded, &[zero(), c.clone(), h.clone() + 1, w.clone() + 1]);
                vec![store(dst, load(data, &[zero(), c, h, w]))]
            })
        })
    });
    b.stage(When::EveryRun, copy);
    let compute = b.each(Parallel, o, |b, o| {
        b.each(Serial, hw, |b, oh| {
            b.each(Serial, c, |b, c| {
                b.each(Unrolled, 3, |b, kh| {
                    b.each(Unrolled, 3, |b, kw| {
                        b.each(Vectorized, hw, |_, ow| {
                            let dst = at(out, &[zero(), o.clone(), oh.clone(), ow.clone()]);
                            let x = [
                                zero(),
                                c.clone(),
                                oh.clone() + kh.clone(),
                                ow.clone() + kw.clone(),
                            ];
                            let w = load(weight, &[o.clone(), c.clone(), kh.clone(), kw.clone()]);
                            vec![mac(
                                dst,
                                load(padded, &x),
                                w,
                                &[zero(), o, oh, ow, c, kh, kw],
                            )]
                        })
                    })
                })
            })
        })
    });
    b.stage(When::EveryRun, compute);
    b.program
}

fn target(threads: usize) -> Target {
    Target::Cpu(CpuTarget::generic_avx2(threads))
}

fn column(row: &[f32], name: &str) -> f64 {
    let position = names()
        .iter()
        .position(|n| n == name)
        .unwrap_or_else(|| panic!("no column '{name}'"));
    f64::from(row[position])
}

/// Undoes `log2(1 + x)`.
fn count(row: &[f32], name: &str) -> f64 {
    column(row, name).exp2() - 1.0
}

#[track_caller]
fn close(found: f64, expected: f64, what: &str) {
    assert!(
        (found - expected).abs() <= 1e-4 * expected.abs().max(1.0),
        "{what}: {found}, expected {expected}"
    );
}

const SMALL: Gemm = Gemm {
    m: 24,
    n: 32,
    k: 16,
    rows: 6,
    columns: 16,
};

#[test]
fn names_are_unique_plain_words() {
    assert_eq!(names().len(), FEATURE_COUNT);
    assert!(
        (100..=180).contains(&FEATURE_COUNT),
        "{FEATURE_COUNT} columns"
    );
    let mut sorted: Vec<&String> = names().iter().collect();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), FEATURE_COUNT);
    for name in names() {
        assert!(
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_'),
            "{name}"
        );
    }
}

#[test]
fn vectors_split_into_powers_of_two() {
    assert_eq!(
        [8, 16, 24, 12, 7, 1, 31].map(|extent| pieces(extent, 8)),
        [1.0, 2.0, 3.0, 2.0, 3.0, 1.0, 6.0]
    );
}

#[test]
fn register_tile_of_a_packed_matmul() {
    let row = extract(&gemm(SMALL), &target(1));
    close(count(&row, "vector.extent.log2_elements"), 16.0, "extent");
    close(
        column(&row, "vector.class.code"),
        1.0,
        "columns of the weight are vectorised",
    );
    close(column(&row, "vector.lane_use.ratio"), 1.0, "lanes");
    close(
        column(&row, "register.accumulators.vectors"),
        12.0,
        "6 rows of 2 vectors",
    );
    close(
        column(&row, "register.free.vectors"),
        1.0,
        "16 less 12 accumulators, 2 weights, 1 broadcast",
    );
    close(
        column(&row, "register.vector_loads.per_fma"),
        2.0 / 12.0,
        "weights",
    );
    close(
        column(&row, "register.broadcasts.per_fma"),
        6.0 / 12.0,
        "data",
    );
    close(
        count(&row, "register.unrolled.log2_steps"),
        1.0,
        "k is serial",
    );
    close(count(&row, "register.inner.log2_steps"), 16.0, "k");
    close(
        column(&row, "register.latency_hidden.ratio"),
        1.0,
        "12 chains",
    );
    close(column(&row, "register.in_memory.flag"), 0.0, "in registers");
    close(column(&row, "total.fmas.per_direct_fma"), 1.0, "no waste");
    for (part, expected) in [
        ("body.column", 16.0),
        ("body.row", 6.0),
        ("body.reduce", 1.0),
        ("tile.reduce", 16.0),
        ("cache.column", 2.0),
        ("parallel.row", 4.0),
        ("parallel.reduce", 1.0),
    ] {
        close(
            count(&row, &format!("iterations.{part}.log2_count")),
            expected,
            part,
        );
    }
    for (slot, extent, kind) in [(0, 16.0, 1.0), (1, 2.0, 2.0), (2, 4.0, 3.0), (3, 0.0, 0.0)] {
        close(
            count(&row, &format!("loop.{slot}.extent.log2_count")),
            extent,
            "extent",
        );
        close(
            column(&row, &format!("loop.{slot}.kind.code")),
            kind,
            "kind",
        );
    }
    close(
        count(&row, "loop.1.data_reuse.log2_count"),
        2.0,
        "both panels read the same rows",
    );
    close(
        count(&row, "loop.1.weight_reuse.log2_count"),
        1.0,
        "each panel is read once",
    );
    close(
        count(&row, "loop.2.weight_reuse.log2_count"),
        4.0,
        "every row tile reads all panels",
    );
}

#[test]
fn footprints_of_a_packed_matmul() {
    let row = extract(&gemm(SMALL), &target(1));
    // Lines of 16 elements; rows of A are one line, rows of C two.
    for (point, lines, reuse) in [
        ("data.body", 6, 96.0 / 6.0),
        ("weight.body", 1, 96.0 / 16.0),
        ("output.body", 0, 0.0),
        ("data.tile", 6, 1536.0 / 96.0),
        ("weight.tile", 16, 1536.0 / 256.0),
        ("output.tile", 6, 1536.0 / 96.0),
        ("data.task", 6, 3072.0 / 96.0),
        ("weight.task", 32, 3072.0 / 512.0),
        ("output.task", 12, 3072.0 / 192.0),
    ] {
        close(
            count(&row, &format!("footprint.{point}.log2_bytes")),
            64.0 * f64::from(lines),
            point,
        );
        close(
            count(&row, &format!("reuse.{point}.log2_fmas_per_element")),
            reuse,
            point,
        );
    }
    close(
        count(&row, "loop.0.working_set.log2_bytes"),
        64.0 * 28.0,
        "one register tile",
    );
    close(
        count(&row, "loop.1.working_set.log2_bytes"),
        64.0 * 50.0,
        "one row of tiles",
    );
    close(
        count(&row, "loop.2.working_set.log2_bytes"),
        64.0 * 104.0,
        "everything",
    );
    close(
        column(&row, "line_use.data.ratio"),
        1.0,
        "lines are used whole",
    );
    close(count(&row, "pages.task.weight.log2_count"), 1.0, "2 KiB");
}

#[test]
fn traffic_follows_the_first_loop_that_does_not_fit() {
    let traffic = |l1d_bytes: usize| {
        let cpu = CpuTarget {
            l1d_bytes,
            ..CpuTarget::generic_avx2(1)
        };
        let row = extract(&gemm(SMALL), &Target::Cpu(cpu));
        let flops = 2.0 * 24.0 * 32.0 * 16.0;
        ["data", "weight", "output"]
            .map(|o| column(&row, &format!("traffic.l1.{o}.bytes_per_flop")) * flops / 64.0)
    };
    let expect = |l1_bytes, lines: [f64; 3]| {
        traffic(l1_bytes)
            .iter()
            .zip(lines)
            .for_each(|(&found, lines)| close(found, lines, &format!("{l1_bytes}")));
    };
    expect(32 << 10, [24.0, 32.0, 48.0]); // everything fits: each line once
    expect(4096, [24.0, 32.0, 48.0]); // a row of tiles fits, so the weights stay from row to row
    expect(2048, [24.0, 128.0, 48.0]); // only a tile fits: each of 4 rows of tiles reads all weights again
    expect(1024, [48.0, 128.0, 48.0]); // only a step fits: each panel reads the data again
}

#[test]
fn remainders_are_counted() {
    let row = extract(&gemm(Gemm { m: 27, ..SMALL }), &target(1));
    close(
        count(&row, "total.mac_leaves.log2_count"),
        2.0,
        "main and remainder",
    );
    close(
        count(&row, "total.trees.log2_count"),
        2.0,
        "main and remainder",
    );
    close(
        column(&row, "total.dominant_leaf.share"),
        24.0 / 27.0,
        "dominant",
    );
    close(
        column(&row, "total.fmas.per_direct_fma"),
        1.0,
        "covered once",
    );
    close(count(&row, "parallel.tasks.log2_count"), 5.0, "4 and 1");
    close(column(&row, "total.stores.per_output"), 1.0, "stored once");
}

#[test]
fn lanes_left_idle_are_counted() {
    let row = extract(
        &gemm(Gemm {
            n: 24,
            columns: 12,
            ..SMALL
        }),
        &target(1),
    );
    close(
        column(&row, "vector.lane_use.ratio"),
        12.0 / 16.0,
        "8 and 4 of 8",
    );
    close(
        column(&row, "register.accumulators.vectors"),
        12.0,
        "6 rows of 2 pieces",
    );
    close(
        column(&row, "total.lane_use.ratio"),
        0.75,
        "all leaves alike",
    );
    close(
        column(&row, "total.partial_vectors.share"),
        1.0,
        "all leaves alike",
    );
}

#[test]
fn a_wider_register_tile_is_estimated_faster_until_it_spills() {
    let estimate = |rows| {
        let row = extract(
            &gemm(Gemm {
                m: 120,
                n: 32,
                k: 512,
                rows,
                columns: 16,
            }),
            &target(1),
        );
        column(&row, "estimate.compute.cycles_per_flop")
    };
    assert!(estimate(1) > estimate(2) && estimate(2) > estimate(4) && estimate(4) > estimate(6));
    assert!(
        estimate(6) < estimate(10),
        "20 accumulators do not fit 16 registers"
    );
}

#[test]
fn copies_and_memory_accumulators_are_seen() {
    let row = extract(&padded_conv(8, 14, 16), &target(2));
    let flops = 2.0 * 16.0 * 14.0 * 14.0 * 8.0 * 9.0;
    close(
        column(&row, "total.global_copies.bytes_per_flop"),
        2.0 * 4.0 * 8.0 * 196.0 / flops,
        "one load, one store",
    );
    close(
        column(&row, "parallel.stages.count"),
        2.0,
        "copy and compute",
    );
    close(
        column(&row, "register.in_memory.flag"),
        1.0,
        "partial sums in memory",
    );
    close(
        column(&row, "vector.class.code"),
        2.0,
        "rows of the data are vectorised",
    );
    close(
        column(&row, "vector.lane_use.ratio"),
        14.0 / 24.0,
        "8, 4 and 2 of 8",
    );
    close(count(&row, "register.unrolled.log2_steps"), 9.0, "3x3");
    // One step of c touches 3 rows of 16 elements of the padded data, 9 weights and one row of the output.
    close(
        count(&row, "reuse.data.body.log2_fmas_per_element"),
        9.0 * 14.0 / 48.0,
        "data",
    );
    close(
        count(&row, "reuse.weight.body.log2_fmas_per_element"),
        14.0,
        "weight",
    );
    // The padded buffer is the data operand, though its role is only packed.
    close(
        count(&row, "footprint.data.task.log2_bytes"),
        4.0 * 8.0 * 256.0,
        "one task reads all of it",
    );
}

#[test]
fn overlapping_windows_are_counted_once() {
    let mut b = Builder::new("matmul:m=4,n=4,k=4", &[]);
    let buffer = b.buffer(Role::Input, Scope::Global, &[64, 64]);
    let elements = |stride: i64, window: usize, tiles: usize| {
        let nest = Nest::new(&b.program);
        let (o, k) = (VarId(0), VarId(1));
        let access = at(buffer, &[zero(), Affine::var(o) * stride + Affine::var(k)]);
        let mut region = Region::new(&nest, &access);
        region.widen(&Loop {
            var: k,
            extent: window,
            kind: Serial,
            body: Vec::new(),
        });
        region.widen(&Loop {
            var: o,
            extent: tiles,
            kind: Serial,
            body: Vec::new(),
        });
        region.elements()
    };
    assert_eq!(elements(1, 3, 14), 16.0);
    assert_eq!(elements(2, 3, 7), 15.0);
    assert_eq!(elements(2, 1, 7), 7.0);
    assert_eq!(elements(4, 2, 7), 14.0);
}

#[test]
fn rows_four_kibibytes_apart_share_a_set() {
    let lines_per_set = |k| {
        let row = extract(
            &gemm(Gemm {
                m: 12,
                n: 16,
                k,
                rows: 12,
                columns: 16,
            }),
            &target(1),
        );
        count(&row, "lines_per_set.tile.data.log2_count")
    };
    // 12 rows of k elements are one dense block: k/16 lines each over 64 sets.
    close(lines_per_set(1024), 12.0, "dense rows");

    let mut b = Builder::new("matmul:m=4,n=4,k=4", &[]);
    let wide = b.buffer(Role::Input, Scope::Global, &[64, 1024]);
    let odd = b.buffer(Role::Input, Scope::Global, &[64, 1040]);
    let nest = Nest::new(&b.program);
    let tall = |buffer| {
        let (r, v) = (VarId(0), VarId(1));
        let access = at(buffer, &[Affine::var(r), Affine::var(v)]);
        let mut region = Region::new(&nest, &access);
        region.widen(&Loop {
            var: v,
            extent: 16,
            kind: Serial,
            body: Vec::new(),
        });
        region.widen(&Loop {
            var: r,
            extent: 32,
            kind: Serial,
            body: Vec::new(),
        });
        region.lines_per_set()
    };
    assert_eq!(tall(wide), 32.0);
    assert_eq!(tall(odd), 1.0);
}

#[test]
fn threads_are_as_slow_as_the_busiest() {
    assert_eq!(busiest_thread(&[(4.0, 400.0)], 2), 200.0);
    assert_eq!(busiest_thread(&[(4.0, 400.0)], 3), 200.0);
    assert_eq!(busiest_thread(&[(1.0, 70.0)], 4), 70.0);
    assert_eq!(busiest_thread(&[(3.0, 300.0), (1.0, 20.0)], 2), 200.0);
    let row = extract(&gemm(Gemm { m: 18, ..SMALL }), &target(2));
    close(
        column(&row, "parallel.imbalance.ratio"),
        4.0 / 3.0,
        "3 tasks, 2 threads",
    );
}

#[test]
fn all_programs_give_rows_of_finite_numbers() {
    let mut programs = vec![gemm(SMALL), padded_conv(3, 9, 5), padded_conv(64, 56, 64)];
    let nothing = Program {
        stages: Vec::new(),
        ..gemm(SMALL)
    };
    let one = gemm(Gemm {
        m: 1,
        n: 1,
        k: 1,
        rows: 1,
        columns: 1,
    });
    programs.extend([nothing, one]);
    for program in &programs {
        for threads in [1, 2, 64] {
            let row = extract(program, &target(threads));
            assert_eq!(row.len(), FEATURE_COUNT);
            for (name, value) in names().iter().zip(&row) {
                assert!(
                    value.is_finite(),
                    "{name} of {} is {value}",
                    program.workload
                );
            }
        }
    }
}

#[test]
fn extract_all_is_extract_row_by_row() {
    let programs = [
        gemm(SMALL),
        padded_conv(8, 14, 16),
        gemm(Gemm { m: 27, ..SMALL }),
    ];
    let rows = extract_all(&programs, &target(2));
    assert_eq!(rows.shape(), [3, FEATURE_COUNT]);
    for (row, program) in rows.outer_iter().zip(&programs) {
        assert_eq!(row.to_vec(), extract(program, &target(2)));
    }
    assert_eq!(extract_all(&[], &target(2)).shape(), [0, FEATURE_COUNT]);
}

/// The same program with variable `v` called `renamed[v]`.
fn renumber(program: &Program, renamed: &[u32]) -> Program {
    fn affine(a: &mut Affine, renamed: &[u32]) {
        for term in &mut a.terms {
            term.0 = VarId(renamed[term.0.0 as usize]);
        }
        a.terms.sort();
    }
    fn value(e: &mut Expr, renamed: &[u32]) {
        match e {
            Expr::Const(_) => {}
            Expr::Load(access) => access.index.iter_mut().for_each(|a| affine(a, renamed)),
            Expr::Add(a, b) | Expr::Mul(a, b) | Expr::Max(a, b) => {
                value(a, renamed);
                value(b, renamed);
            }
        }
    }
    fn nodes(body: &mut [Node], renamed: &[u32]) {
        for node in body {
            match node {
                Node::Loop(l) => {
                    l.var = VarId(renamed[l.var.0 as usize]);
                    nodes(&mut l.body, renamed);
                }
                Node::Alloc { body, .. } => nodes(body, renamed),
                Node::Store(s) => {
                    value(&mut s.value, renamed);
                    s.dst
                        .index
                        .iter_mut()
                        .chain(&mut s.point)
                        .for_each(|a| affine(a, renamed));
                }
            }
        }
    }
    let mut program = program.clone();
    program
        .stages
        .iter_mut()
        .for_each(|s| nodes(&mut s.body, renamed));
    program
}

#[test]
fn names_of_variables_do_not_matter() {
    for program in [gemm(Gemm { m: 27, ..SMALL }), padded_conv(8, 14, 16)] {
        let reversed: Vec<u32> = (0..program.vars.len() as u32).rev().collect();
        assert_eq!(
            extract(&renumber(&program, &reversed), &target(2)),
            extract(&program, &target(2))
        );
    }
}

/// Random two-level tilings of a plane: elements and lines by enumeration.
#[test]
fn footprints_agree_with_enumeration() {
    for seed in 0..1000 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let shape = [
            rng.random_range(1..6),
            rng.random_range(1..20),
            rng.random_range(1..80),
        ];
        let mut b = Builder::new("matmul:m=4,n=4,k=4", &[]);
        let buffer = b.buffer(Role::Input, Scope::Global, &shape);
        // Each index is `step * outer + inner`: windows that overlap or abut, or single elements with gaps.
        let (mut index, mut loops) = (Vec::new(), Vec::new());
        for &size in &shape {
            let inner = rng.random_range(1..=size.min(8));
            let step = rng.random_range(1..=if inner == 1 { 8 } else { inner });
            let outer = (size - inner) / step + 1;
            let (o, i) = (VarId(loops.len() as u32), VarId(loops.len() as u32 + 1));
            index.push(Affine::var(o) * step as i64 + Affine::var(i));
            loops.extend([outer, inner].map(|extent| Loop {
                var: VarId(0),
                extent,
                kind: Serial,
                body: Vec::new(),
            }));
        }
        loops
            .iter_mut()
            .enumerate()
            .for_each(|(i, l)| l.var = VarId(i as u32));
        let access = at(buffer, &index);
        let nest = Nest::new(&b.program);
        let mut region = Region::new(&nest, &access);
        loops.iter().rev().for_each(|l| region.widen(l));

        let mut addresses = std::collections::BTreeSet::new();
        let strides = b.program.buffer(buffer).strides();
        let total: usize = loops.iter().map(|l| l.extent).product();
        for mut rest in 0..total {
            let values: Vec<i64> = loops
                .iter()
                .map(|l| ((rest % l.extent) as i64, rest /= l.extent).0)
                .collect();
            let flat: i64 = index
                .iter()
                .zip(&strides)
                .map(|(a, &s)| a.eval(|v| values[v.0 as usize]) * s as i64)
                .sum();
            addresses.insert(flat);
        }
        assert_eq!(region.elements(), addresses.len() as f64, "seed {seed}");

        let lines = |offset: i64| {
            let lines: std::collections::BTreeSet<i64> =
                addresses.iter().map(|a| (a + offset) / 16).collect();
            lines.len() as f64
        };
        let (fewest, most) = (0..16)
            .map(lines)
            .fold((f64::MAX, 0.0f64), |(low, high), n| {
                (low.min(n), high.max(n))
            });
        let found = region.blocks(LINE_BYTES);
        assert!(
            (fewest * 0.8..=most * 1.3).contains(&found),
            "seed {seed}: {found} lines, {fewest} to {most} by enumeration"
        );
    }
}

const WORKLOADS: [&str; 12] = [
    "conv2d:c=3,h=32,w=32,o=16,k=7,s=2,p=3,bias,act=relu",
    "conv2d:c=64,h=56,w=56,o=64,k=3,p=1",
    "conv2d:c=512,h=7,w=7,o=512,k=3,p=1,bias,add,act=relu",
    "conv2d:c=64,h=28,w=28,o=128,k=1,s=2",
    "conv2d:c=48,h=15,w=17,o=48,k=3,p=1,g=48",
    "conv2d:n=2,c=12,h=9,w=11,o=20,kh=3,kw=5,p=2,d=2,g=4",
    "conv2d:c=1,h=5,w=5,o=1,k=5",
    "matmul:m=197,n=768,k=3072,bias",
    "matmul:m=1,n=1000,k=512",
    "matmul:m=1,n=1,k=1",
    "matmul:b=12,m=197,n=197,k=64",
    "matmul:m=37,n=1,k=5",
];

#[test]
fn every_config_of_every_workload_gives_a_row_of_its_own() {
    for (number, workload) in WORKLOADS.into_iter().enumerate() {
        let workload: Workload = workload.parse().unwrap();
        let target = target(1 + number % 3);
        let space = ScheduleSpace::new(&workload, &target);
        let mut rng = ChaCha8Rng::seed_from_u64(number as u64);
        let mut configs: Vec<Config> = (0..24).map(|_| space.sample(&mut rng)).collect();
        configs.push(space.default_config());
        let mut programs: Vec<Program> = Vec::new();
        for config in &configs {
            let program = lower(&workload, &target, config).unwrap();
            if !programs.contains(&program) {
                programs.push(program);
            }
        }
        let rows = extract_all(&programs, &target);
        let mut distinct = Vec::new();
        for row in rows.outer_iter().map(|row| row.to_vec()) {
            for (name, value) in names().iter().zip(&row) {
                assert!(value.is_finite(), "{name} of {workload} is {value}");
            }
            let is = |name, low: f64, high: f64| {
                let value = column(&row, name);
                assert!(
                    (low..=high).contains(&value),
                    "{workload}: {name} is {value}"
                );
            };
            is("total.fmas.per_direct_fma", 0.3, 1.0);
            is("total.stores.per_output", 1.0, 1e6);
            is("total.lane_use.ratio", 0.124, 1.0);
            is("register.in_memory.flag", 0.0, 0.0);
            is("estimate.roofline.cycles_per_flop", 1.0 / 32.0, 1e3);
            if !distinct.contains(&row) {
                distinct.push(row);
            }
        }
        let (distinct, all) = (distinct.len(), programs.len());
        assert!(
            10 * distinct >= 9 * all,
            "{workload}: {all} programs have {distinct} different rows"
        );
    }
}

/// A larger cache never lets more in, and no cache lets in less than every operand once.
#[test]
fn traffic_falls_with_capacity() {
    for seed in 0..50 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rows = rng.random_range(1..9);
        let columns = 8 * rng.random_range(1..5);
        let g = Gemm {
            m: rows * rng.random_range(1..40),
            n: columns * rng.random_range(1..40),
            k: rng.random_range(1..900),
            rows,
            columns,
        };
        let row = extract(&gemm(g), &target(1));
        let curve = ["4k", "16k", "64k", "256k", "1m", "4m"]
            .map(|size| column(&row, &format!("traffic_at.{size}.bytes_per_flop")));
        assert!(
            curve.is_sorted_by(|a, b| *a >= b * 0.999),
            "seed {seed}: {g:?} {curve:?}"
        );
        let operands = (g.m * g.k + g.k * g.n + g.m * g.n) as f64 * 4.0;
        let least = operands / (2.0 * (g.m * g.n * g.k) as f64);
        assert!(
            curve[5] >= least * 0.99,
            "seed {seed}: {g:?} {} < {least}",
            curve[5]
        );
    }
}
