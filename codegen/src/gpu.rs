//! CUDA C and OpenCL C: one printer, two dialects.
//!
//! Each stage becomes a kernel; its parameters are the global buffers, in order. Block and thread loops become the digits of
//! the block's and the thread's number, shared buffers parts of the block's shared memory, register buffers arrays whose
//! every index is a constant once the loops marked for it are unrolled. A vectorised loop becomes accesses of 4 or 2 elements
//! where they are contiguous, aligned and guarded as a whole, else an unrolled loop:
//!
//! ```text
//! vectorized v in 0..4 { data_frag[v] = data_shared[0, k, 4*m.t + v] }
//!   →  const float4 x0 = *(const float4 *)(data_shared + 128*k + 4*m_t);
//!      data_frag[0] = x0.x;  data_frag[1] = x0.y;  data_frag[2] = x0.z;  data_frag[3] = x0.w;
//! ```
//!
//! Values are f32 in registers; elements of 16 bits are widened when they are loaded and rounded when they are stored. In CUDA a
//! store of a [`Node::CopyGroup`] that moves 4, 8 or 16 bytes is a `cp.async`, which writes zeros where its guard does not hold, and
//! a [`Node::Mma`] is made of `ldmatrix` and `mma`. What takes assembly is in functions of the source's beginning, which is left
//! out where `__CUDACC__` is not defined, so that the kernels can be run elsewhere.

use std::collections::HashMap;
use std::fmt::Write;

use crate::flat_offset;
use autotune_ir::DType;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::launch::{Grid, Launch, box_copies, boxes, shared_offsets};
use autotune_ir::plan::KernelPlan;
use autotune_ir::plan::TensorBox;
use autotune_ir::program::{
    Access, Buffer, BufferId, Expr, InBounds, Loop, LoopKind, Node, Program, Scope, Side, Stage, Store, StoreMode, Team,
};
use autotune_ir::target::GpuApi;

mod dialect;
mod element;
mod functions;
mod mma;
mod sides;
mod used;

use dialect::Dialect;
pub use functions::device_functions;
use used::Used;

/// Source of the program's kernels, named and launched as [`KernelPlan::of`] says. A stage that is not for a GPU becomes an
/// `#error`.
///
/// ```
/// use autotune_codegen::gpu;
/// use autotune_ir::{GpuApi, Target};
/// use autotune_schedules::{ScheduleSpace, Workload, lower};
///
/// let workload: Workload = "matmul:m=64,n=64,k=64".parse()?;
/// let target = Target::detect("cuda:sm_90", None)?;
/// let config = ScheduleSpace::new(&workload, &target).default_config();
/// let source = gpu::generate(&lower(&workload, &target, &config)?, GpuApi::Cuda { sm: 90 });
/// assert!(source.contains("__global__ void"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn generate(program: &Program, api: GpuApi) -> String {
    let dialect = Dialect::of(api);
    let mut source = dialect.prelude(program);
    for (stage, plan) in program.stages.iter().zip(&KernelPlan::of(program).stages) {
        match (Grid::of(stage), plan.launch) {
            (Some(grid), Some(launch)) => {
                let mut writer = Writer::new(program, dialect);
                writer.kernel(stage, &plan.symbol, &grid, launch);
                source.push_str(&writer.text);
            }
            _ => {
                let _ = writeln!(source, "#error \"stage {} is not for a GPU\"", stage.name);
            }
        }
    }
    source
}

/// The architecture that CUDA source of [`generate`] is compiled for, for compute capability `sm` (times ten): `sm_90`, or
/// `sm_90a` where it uses what only that has.
pub fn architecture(source: &str, sm: u32) -> String {
    format!("sm_{sm}{}", if source.contains("wgmma") { "a" } else { "" })
}

/// The lanes of a vectorised loop that are being written: `start..start + lanes` of `var`.
#[derive(Clone, Copy)]
struct Vector {
    var: VarId,
    start: usize,
    lanes: usize,
}

