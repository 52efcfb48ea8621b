//! What warps do together, and copies that go on meanwhile. CUDA only.

use super::{Writer, element};
use crate::flat_offset;
use autotune_ir::DType;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::plan::TensorBox;
use autotune_ir::program::{Access, BoxCopy, BufferId, Expr, InBounds, Loop, LoopKind, Node, Store, Team, WarpTile};

impl Writer<'_> {
    /// Writes a copy from global to shared memory as one that may be under way; false if it is none that the hardware has.
    pub(super) fn copy_async(&mut self, store: &Store) -> bool {
        let (from, when): (&Access, &[InBounds]) = match &store.value {
            Expr::Load(from) => (from, &[]),
            Expr::Guarded { when, value } => match &**value {
                Expr::Load(from) => (from, when),
                _ => return false,
            },
            _ => return false,
        };
        let contiguous = |access: &Access| self.vector.is_none_or(|v| v.lanes == 1 || self.is_contiguous(access, v));
        let bytes = self.vector.map_or(1, |v| v.lanes) * self.dtype(&store.dst).bytes();
        if ![4, 8, 16].contains(&bytes) || !contiguous(&store.dst) || !contiguous(from) {
            return false;
        }
        let there = self.conditions(when, 0).unwrap_or_else(|| "true".into());
        self.line(&format!("copy_async<{bytes}>({}, {}, {there});", self.address(&store.dst), self.address(from)));
        true
    }

    /// ```text
    /// mma { unrolled s, i, j, .. { acc[i, j, ..] += rows[..] * columns[..] } }
    ///   →  for s { for i { a[i] = ldmatrix(rows) };  for j { b[j] = ldmatrix(columns) };  for i, j { mma(acc[i, j], a[i], b[j]) } }
    /// ```
    pub(super) fn mma(&mut self, body: &[Node]) {
        let Some(tile) = WarpTile::of(body) else {
            self.line("#error \"matrix instructions of another form\"");
            return;
        };
        let [s, i, j, h, .., k] = tile.loops;
        let dtype = self.dtype(tile.rows);
        let (element, word) = (element::type_of(dtype), dtype.word());
        let unit = 16 / dtype.bytes();
        let (rows, columns) = (flat_offset(self.program, tile.rows), flat_offset(self.program, tile.columns));
        let along = |offset: &Affine, var: VarId| offset.coefficient(var);
        let row = along(&rows, h.var) / 8;
        // Where lane 0 begins; the lanes in groups of eight give the addresses of the rows of four matrices of 16-byte rows.
        let rows_start = format!("{} + lane % 16 * {row} + lane / 16 * {unit}", self.start(tile.rows, &tile));
        let column = along(&columns, j.var) / 8;
        let step = along(&columns, k.var);
        let (columns_at, load) = match (tile.columns_are_rows(), dtype) {
            (true, _) => (format!("(lane % 8 + lane / 16 * 8) * {column} + lane / 8 % 2 * {unit}"), "load_matrices"),
            (false, DType::F16 | DType::Bf16) => {
                (format!("lane % 16 * {step} + lane / 16 * 8"), "load_matrices_transposed")
            }
            (false, _) => (format!("lane % 4 * {step} + lane / 4"), ""),
        };
        let columns_start = format!("{} + {columns_at}", self.start(tile.columns, &tile));
        let (is, js) = (i.extent, j.extent);
        let (rows_i, rows_s) = (along(&rows, i.var), along(&rows, s.var));
        let (columns_j, columns_s) = (along(&columns, j.var), along(&columns, s.var));
        let sums = &self.program.buffer(tile.store.dst.buffer).name;
        let mut lines = vec![
            "{".to_string(),
            "  const int lane = threadIdx.x % 32;".into(),
            format!("  const {element} *const rows = {rows_start};"),
            format!("  const {element} *const columns = {columns_start};"),
            "  #pragma unroll".into(),
            format!("  for (int s = 0; s < {}; ++s) {{", s.extent),
            format!("    unsigned a[{is}][4], b[{}][4];", js / 2),
            "    #pragma unroll".into(),
            format!("    for (int i = 0; i < {is}; ++i) load_matrices(a[i], rows + {rows_i}*i + {rows_s}*s);"),
            "    #pragma unroll".into(),
        ];
        if load.is_empty() {
            lines.push(format!("    for (int j = 0; j < {}; ++j)", 2 * js));
            let place = format!("{columns_s}*s + {}*(j % 2) + {columns_j}*(j / 2)", 4 * step);
            lines.push(format!("      b[j / 4][j % 4] = __float_as_uint(columns[{place}]);"));
        } else {
            let place = format!("{}*j + {columns_s}*s", 2 * columns_j);
            lines.push(format!("    for (int j = 0; j < {}; ++j) {load}(b[j], columns + {place});", js / 2));
        }
        if dtype == DType::Tf32 {
            for (name, count) in [("a", 4 * is), ("b", 2 * js)] {
                lines.push("    #pragma unroll".into());
                lines.push(format!(
                    "    for (int i = 0; i < {count}; ++i) {name}[i / 4][i % 4] = to_tf32({name}[i / 4][i % 4]);"
                ));
            }
        }
        lines.extend([
            "    #pragma unroll".into(),
            format!("    for (int i = 0; i < {is}; ++i)"),
            "      #pragma unroll".into(),
            format!("      for (int j = 0; j < {js}; ++j)"),
            format!("        mma_{word}({sums} + 4*({js}*i + j), a[i], b[j / 2] + 2*(j % 2));"),
            "  }".into(),
            "}".into(),
        ]);
        lines.iter().for_each(|line| self.line(line));
    }

    /// ```text
    /// box copy { shared[slot, ..] = matrix[..] }
    ///   →  if (threadIdx.x == 0) copy_box(map, shared + .., column, row, ..)
    /// ```
    pub(super) fn copy_box(&mut self, body: &[Node]) {
        let place = BoxCopy::of(body).and_then(|copy| {
            let one = TensorBox { buffer: copy.from.buffer.0 as usize, shape: copy.shape() };
            Some((self.boxes.iter().position(|known| *known == one)?, copy))
        });
        let Some((map, copy)) = place else {
            self.line("#error \"a copy of a box of another form\"");
            return;
        };
        let to = Access { index: copy.origin(copy.to), ..copy.to.clone() };
        let origin = copy.origin(copy.from);
        let [.., row, column] = &origin[..] else { return };
        let (row, column) = (self.affine(row, 0), self.affine(column, 0));
        let bytes = copy.shape().iter().product::<usize>() * self.dtype(&to).bytes();
        let arrival = format!("&arrivals[issued % {}]", self.slots);
        let (to, by_one) = (self.address(&to), self.by_one());
        self.line(&format!("{by_one}copy_box(&map{map}, {to}, {column}, {row}, {arrival}, {bytes});"));
    }

    /// ```text
    /// mma by warp group { unrolled s, i, j, .. { acc[i, j, ..] += rows[..] * columns[..] } }
    ///   →  for s, i { wgmma(acc[i], rows, columns) };  all but these are awaited
    /// ```
    pub(super) fn group_mma(&mut self, body: &[Node]) {
        let Some(tile) = WarpTile::of(body) else {
            self.line("#error \"matrix instructions of another form\"");
            return;
        };
        let [s, i, ..] = tile.loops;
        let dtype = self.dtype(tile.rows);
        let (rows, columns) = (flat_offset(self.program, tile.rows), flat_offset(self.program, tile.columns));
        let (rows_start, columns_start) = (self.group_start(tile.rows, &tile), self.start(tile.columns, &tile));
        let sums = &self.program.buffer(tile.store.dst.buffer).name;
        // Matrices are named by address, in units of 16 bytes.
        let units = |offset: &Affine, l: &Loop| offset.coefficient(l.var) * dtype.bytes() as i64 / 16;
        let rows_at = format!("rows + {}*i + {}*s", units(&rows, i), units(&rows, s));
        let columns_at = format!("columns + {}*s", units(&columns, s));
        let lines = [
            "{".to_string(),
            format!("  const unsigned long long rows = matrix({rows_start}), columns = matrix({columns_start});"),
            "  begin_products();".into(),
            "  #pragma unroll".into(),
            format!("  for (int s = 0; s < {}; ++s)", s.extent),
            "    #pragma unroll".into(),
            format!("    for (int i = 0; i < {}; ++i)", i.extent),
            format!(
                "      {}({sums} + {}*i, {rows_at}, {columns_at});",
                product_name(dtype, shape(&tile)),
                tile.width() / 2
            ),
            "  end_products();".into(),
            "  await_products<1>();".into(),
            "}".into(),
        ];
        lines.iter().for_each(|line| self.line(line));
    }

    /// [`Self::start`] for the first warp of a group.
    fn group_start(&self, access: &Access, tile: &WarpTile) -> String {
        let first = self.group_warp.map_or_else(
            || access.clone(),
            |var| {
                let index = access.index.iter().map(|index| index.substitute(var, &Affine::default()));
                Access { index: index.collect(), buffer: access.buffer }
            },
        );
        self.start(&first, tile)
    }

    /// Address of the element of an operand where the loops of the tile begin, for lane 0.
    fn start(&self, access: &Access, tile: &WarpTile) -> String {
        let inner = tile.loops.iter().map(|l| l.var).chain(self.lanes.iter().flatten().copied());
        let start =
            inner.fold(flat_offset(self.program, access), |offset, var| offset.substitute(var, &Affine::default()));
        format!("{} + {}", self.program.buffer(access.buffer).name, self.affine(&start, 0))
    }
}

