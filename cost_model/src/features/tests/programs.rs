//! Programs written by hand, as the lowering would make them.

use std::sync::Arc;

use autotune_ir::program::LoopKind::{Parallel, Serial, Unrolled, Vectorized};
use autotune_ir::program::{
    Access, AxisInfo, AxisOf, Buffer, BufferId, Expr, Iteration, Loop, LoopKind, Node, Role, Scope, Stage, Store,
    StoreMode, When,
};
use autotune_ir::{Affine, CpuTarget, DType, Program, Target, VarId};

use autotune_workloads::Workload;

use crate::features::names;

/// Builds programs node by node.
pub(in crate::features) struct ProgramWriter {
    pub(in crate::features) program: Program,
}

impl ProgramWriter {
    pub(in crate::features) fn new(workload: &str, axes: &[(&'static str, usize, bool)]) -> Self {
        let of = AxisOf::Part { axis: 0, step: 1 };
        let axis = |&(name, extent, reduce): &_| AxisInfo { name, extent, reduce, of: of.clone() };
        let workload: Workload = workload.parse().unwrap();
        let spec = workload.spec();
        let (axes, vars, buffers, stages) = (axes.iter().map(axis).collect(), Vec::new(), Vec::new(), Vec::new());
        Self {
            program: Program {
                algorithm: Arc::clone(spec),
                spec: Arc::clone(spec),
                axes,
                vars,
                buffers,
                stages,
                cold: false,
            },
        }
    }

    pub(in crate::features) fn buffer(&mut self, role: Role, scope: Scope, shape: &[usize]) -> BufferId {
        let name = format!("b{}", self.program.buffers.len());
        self.program.buffers.push(Buffer::plain(name, role, scope, shape.to_vec(), DType::F32));
        BufferId(self.program.buffers.len() as u32 - 1)
    }

    pub(in crate::features) fn var(&mut self, name: &str) -> VarId {
        self.program.vars.push(name.to_string().into());
        VarId(self.program.vars.len() as u32 - 1)
    }

    /// Returns a loop; `body` builds its body from the loop variable.
    pub(in crate::features) fn each(
        &mut self,
        kind: LoopKind,
        extent: usize,
        body: impl FnOnce(&mut Self, Affine) -> Vec<Node>,
    ) -> Vec<Node> {
        let var = self.var("v");
        let body = body(self, Affine::var(var));
        vec![Node::Loop(Loop { var, extent, kind, body })]
    }

    pub(in crate::features) fn stage(&mut self, when: When, body: Vec<Node>) {
        let name = format!("stage{}", self.program.stages.len());
        self.program.stages.push(Stage { name, when, body });
    }
}

pub(in crate::features) fn at(buffer: BufferId, index: &[Affine]) -> Access {
    Access { buffer, index: index.to_vec().into() }
}

pub(in crate::features) fn load(buffer: BufferId, index: &[Affine]) -> Expr {
    Expr::Load(at(buffer, index))
}

pub(in crate::features) fn store(dst: Access, value: Expr) -> Node {
    Node::Store(Store { dst, mode: StoreMode::Assign, value, iteration: None })
}

pub(in crate::features) fn mac(dst: Access, a: Expr, b: Expr, point: &[Affine]) -> Node {
    let value = Expr::product(a, b);
    Node::Store(Store {
        dst,
        mode: StoreMode::Accumulate,
        value,
        iteration: Some(Iteration { equation: 0, point: point.to_vec() }),
    })
}

pub(in crate::features) fn zero() -> Affine {
    Affine::constant(0)
}

/// Sizes of a packed matrix product with register tiles of `rows` x `columns`. Rows are split into
/// the largest multiple of `rows` and a remainder tree.
#[derive(Clone, Copy, Debug)]
pub(in crate::features) struct Gemm {
    pub(in crate::features) m: usize,
    pub(in crate::features) n: usize,
    pub(in crate::features) k: usize,
    pub(in crate::features) rows: usize,
    pub(in crate::features) columns: usize,
}

pub(in crate::features) fn gemm(g: Gemm) -> Program {
    let axes = [("b", 1, false), ("m", g.m, false), ("n", g.n, false), ("k", g.k, true)];
    let mut b = ProgramWriter::new(&format!("matmul:m={},n={},k={}", g.m, g.n, g.k), &axes);
    let a = b.buffer(Role::Operand(0), Scope::Global, &[1, g.m, g.k]);
    let w = b.buffer(Role::Operand(1), Scope::Global, &[1, g.k, g.n]);
    let c = b.buffer(Role::Output, Scope::Global, &[1, g.m, g.n]);
    let panels = g.n / g.columns;
    let p = b.buffer(Role::Packed, Scope::Global, &[panels, g.k, g.columns]);
    let pack = b.each(Parallel, panels, |b, jo| {
        b.each(Serial, g.k, |b, k| {
            b.each(Serial, g.columns, |_, ji| {
                let column = jo.clone() * g.columns as i64 + ji.clone();
                vec![store(at(p, &[jo, k.clone(), ji]), load(w, &[zero(), k, column]))]
            })
        })
    });
    b.stage(When::AheadOfTime, pack);
    let mut trees = gemm_tree(&mut b, g, [a, p, c], g.rows, g.m / g.rows, 0);
    if !g.m.is_multiple_of(g.rows) {
        trees.extend(gemm_tree(&mut b, g, [a, p, c], g.m % g.rows, 1, g.m / g.rows * g.rows));
    }
    b.stage(When::EveryRun, trees);
    b.program
}

fn gemm_tree(
    b: &mut ProgramWriter,
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
                b.each(Vectorized, g.columns, |_, v| vec![store(at(acc, &[r, v]), Expr::Const(0.0))])
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

/// Returns a 3x3 convolution of stride 1, vectorised along the width. It copies its input into a
/// padded buffer first, and its partial sums are in memory.
pub(in crate::features) fn padded_conv(c: usize, hw: usize, o: usize) -> Program {
    let axes =
        [("n", 1, false), ("o", o, false), ("oh", hw, false), ("ow", hw, false), ("c", c, true), ("kh", 3, true)];
    let mut b = ProgramWriter::new(
        &format!("conv2d:c={c},h={hw},w={hw},o={o},k=3,p=1"),
        &[axes.as_slice(), &[("kw", 3, true)]].concat(),
    );
    let data = b.buffer(Role::Operand(0), Scope::Global, &[1, c, hw, hw]);
    let weight = b.buffer(Role::Operand(1), Scope::Global, &[o, c, 3, 3]);
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
                            let x = [zero(), c.clone(), oh.clone() + kh.clone(), ow.clone() + kw.clone()];
                            let w = load(weight, &[o.clone(), c.clone(), kh.clone(), kw.clone()]);
                            vec![mac(dst, load(padded, &x), w, &[zero(), o, oh, ow, c, kh, kw])]
                        })
                    })
                })
            })
        })
    });
    b.stage(When::EveryRun, compute);
    b.program
}

pub(in crate::features) fn target(threads: usize) -> Target {
    Target::Cpu(CpuTarget::generic_avx2(threads))
}

pub(in crate::features) fn column(row: &[f32], name: &str) -> f64 {
    let position = names().iter().position(|n| n == name).unwrap_or_else(|| panic!("no column '{name}'"));
    f64::from(row[position])
}

/// Inverts `log2(1 + x)`.
pub(in crate::features) fn count(row: &[f32], name: &str) -> f64 {
    column(row, name).exp2() - 1.0
}

#[track_caller]
pub(in crate::features) fn close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= 1e-4 * expected.abs().max(1.0), "{what}: {found}, expected {expected}");
}

pub(in crate::features) const SMALL: Gemm = Gemm { m: 24, n: 32, k: 16, rows: 6, columns: 16 };
