//! Matrix instructions of warp groups (`wgmma`).

use std::collections::BTreeSet;

use super::Cuda;
use crate::flat_offset;
use crate::gpu::dialect::Printer;
use crate::gpu::writer::GpuWriter;
use autotune_ir::DType;
use autotune_ir::affine::Affine;
use autotune_ir::instruction::{Fragments, WGMMA};
use autotune_ir::program::{Access, BufferId, Loop, LoopKind, Node};

pub(super) const PRINTER: Printer<Cuda> = Printer {
    instruction: &WGMMA,
    functions: |dtype, bodies| {
        let tiles = bodies.iter().filter_map(|body| Fragments::of(body));
        let shapes: BTreeSet<Shape> = tiles.map(|tile| shape(&tile)).collect();
        functions(dtype, &Vec::from_iter(shapes))
    },
    print: |writer, body| writer.group_mma(body),
};

/// Columns of a warp group instruction, and the number of column pairs that are adjacent in a
/// lane's sums.
type Shape = [usize; 2];

pub(super) fn functions(dtype: DType, shapes: &[Shape]) -> String {
    let products: String = shapes.iter().map(|&shape| group_product(dtype, shape)).collect();
    [include_str!("groups.cu"), &products].concat()
}

impl GpuWriter<'_, Cuda> {
    /// Writes a warp group's product of two matrices in shared memory:
    ///
    /// ```text
    /// mma by warp group { unrolled s, i, j, .. { acc[i, j, ..] += rows[..] * columns[..] } }
    ///   →  for s, i { wgmma(acc[i], rows, columns) };  wait until no earlier ones are pending
    /// ```
    fn group_mma(&mut self, body: &[Node]) {
        let Some(tile) = Fragments::of(body) else {
            self.unsupported("loop nest does not match the matrix instruction");
            return;
        };
        let [s, i, ..] = tile.loops;

        let dtype = self.dtype(tile.rows);
        let (rows, columns) = (flat_offset(self.program, tile.rows), flat_offset(self.program, tile.columns));
        let (rows_start, columns_start) = (self.group_start(tile.rows, &tile), self.start(tile.columns, &tile));
        let sums = &self.program.buffer(tile.store.dst.buffer).name;

        // Matrix descriptors hold addresses in units of 16 bytes.
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
            // The last group of products may still run while the next one is prepared.
            "  await_products<1>();".into(),
            "}".into(),
        ];
        self.lines(lines);
    }

    /// Like [`Self::start`], for the first warp of a group: the four warps pass the same address.
    fn group_start(&self, access: &Access, tile: &Fragments) -> String {
        let first = self.dialect.group_warp.map_or_else(
            || access.clone(),
            |var| {
                let index = access.index.iter().map(|index| index.substitute(var, &Affine::default()));
                Access { index: index.collect(), buffer: access.buffer }
            },
        );
        self.start(&first, tile)
    }

    /// Writes a loop. If warp groups add to sums in it, all their instructions are awaited after
    /// it.
    pub(super) fn serial(&mut self, l: &Loop) {
        let sums = group_sums(&l.body).map(|sums| format!("fence_sums({});", self.program.buffer(sums).name));
        self.lines(&sums);
        self.copying(l);
        if let Some(fence) = sums {
            self.lines(["await_products<0>();", &fence]);
        }
    }
}

/// Returns the sums to which warp groups add in some nodes, outside of nested serial loops.
fn group_sums(nodes: &[Node]) -> Option<BufferId> {
    nodes.iter().find_map(|node| match node {
        Node::Call { instruction, body } if **instruction == WGMMA => {
            Fragments::of(body).map(|tile| tile.store.dst.buffer)
        }
        Node::Loop(l) if l.kind == LoopKind::Serial => None,
        node => group_sums(node.body()),
    })
}

fn shape(tile: &Fragments) -> Shape {
    [tile.width(), tile.loops[4].extent]
}

fn product_name(dtype: DType, [width, run]: Shape) -> String {
    format!("group_{}_n{width}x{run}", dtype.word())
}

/// Returns the function for one warp group instruction.
///
/// A lane has one register for each of its sums: for each 8 columns, two rows of two columns. In
/// memory, the sums of one row of `run` times 8 columns are adjacent.
fn group_product(dtype: DType, [width, run]: Shape) -> String {
    let (name, word, sums) = (product_name(dtype, [width, run]), dtype.word(), width / 2);
    let list = |text: &dyn Fn(usize) -> String| (0..sums).map(text).collect::<Vec<_>>().join(", ");
    // Maps a register of the instruction to the position of its sum in memory.
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