/// The sums to which warp groups add in some nodes, but for loops that run one turn after the other.
pub(super) fn group_sums(nodes: &[Node]) -> Option<BufferId> {
    nodes.iter().find_map(|node| match node {
        Node::Mma { by: Team::WarpGroup, body } => WarpTile::of(body).map(|tile| tile.store.dst.buffer),
        Node::Loop(l) if l.kind == LoopKind::Serial => None,
        node => group_sums(node.body()),
    })
}

/// Columns of an instruction of a warp group, and pairs of them that lie together in its sums.
pub(super) type Shape = [usize; 2];

fn shape(tile: &WarpTile) -> Shape {
    [tile.width(), tile.loops[4].extent]
}

fn product_name(dtype: DType, [width, run]: Shape) -> String {
    format!("group_{}_n{width}x{run}", dtype.word())
}

/// Shapes of the instructions of warp groups, each once.
pub(super) fn shapes(nodes: &[Node]) -> Vec<Shape> {
    let mut found = Vec::new();
    for node in nodes {
        match node {
            Node::Mma { by: Team::WarpGroup, body } => found.extend(WarpTile::of(body).map(|tile| shape(&tile))),
            node => found.extend(shapes(node.body())),
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The function for one instruction of a warp group, which has a register for each sum: for each 8 columns two rows of two. Sums
/// of one row of `run` times 8 columns lie together.
pub(super) fn group_product(dtype: DType, [width, run]: Shape) -> String {
    let (name, word, sums) = (product_name(dtype, [width, run]), dtype.word(), width / 2);
    let list = |text: &dyn Fn(usize) -> String| (0..sums).map(text).collect::<Vec<_>>().join(", ");
    let place = |register: usize| {
        let (eight, row, column) = (register / 4, register / 2 % 2, register % 2);
        (eight / run * 2 + row) * 2 * run + eight % run * 2 + column
    };
    let (registers, operands) = (list(&|i| format!("%{i}")), list(&|i| format!("\"+f\"(sums[{}])", place(i))));
    let instruction = format!("wgmma.mma_async.sync.aligned.m64n{width}k16.f32.{word}.{word}");
    let matrices = "unsigned long long rows, unsigned long long columns";
    format!(
        "static __device__ __forceinline__ void {name}(float *sums, {matrices}) {{\n  \
         asm volatile(\"{{ .reg .pred add; setp.ne.b32 add, 1, 0; {instruction} {{{registers}}}, %{sums}, %{}, add, 1, 1, 0, 0; }}\"\n    \
         : {operands}\n    : \"l\"(rows), \"l\"(columns));\n}}\n",
        sums + 1
    )
}