struct Writer<'a> {
    program: &'a Program,
    dialect: Dialect,
    text: String,
    depth: usize,
    /// Extents of loops and digits, open or not.
    extents: HashMap<VarId, usize>,
    vector: Option<Vector>,
    /// The two innermost thread loops.
    lanes: [Option<VarId>; 2],
    /// The third.
    group_warp: Option<VarId>,
    /// Threads that the thread loops number.
    block_threads: usize,
    /// The side of the block.
    side: Option<Side>,
    /// True within a group of copies.
    in_group: bool,
    /// What has tensor maps, and the slots that it is copied to: none where copies are not of boxes.
    boxes: Vec<TensorBox>,
    slots: usize,
    next_name: usize,
}

impl<'a> Writer<'a> {
    fn new(program: &'a Program, dialect: Dialect) -> Self {
        let (text, extents) = (String::new(), HashMap::new());
        Self {
            program,
            dialect,
            text,
            depth: 1,
            extents,
            vector: None,
            lanes: [None; 2],
            group_warp: None,
            block_threads: 0,
            side: None,
            in_group: false,
            boxes: Vec::new(),
            slots: 0,
            next_name: 0,
        }
    }

    fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.text.push_str("  ");
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn kernel(&mut self, stage: &Stage, symbol: &str, grid: &Grid, launch: Launch) {
        let used = Used::of(grid.body);
        let buffers = self.program.buffers.iter().enumerate();
        let global = buffers.clone().filter(|(_, b)| b.scope == Scope::Global);
        let parameter = |(i, b): (usize, &Buffer)| {
            let id = BufferId(i as u32);
            self.dialect.parameter(self.program.dtype(id), &b.name, used.stored.contains(&id))
        };
        self.boxes = boxes(stage);
        self.slots =
            box_copies(grid.body).iter().map(|copy| self.program.buffer(copy.to.buffer).shape[0]).max().unwrap_or(0);
        let maps = (0..self.boxes.len()).map(|i| format!("const __grid_constant__ TensorMap map{i}"));
        let parameters: Vec<String> = global.map(parameter).chain(maps).collect();
        let _ = writeln!(self.text, "// stage {}: {} blocks of {} threads", stage.name, launch.blocks, launch.threads);
        self.block_threads = grid.block_threads();
        let sides = launch.threads > self.block_threads;
        let _ =
            writeln!(self.text, "{}", self.dialect.signature(symbol, &parameters.join(", "), launch.threads, sides));
        let shared = shared_offsets(self.program, grid.body);
        if !shared.is_empty() {
            let alignment = if self.boxes.is_empty() { 16 } else { 1024 };
            self.dialect.shared_memory(alignment).iter().for_each(|text| self.line(text));
        }
        let mut start = 0;
        for (id, end) in shared {
            let buffer = &self.program.buffers[id];
            let dtype = self.program.dtype(BufferId(id as u32));
            self.line(&self.dialect.shared_buffer(dtype, &buffer.name, start, buffer.len()));
            start = end;
        }
        if self.slots > 0 {
            self.line(&format!("unsigned long long *const arrivals = (unsigned long long *)(shared + {start});"));
            let (slots, warps) = (self.slots, self.block_threads / 32);
            if sides {
                self.line(&format!("unsigned long long *const releases = arrivals + {slots};"));
                self.line(&format!("begin_arrivals(arrivals, {slots}, releases, {warps});"));
            } else {
                self.line("int issued = 0, awaited = 0;");
                self.line(&format!("begin_arrivals(arrivals, {slots}, 0, 0);"));
            }
        }
        for (_, buffer) in buffers.filter(|(i, _)| used.allocated.contains(&BufferId(*i as u32))) {
            if matches!(buffer.scope, Scope::Register | Scope::Local) {
                self.line(&format!("float {}[{}];", buffer.name, buffer.len()));
            }
        }
        self.numbers(&grid.blocks, self.dialect.block_number(), ("block", false));
        self.numbers(&grid.threads, self.dialect.thread_number(), ("thread", used.groups));
        if let Some(lanes) = grid.threads.last_chunk::<2>() {
            self.lanes = lanes.map(|l| Some(l.var));
        }
        self.group_warp = grid.threads.len().checked_sub(3).map(|at| grid.threads[at].var);
        self.nodes(grid.body);
        self.text.push_str("}\n");
    }

