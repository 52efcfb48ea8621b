//! Hand-written programs, so that tests of interpreter and verifier do not depend on the lowering.

use std::sync::Arc;

use autotune_ir::layout::physical_shape;
use autotune_ir::program::{
    Access, AxisInfo, AxisOf, Buffer, BufferId, Expr, Iteration, Layout, Loop, LoopKind, Node, PrefetchLevel, Role,
    Scope, Stage, Store, StoreMode, When,
};
use autotune_ir::{Affine, DType, Program, VarId};
use autotune_workloads::{Activation, Conv2d, Matmul, Workload};

/// Builds a program step by step.
pub struct Builder(pub Program, Workload);

impl Builder {
    /// Creates a program with the workload's operands; input, output and residual have the layouts
    /// `data`.
    pub fn new(workload: &Workload, axes: &[(&'static str, usize, bool)], data: [Layout; 2]) -> Self {
        let spec = workload.spec();
        let part = |&(name, extent, reduce): &(&'static str, usize, bool)| {
            let whole = name.strip_suffix('i').unwrap_or(name);
            let axis = spec.main().axes.iter().position(|axis| axis.name == whole).unwrap();
            let lanes = axes.iter().find(|(other, ..)| *other == format!("{name}i")).map_or(1, |lanes| lanes.1);
            AxisInfo { name, extent, reduce, of: AxisOf::Part { axis, step: lanes } }
        };
        let axes = axes.iter().map(part).collect();
        let (vars, buffers, stages) = (Vec::new(), Vec::new(), Vec::new());
        let program =
            Program { algorithm: Arc::clone(spec), spec: Arc::clone(spec), axes, vars, buffers, stages, cold: false };
        let mut builder = Self(program, workload.clone());
        let [input, output] = data;
        let [bias, residual] = ["bias", "residual"].map(|name| builder.0.spec.operand(name));
        builder.operand("input", Role::Operand(0), &spec.tensors[0].shape, input);
        builder.operand("weight", Role::Operand(1), &spec.tensors[1].shape, Layout::Plain);
        if let Some(number) = bias {
            builder.operand("bias", Role::Operand(number), &spec.tensors[number].shape, Layout::Plain);
        }
        if let Some(number) = residual {
            builder.operand("residual", Role::Operand(number), workload.output_shape(), output);
        }
        builder.operand("output", Role::Output, workload.output_shape(), output);
        builder
    }

    fn operand(&mut self, name: &str, role: Role, shape: &[usize], layout: Layout) {
        let shape = physical_shape(shape, layout).unwrap();
        let plain = Buffer::plain(name, role, Scope::Global, shape, self.1.dtype());
        self.0.buffers.push(Buffer { layout, ..plain });
    }

    /// Adds a buffer that is not an operand.
    pub fn buffer(&mut self, name: &str, role: Role, scope: Scope, shape: &[usize]) -> BufferId {
        let dtype = if role == Role::Accumulator { DType::F32 } else { self.1.dtype() };
        self.0.buffers.push(Buffer::plain(name, role, scope, shape.to_vec(), dtype));
        BufferId(self.0.buffers.len() as u32 - 1)
    }

    pub fn role(&self, role: Role) -> BufferId {
        self.0.find(role).unwrap()
    }

    pub fn var(&mut self, name: &str) -> VarId {
        self.0.vars.push(name.to_string().into());
        VarId(self.0.vars.len() as u32 - 1)
    }

    pub fn stage(&mut self, name: &str, when: When, body: Vec<Node>) {
        self.0.stages.push(Stage { name: name.into(), when, body });
    }

    /// Returns `act(sum + bias[channel] + residual[at])`.
    fn epilogue(&self, sum: Expr, channel: Affine, at: &[Affine]) -> Expr {
        let operand = |name| self.0.spec.operand(name).map(|number| self.role(Role::Operand(number)));
        let mut value = sum;
        if let Some(bias) = operand("bias") {
            value = Expr::sum(value, load(bias, &[channel]));
        }
        if let Some(residual) = operand("residual") {
            value = Expr::sum(value, load(residual, at));
        }
        match self.1.epilogue().activation {
            Activation::None => value,
            Activation::Relu => Expr::max(value, Expr::Const(0.0)),
            other => panic!("no nest for act={other}"),
        }
    }
}

pub fn repeat(kind: LoopKind, var: VarId, extent: usize, body: Vec<Node>) -> Node {
    Node::Loop(Loop { var, extent, kind, body })
}

pub fn access(buffer: BufferId, index: &[Affine]) -> Access {
    Access { buffer, index: index.to_vec().into() }
}

pub fn load(buffer: BufferId, index: &[Affine]) -> Expr {
    Expr::Load(access(buffer, index))
}

pub fn assign(dst: Access, value: Expr) -> Node {
    Node::Store(Store { dst, mode: StoreMode::Assign, value, iteration: None })
}

pub fn multiply_add(dst: Access, a: Expr, b: Expr, point: &[Affine]) -> Node {
    let value = Expr::product(a, b);
    Node::Store(Store {
        dst,
        mode: StoreMode::Accumulate,
        value,
        iteration: Some(Iteration { equation: 0, point: point.to_vec() }),
    })
}

pub fn number(value: usize) -> Affine {
    Affine::constant(value as i64)
}

/// Calls `change` on every loop, outer before inner.
pub fn for_each_loop(nodes: &mut [Node], change: &mut impl FnMut(&mut Loop)) {
    for node in nodes {
        if let Node::Loop(l) = node {
            change(l);
        }
        if let Some(body) = node.body_mut() {
            for_each_loop(body, change);
        }
    }
}

/// Calls `change` on every store, first to last.
pub fn for_each_store(nodes: &mut [Node], change: &mut impl FnMut(&mut Store)) {
    for node in nodes {
        if let Node::Store(store) = node {
            change(store);
        }
        if let Some(body) = node.body_mut() {
            for_each_store(body, change);
        }
    }
}

/// Divides `extent` into tiles: `(start, tiles, size)` of the whole tiles and of the remainder.
fn pieces(extent: usize, tile: usize) -> Vec<(usize, usize, usize)> {
    let whole = extent / tile;
    let cut = [(0, whole, tile), (whole * tile, 1, extent % tile)];
    cut.into_iter().filter(|&(_, tiles, size)| tiles > 0 && size > 0).collect()
}

/// Returns a `matmul` (`b=1`) with register tiles of `rows` by `lanes`. The weights are packed
/// ahead of time into panels of `lanes` columns. The reduction has chunks of `depth`, whose partial
/// sums are stored in the output. No size needs to divide another.
pub fn tiled_matmul(text: &str, [rows, lanes, depth]: [usize; 3]) -> Program {
    use LoopKind::{Parallel, Serial, Unrolled, Vectorized};
    let workload: Workload = text.parse().unwrap();
    let Some(&mm) = workload.sizes::<Matmul>() else { panic!("{text} is no matmul") };
    let axes = [("b", 1, false), ("m", mm.m, false), ("n", mm.n, false), ("k", mm.k, true)];
    let mut p = Builder::new(&workload, &axes, [Layout::Plain; 2]);
    let panels = mm.n.div_ceil(lanes);
    let packed = p.buffer("weight_packed", Role::Packed, Scope::Global, &[panels, mm.k, lanes]);
    let acc = p.buffer("acc", Role::Accumulator, Scope::Register, &[rows, lanes]);
    let [mo, no, ko, kk, i, v] = ["mo", "no", "ko", "kk", "i", "v"].map(|name| p.var(name));
    let (input, weight, output) = (p.role(Role::Operand(0)), p.role(Role::Operand(1)), p.role(Role::Output));
    let var = Affine::var;

    let mut pack = Vec::new();
    let mut compute = Vec::new();
    for (n0, tiles_n, size_n) in pieces(mm.n, lanes) {
        let panel = var(no) + (n0 / lanes) as i64;
        let col = var(no) * lanes as i64 + var(v) + n0 as i64;
        let copy =
            assign(access(packed, &[panel.clone(), var(kk), var(v)]), load(weight, &[number(0), var(kk), col.clone()]));
        let line = repeat(Serial, kk, mm.k, vec![repeat(Vectorized, v, size_n, vec![copy])]);
        pack.push(repeat(Parallel, no, tiles_n, vec![line]));

        for (m0, tiles_m, size_m) in pieces(mm.m, rows) {
            let row = var(mo) * rows as i64 + var(i) + m0 as i64;
            let tile = |body| repeat(Unrolled, i, size_m, vec![repeat(Vectorized, v, size_n, vec![body])]);
            let sum = access(acc, &[var(i), var(v)]);
            let out = [number(0), row.clone(), col.clone()];
            let chunk = |k0: Affine, len: usize, first: bool, last: bool| {
                let k = k0 + var(kk);
                let start = if first { Expr::Const(0.0) } else { load(output, &out) };
                let end = Expr::Load(sum.clone());
                let end = if last { p.epilogue(end, col.clone(), &out) } else { end };
                let product = multiply_add(
                    sum.clone(),
                    load(input, &[number(0), row.clone(), k.clone()]),
                    load(packed, &[panel.clone(), k.clone(), var(v)]),
                    &[number(0), row.clone(), col.clone(), k.clone()],
                );
                let next = Node::Prefetch {
                    access: access(packed, &[panel.clone(), k, number(0)]),
                    ahead: 3 * lanes,
                    level: PrefetchLevel::L2,
                };
                let body = vec![
                    tile(assign(sum.clone(), start)),
                    repeat(Serial, kk, len, vec![tile(product), next]),
                    tile(assign(access(output, &out), end)),
                ];
                Node::Alloc { buffer: acc, body }
            };
            let chunks = mm.k.div_ceil(depth);
            let tail = mm.k - (chunks - 1) * depth;
            let mut body = Vec::new();
            if chunks > 1 {
                body.push(chunk(number(0), depth, true, false));
            }
            if chunks > 2 {
                let middle = chunk(var(ko) * depth as i64 + depth as i64, depth, false, false);
                body.push(repeat(Serial, ko, chunks - 2, vec![middle]));
            }
            body.push(chunk(number((chunks - 1) * depth), tail, chunks == 1, true));
            compute.push(repeat(Parallel, no, tiles_n, vec![repeat(Parallel, mo, tiles_m, body)]));
        }
    }
    p.stage("pack_weight", When::AheadOfTime, pack);
    p.stage("compute", When::EveryRun, compute);
    p.0
}

/// Returns runs of output positions along an axis that read the same taps:
/// `(first, count, first tap, taps)`.
fn peel(extent: usize, outputs: usize, taps: usize, stride: usize, pad: usize) -> Vec<[usize; 4]> {
    let mut runs: Vec<[usize; 4]> = Vec::new();
    for out in 0..outputs {
        let seen = |&tap: &usize| (pad..extent + pad).contains(&(out * stride + tap));
        let (first, count) = ((0..taps).find(seen).unwrap_or(0), (0..taps).filter(seen).count());
        match runs.last_mut() {
            Some([_, outs, f, c]) if (*f, *c) == (first, count) => *outs += 1,
            _ => runs.push([out, 1, first, count]),
        }
    }
    runs
}

fn conv_axes(workload: &Workload) -> Vec<(&'static str, usize, bool)> {
    let Some(&c) = workload.sizes::<Conv2d>() else { panic!("{workload} is no conv2d") };
    let [oh, ow] = c.output_hw();
    vec![
        ("n", 1, false),
        ("o", c.o, false),
        ("oh", oh, false),
        ("ow", ow, false),
        ("c", c.c, true),
        ("kh", c.kh, true),
        ("kw", c.kw, true),
    ]
}

/// Returns a `conv2d` (`n=1`, one group, no dilation, every output reads some input) that reads its
/// input in place from channel blocks of 2 and writes channel blocks of 4. Rows and columns that
/// read fewer taps because of padding are peeled into separate nests.
pub fn peeled_conv(text: &str) -> Program {
    use LoopKind::{Parallel, Serial, Vectorized};
    let workload: Workload = text.parse().unwrap();
    let Some(&conv) = workload.sizes::<Conv2d>() else { panic!("{text} is no conv2d") };
    let [sh, sw] = conv.stride.map(|s| s as i64);
    let [ph, pw] = conv.pad.map(|p| p as i64);
    let blocked = Layout::ChannelBlocked;
    let mut p = Builder::new(&workload, &conv_axes(&workload), [blocked(2), blocked(4)]);
    let acc = p.buffer("acc", Role::Accumulator, Scope::Register, &[4]);
    let (input, weight, output) = (p.role(Role::Operand(0)), p.role(Role::Operand(1)), p.role(Role::Output));
    let names = ["ob", "y", "x", "cb", "cl", "kh", "kw", "v"];
    let [ob, y, x, cb, cl, kh, kw, v] = names.map(|name| p.var(name));
    let var = Affine::var;
    let [oh, ow] = conv.output_hw();

    let mut nests = Vec::new();
    for [y0, rows, kh0, taps_h] in peel(conv.h, oh, conv.kh, conv.stride[0], conv.pad[0]) {
        for [x0, cols, kw0, taps_w] in peel(conv.w, ow, conv.kw, conv.stride[1], conv.pad[1]) {
            let (row, col) = (var(y) + y0 as i64, var(x) + x0 as i64);
            let (tap_h, tap_w) = (var(kh) + kh0 as i64, var(kw) + kw0 as i64);
            let o = var(ob) * 4 + var(v);
            let c = var(cb) * 2 + var(cl);
            let sum = access(acc, &[var(v)]);
            let lanes = |body| repeat(Vectorized, v, 4, vec![body]);
            let in_row = row.clone() * sh + tap_h.clone() + -ph;
            let in_col = col.clone() * sw + tap_w.clone() + -pw;
            let product = multiply_add(
                sum.clone(),
                load(input, &[number(0), var(cb), in_row, in_col, var(cl)]),
                load(weight, &[o.clone(), c.clone(), tap_h.clone(), tap_w.clone()]),
                &[number(0), o.clone(), row.clone(), col.clone(), c, tap_h, tap_w],
            );
            let taps = repeat(Serial, kh, taps_h, vec![repeat(Serial, kw, taps_w, vec![lanes(product)])]);
            let sums = repeat(Serial, cb, conv.c / 2, vec![repeat(Serial, cl, 2, vec![taps])]);
            let out = [number(0), var(ob), row, col, var(v)];
            let end = p.epilogue(Expr::Load(sum.clone()), o, &out);
            let body = vec![lanes(assign(sum, Expr::Const(0.0))), sums, lanes(assign(access(output, &out), end))];
            let tile = Node::Alloc { buffer: acc, body };
            nests.push(repeat(Serial, y, rows, vec![repeat(Serial, x, cols, vec![tile])]));
        }
    }
    let compute = vec![repeat(Parallel, ob, conv.o / 4, nests)];
    p.stage("compute", When::EveryRun, compute);
    p.0
}

/// Returns a `conv2d` (`n=1`, one group, no dilation) that first copies its input to a zero-padded
/// buffer, and accumulates in the output.
pub fn padded_conv(text: &str) -> Program {
    use LoopKind::{Parallel, Serial};
    let workload: Workload = text.parse().unwrap();
    let Some(&conv) = workload.sizes::<Conv2d>() else { panic!("{text} is no conv2d") };
    let [ph, pw] = conv.pad;
    let mut p = Builder::new(&workload, &conv_axes(&workload), [Layout::Plain; 2]);
    let (height, width) = (conv.h + 2 * ph, conv.w + 2 * pw);
    let padded = p.buffer("input_padded", Role::Packed, Scope::Global, &[conv.c, height, width]);
    let (input, weight, output) = (p.role(Role::Operand(0)), p.role(Role::Operand(1)), p.role(Role::Output));
    let [o, c, y, x, kh, kw] = ["o", "c", "y", "x", "kh", "kw"].map(|name| p.var(name));
    let var = Affine::var;
    let [oh, ow] = conv.output_hw();

    let plane = |rows, cols, body| repeat(Serial, y, rows, vec![repeat(Serial, x, cols, vec![body])]);
    let clear = assign(access(padded, &[var(c), var(y), var(x)]), Expr::Const(0.0));
    let copy = assign(
        access(padded, &[var(c), var(y) + ph as i64, var(x) + pw as i64]),
        load(input, &[number(0), var(c), var(y), var(x)]),
    );
    let pad = vec![plane(height, width, clear), plane(conv.h, conv.w, copy)];
    p.stage("pad_input", When::EveryRun, vec![repeat(Parallel, c, conv.c, pad)]);

    let out = [number(0), var(o), var(y), var(x)];
    let row = var(y) * conv.stride[0] as i64 + var(kh);
    let col = var(x) * conv.stride[1] as i64 + var(kw);
    let product = multiply_add(
        access(output, &out),
        load(padded, &[var(c), row, col]),
        load(weight, &[var(o), var(c), var(kh), var(kw)]),
        &[number(0), var(o), var(y), var(x), var(c), var(kh), var(kw)],
    );
    let taps = repeat(Serial, kh, conv.kh, vec![repeat(Serial, kw, conv.kw, vec![product])]);
    let sums = repeat(Serial, c, conv.c, vec![plane(oh, ow, taps)]);
    let end = assign(access(output, &out), p.epilogue(load(output, &out), var(o), &out));
    let body = vec![plane(oh, ow, assign(access(output, &out), Expr::Const(0.0))), sums, plane(oh, ow, end)];
    p.stage("compute", When::EveryRun, vec![repeat(Parallel, o, conv.o, body)]);
    p.0
}