    /// The variables of nested loops by the number of their combination, the innermost fastest. The compiler is told, if it is to
    /// know, that all but the two innermost are the same for all lanes of a warp.
    fn numbers(&mut self, loops: &[&Loop], number: &str, (name, by_warps): (&str, bool)) {
        loops.iter().for_each(|l| {
            self.extents.insert(l.var, l.extent);
        });
        self.line(&format!("int {name} = {number};"));
        for (i, l) in loops.iter().enumerate().rev() {
            let var = self.name(l.var);
            if i == 0 {
                self.line(&format!("const int {var} = {name};"));
            } else {
                self.line(&format!("const int {var} = {name} % {}; {name} /= {};", l.extent, l.extent));
            }
            if by_warps && i + 2 == loops.len() {
                self.line(&format!("{name} = of_warp({name});"));
            }
        }
    }

    fn name(&self, var: VarId) -> String {
        let name = self.program.vars.get(var.0 as usize).map_or("v", |name| name);
        format!("{}_{}", name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"), var.0)
    }

    fn extent(&self, var: VarId) -> usize {
        self.extents.get(&var).copied().unwrap_or(1)
    }

    /// The affine with the vectorised variable at lane `lane`.
    fn at_lane(&self, affine: &Affine, lane: usize) -> Affine {
        match self.vector {
            Some(v) => affine.substitute(v.var, &Affine::constant((v.start + lane) as i64)),
            None => affine.clone(),
        }
    }

    fn affine(&self, affine: &Affine, lane: usize) -> String {
        self.at_lane(affine, lane).display(|v| self.name(v)).to_string()
    }

    fn nodes(&mut self, nodes: &[Node]) {
        nodes.iter().for_each(|node| self.node(node));
    }

    fn block(&mut self, head: &str, body: &[Node]) {
        self.line(&format!("{head} {{"));
        self.depth += 1;
        self.nodes(body);
        self.depth -= 1;
        self.line("}");
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::Loop(l) => self.looped(l),
            Node::Alloc { body, .. } => self.nodes(body),
            Node::Barrier => self.line(self.dialect.barrier()),
            Node::CopyGroup { body } => {
                self.in_group = true;
                self.nodes(body);
                self.in_group = false;
                if self.slots == 0 {
                    self.dialect.end_group().iter().for_each(|text| self.line(text));
                } else {
                    self.line(&format!("{}end_boxes(&arrivals[issued % {}]);", self.by_one(), self.slots));
                    self.line("++issued;");
                }
            }
            Node::AwaitCopies { but } if self.slots > 0 => {
                self.line(&format!("await_boxes(arrivals, {}, awaited, issued - {but});", self.slots));
            }
            Node::AwaitCopies { but } => {
                self.dialect.await_copies(*but).iter().for_each(|text| self.line(text));
            }
            Node::BoxCopy { body } => self.copy_box(body),
            Node::Side { side, body } => self.side(*side, body),
            Node::Signal(signal) => self.signal(*signal),
            Node::Mma { by: Team::Warp, body } => self.mma(body),
            Node::Mma { by: Team::WarpGroup, body } => self.group_mma(body),
            Node::Prefetch { .. } => {}
            Node::Guard { when, body } => match self.conditions(when, 0) {
                Some(text) => self.block(&format!("if ({text})"), body),
                None => self.nodes(body),
            },
            Node::Unflatten { value, digits, body } => {
                self.line("{");
                self.depth += 1;
                let whole = format!("e{}", self.next_name);
                self.next_name += 1;
                self.line(&format!("int {whole} = {};", self.affine(value, 0)));
                for (i, digit) in digits.iter().enumerate().rev() {
                    self.extents.insert(digit.var, digit.extent);
                    let (name, extent) = (self.name(digit.var), digit.extent);
                    if i == 0 {
                        self.line(&format!("const int {name} = {whole};"));
                    } else {
                        self.line(&format!("const int {name} = {whole} % {extent}; {whole} /= {extent};"));
                    }
                }
                let count: usize = digits.iter().map(|d| d.extent).product();
                let (_, most) = value.range(|v| self.extent(v));
                match digits.first() {
                    Some(first) if most >= count as i64 => {
                        self.block(&format!("if ({} < {})", self.name(first.var), first.extent), body);
                    }
                    _ => self.nodes(body),
                }
                self.depth -= 1;
                self.line("}");
            }
            Node::Store(store) => self.store(store),
        }
    }

    fn looped(&mut self, l: &Loop) {
        self.extents.insert(l.var, l.extent);
        if l.kind == LoopKind::Vectorized && self.lanes(l, 0) > 1 {
            let mut start = 0;
            while start < l.extent {
                let lanes = self.lanes(l, start);
                self.vector = Some(Vector { var: l.var, start, lanes });
                self.nodes(&l.body);
                start += lanes;
            }
            self.vector = None;
            return;
        }
        let sums = (l.kind == LoopKind::Serial).then(|| mma::group_sums(&l.body)).flatten();
        let sums = sums.map(|sums| self.program.buffer(sums).name.clone());
        if let Some(sums) = &sums {
            self.line(&format!("fence_sums({sums});"));
        }
        if matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized) {
            self.line("#pragma unroll");
        } else {
            self.line("#pragma unroll 1");
        }
        let name = self.name(l.var);
        self.block(&format!("for (int {name} = 0; {name} < {}; ++{name})", l.extent), &l.body);
        if let Some(sums) = sums {
            self.line("await_products<0>();");
            self.line(&format!("fence_sums({sums});"));
        }
    }

    /// Lanes that are written at once from `start` on: as many as some access takes and all conditions have in common.
    fn lanes(&self, l: &Loop, start: usize) -> usize {
        let used = Used::of(&l.body);
        let fits = |&lanes: &usize| {
            let vector = Vector { var: l.var, start, lanes };
            start + lanes <= l.extent
                && used.accesses.iter().any(|access| self.is_contiguous(access, vector))
                && used.conditions.iter().all(|condition| self.is_uniform(condition, vector))
        };
        [8, 4, 2].into_iter().find(fits).unwrap_or(1)
    }

    /// True if the lanes access neighbouring elements of memory, 16 bytes at most, the first of them aligned.
    fn is_contiguous(&self, access: &Access, vector: Vector) -> bool {
        let in_memory = matches!(self.program.buffer(access.buffer).scope, Scope::Global | Scope::Shared);
        let fits = vector.lanes * self.program.dtype(access.buffer).bytes() <= 16;
        let offset = flat_offset(self.program, access);
        in_memory && fits && offset.coefficient(vector.var) == 1 && self.starts_aligned(&offset, vector)
    }

    /// True if the first lane's value is a multiple of the number of lanes.
    fn starts_aligned(&self, affine: &Affine, vector: Vector) -> bool {
        let first = affine.substitute(vector.var, &Affine::constant(vector.start as i64));
        let lanes = vector.lanes as i64;
        first.constant % lanes == 0 && first.terms.iter().all(|&(v, c)| c % lanes == 0 || self.extent(v) == 1)
    }

    /// True if the condition holds for all lanes or for none.
    fn is_uniform(&self, condition: &InBounds, vector: Vector) -> bool {
        match condition.index.coefficient(vector.var) {
            0 => true,
            1 => self.starts_aligned(&condition.index, vector) && condition.extent.is_multiple_of(vector.lanes),
            _ => false,
        }
    }

    /// The conditions in C, without what always holds; `None` if that is all.
    fn conditions(&self, when: &[InBounds], lane: usize) -> Option<String> {
        let texts: Vec<String> = when.iter().filter_map(|c| self.condition(c, lane)).collect();
        (!texts.is_empty()).then(|| texts.join(" && "))
    }

    fn condition(&self, condition: &InBounds, lane: usize) -> Option<String> {
        let index = self.at_lane(&condition.index, lane);
        let (low, high) = index.range(|v| self.extent(v));
        let (text, extent) = (self.affine(&index, 0), condition.extent);
        match (low < 0, high >= extent as i64) {
            (false, false) => None,
            (false, true) => Some(format!("{text} < {extent}")),
            // A negative index is a large number without sign.
            (true, _) => Some(format!("(unsigned)({text}) < {extent}u")),
        }
    }

    fn store(&mut self, store: &Store) {
        if self.in_group && self.copy_async(store) {
            return;
        }
        let lanes = self.vector.map_or(1, |v| v.lanes);
        let values = self.expr(&store.value, lanes);
        let accumulate = store.mode == StoreMode::Accumulate;
        let dtype = self.dtype(&store.dst);
        let vector = self.vector.filter(|&v| v.lanes > 1 && !accumulate && self.is_contiguous(&store.dst, v));
        if vector.is_some() {
            let pointer = self.vector_pointer(&store.dst, lanes, true);
            self.line(&format!("{pointer} = {};", self.dialect.vector(dtype, &values)));
            return;
        }
        for (lane, value) in values.iter().enumerate() {
            let element = self.element(&store.dst, lane);
            let value = match accumulate {
                true => format!("{} + {value}", element::widened(dtype, &element)),
                false => value.clone(),
            };
            self.line(&format!("{element} = {};", element::narrowed(dtype, &value)));
        }
    }

    /// Type of what an access finds; in registers there are f32 only.
    fn dtype(&self, access: &Access) -> DType {
        match self.program.buffer(access.buffer).scope {
            Scope::Global | Scope::Shared => self.program.dtype(access.buffer),
            Scope::Local | Scope::Register => DType::F32,
        }
    }

    fn element(&self, access: &Access, lane: usize) -> String {
        let offset = flat_offset(self.program, access);
        format!("{}[{}]", self.program.buffer(access.buffer).name, self.affine(&offset, lane))
    }

    /// Address of the first lane's element.
    fn address(&self, access: &Access) -> String {
        let offset = self.affine(&flat_offset(self.program, access), 0);
        format!("{} + {offset}", self.program.buffer(access.buffer).name)
    }

    /// The elements of all lanes as one vector in memory.
    fn vector_pointer(&self, access: &Access, lanes: usize, stored: bool) -> String {
        let scope = self.program.buffer(access.buffer).scope;
        let vector = self.dialect.vector_pointer(self.dtype(access), lanes, scope, stored);
        format!("*({vector})({})", self.address(access))
    }

    /// The value of each lane.
    fn expr(&mut self, expr: &Expr, lanes: usize) -> Vec<String> {
        match expr {
            Expr::Const(value) => vec![format!("{value:?}f"); lanes],
            Expr::Load(access) => self.load(access, lanes, None),
            Expr::Add(of) => self.binary(of, lanes, |a, b| format!("({a} + {b})")),
            Expr::Mul(of) => self.binary(of, lanes, |a, b| format!("({a} * {b})")),
            Expr::Max(of) => self.binary(of, lanes, |a, b| format!("max1({a}, {b})")),
            Expr::Guarded { when, value } => {
                if let (Expr::Load(access), Some(when)) = (&**value, self.conditions(when, 0))
                    && self.vector.is_some_and(|v| self.is_contiguous(access, v))
                {
                    return self.load(access, lanes, Some(when));
                }
                let values = self.expr(value, lanes);
                let guarded = values.into_iter().enumerate().map(|(lane, value)| match self.conditions(when, lane) {
                    Some(when) => format!("({when} ? {value} : 0.0f)"),
                    None => value,
                });
                guarded.collect()
            }
        }
    }

    fn binary(&mut self, [a, b]: &[Expr; 2], lanes: usize, text: impl Fn(String, String) -> String) -> Vec<String> {
        let (a, b) = (self.expr(a, lanes), self.expr(b, lanes));
        a.into_iter().zip(b).map(|(a, b)| text(a, b)).collect()
    }

    /// The elements of all lanes; where they are contiguous they are loaded at once, into a name.
    fn load(&mut self, access: &Access, lanes: usize, when: Option<String>) -> Vec<String> {
        let dtype = self.dtype(access);
        if !self.vector.is_some_and(|v| v.lanes > 1 && self.is_contiguous(access, v)) {
            return (0..lanes).map(|lane| element::widened(dtype, &self.element(access, lane))).collect();
        }
        let name = format!("x{}", self.next_name);
        self.next_name += 1;
        let mut value = self.vector_pointer(access, lanes, false);
        if let Some(when) = when {
            value = format!("({when}) ? {value} : {}", self.dialect.vector(dtype, &vec!["0.0f".to_string(); lanes]));
        }
        self.line(&format!("const {} {name} = {value};", element::vector_type(dtype, lanes)));
        (0..lanes).map(|lane| element::lane(dtype, &name, lanes, lane)).collect()
    }
}
