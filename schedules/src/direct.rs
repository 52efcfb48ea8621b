//! The direct sketch on a CPU: a register tile inside cache tiles.
//!
//! ```text
//! parallel n, g, first loops of `order`             (cache tiles)
//!   loops of `order`                                (cache tiles, reduction chunks among them)
//!     [copy of the data tile]                       data=tile
//!       loops of `order.inner`                      (register tiles)
//!         acc = 0 or the partial sums in the output
//!         loops of `order.reduce`                   (unrolled up to `unroll` steps)
//!           unrolled register tile, one vectorised axis: acc += data * weight
//!         output = act(acc + bias + residual) or the partial sums
//! ```
//!
//! [`Direct`] is the typed form of a config of this sketch; [`knobs`] lists what may be chosen.

use crate::config::{Config, Value};
use crate::contraction::{AxisId, Contraction, Operand, lane_name, with_layout};
use crate::lower::LowerError;
use crate::program::Layout;
use crate::space::{Knob, Sketch};
use crate::target::CpuTarget;
use crate::workload::{Operator, Workload};

/// Name of the sketch in configs.
pub const SKETCH: &str = "direct";

/// Straight-line multiply-accumulates of one loop body beyond which compilers are slow and the instruction cache overflows.
const MAX_BODY: usize = 1024;
/// Tiles that may be peeled off one end of an axis for padding.
const MAX_PEELED: i64 = 4;

/// How the data operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataMode {
    /// From the input itself; tiles that touch padding are peeled into nests of their own.
    InPlace,
    /// From a padded copy of the whole input, made by a stage of its own.
    Copy,
    /// From a padded copy of what the cache tile needs, made by each thread as it goes.
    Tile,
}

/// A loop over tiles of one axis: `tile` elements of the axis each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileLoop {
    /// The axis.
    pub axis: AxisId,
    /// Elements per iteration; the last may be smaller.
    pub tile: usize,
}

/// The typed form of a config.
#[derive(Clone, Debug)]
pub struct Direct {
    /// The contraction with channel axes split as the layouts need; operands are in their plain layouts.
    pub contraction: Contraction,
    /// Data operand as the caller gives it.
    pub input: Operand,
    /// Its layout.
    pub in_layout: Layout,
    /// Data operand as the compute nest reads it.
    pub data: Operand,
    /// Output operand in its layout.
    pub output: Operand,
    /// Its layout.
    pub out_layout: Layout,
    /// How the data operand is read.
    pub data_mode: DataMode,
    /// True if weights are copied into the register tile's layout.
    pub packed_weights: bool,
    /// The vectorised axis.
    pub vector: AxisId,
    /// Loops of one element around everything, parallel.
    pub batch: Vec<AxisId>,
    /// Cache-level loops, outermost first.
    pub cache: Vec<TileLoop>,
    /// How many of the first cache-level loops are parallel.
    pub parallel: usize,
    /// Loops over register tiles within a cache tile, outermost first.
    pub inner: Vec<TileLoop>,
    /// Reduction loops within a register tile, outermost first.
    pub reduce: Vec<AxisId>,
    /// Most reduction steps in one straight-line body.
    pub unroll: usize,
}

/// The axes of a workload as the knobs name them.
struct Roles {
    /// Spatial axes that are tiled.
    spatial: Vec<&'static str>,
    /// Spatial axes that are not: one element a loop, outermost.
    batch: Vec<&'static str>,
    /// The reduction axis that is tiled.
    reduce: &'static str,
    /// The axis of output channels (or columns), which vectors may run along.
    channel: &'static str,
    /// The other axis that vectors may run along.
    width: Option<&'static str>,
}

impl Roles {
    fn of(workload: &Workload) -> Self {
        match workload.op {
            Operator::Conv2d(c) if c.groups > 1 && c.o == c.groups => {
                Self { spatial: vec!["g", "oh", "ow"], batch: vec!["n"], reduce: "c", channel: "g", width: Some("ow") }
            }
            Operator::Conv2d(_) => Self {
                spatial: vec!["o", "oh", "ow"],
                batch: vec!["n", "g"],
                reduce: "c",
                channel: "o",
                width: Some("ow"),
            },
            Operator::Matmul(_) => {
                Self { spatial: vec!["m", "n"], batch: vec!["b"], reduce: "k", channel: "n", width: None }
            }
        }
    }
}

fn extent(contraction: &Contraction, name: &str) -> usize {
    contraction.axis(name).map_or(1, |a| contraction.axes[a].extent)
}

/// Channel counts that decide which blocked layouts fit: `(input per group, output per group, input = output channel)`.
fn blockable(workload: &Workload, block: usize) -> (bool, bool) {
    match workload.op {
        Operator::Conv2d(c) => {
            let depthwise = c.groups > 1 && c.o == c.groups && c.c == c.groups;
            let input = (depthwise && c.c % block == 0) || (c.c / c.groups) % block == 0;
            let output = (depthwise && c.o % block == 0) || (c.o / c.groups) % block == 0;
            (input, output)
        }
        Operator::Matmul(_) => (false, false),
    }
}

/// The block of channel-blocked layouts: one vector on AVX-512, at least 8.
fn block_size(target: &CpuTarget) -> usize {
    target.lanes().max(8)
}

/// Every knob of the sketch with its values, for one workload and target.
pub fn knobs(workload: &Workload, target: &CpuTarget) -> Vec<Knob> {
    let contraction = Contraction::of(workload);
    let roles = Roles::of(workload);
    let (input_blocks, output_blocks) = blockable(workload, block_size(target));
    let layouts = |blocks: bool| {
        if blocks { &["plain", "blocked"][..] } else { &["plain"][..] }
    };
    let mut knobs = Vec::new();
    if let Operator::Conv2d(_) = workload.op {
        knobs.push(Knob::choice("layout.in", layouts(input_blocks)));
        knobs.push(Knob::choice("layout.data", layouts(input_blocks)));
        knobs.push(Knob::choice("layout.out", layouts(output_blocks)));
    }
    let copies = contraction.is_padded() || input_blocks;
    knobs.push(Knob::choice("data", if copies { &["inplace", "copy", "tile"] } else { &["inplace", "tile"] }));
    knobs.push(Knob::choice("weights", &["packed", "inplace"]));
    let vectors: Vec<&str> = [Some(roles.channel), roles.width].into_iter().flatten().collect();
    knobs.push(Knob::choice("vector", &vectors));
    for name in &roles.spatial {
        let vector = vectors.contains(name);
        let values = spatial_tiles(extent(&contraction, name), target.lanes(), vector);
        knobs.push(Knob::tile(&format!("tile.{name}"), values));
    }
    knobs.push(Knob::tile(&format!("tile.{}", roles.reduce), reduce_tiles(extent(&contraction, roles.reduce))));
    let present = |names: Vec<&'static str>| -> Vec<&'static str> {
        names.into_iter().filter(|n| extent(&contraction, n) > 1).collect()
    };
    let spatial = present(roles.spatial.clone());
    let cache: Vec<&str> = spatial.iter().copied().chain(present(vec![roles.reduce])).collect();
    knobs.push(Knob::order("order", &cache));
    knobs.push(Knob::order("order.inner", &spatial));
    let mut reduce = present(vec![roles.reduce, "kh", "kw"]);
    if input_blocks && roles.channel != "g" {
        reduce.push("ci");
    }
    knobs.push(Knob::order("order.reduce", &reduce));
    knobs.push(Knob::choice("unroll", &["1", "2", "4", "8", "16", "32"]));
    let parallel: &[&str] = if target.threads > 1 { &["1", "2", "3"] } else { &["1"] };
    knobs.push(Knob::choice("parallel", &parallel[..parallel.len().min(spatial.len().max(1))]));
    knobs
}

/// `[cache tile, register tile]` values: the cache tile is a multiple of the register tile, or covers the whole axis.
fn spatial_tiles(extent: usize, lanes: usize, vector: bool) -> Vec<Vec<usize>> {
    let mut registers: Vec<usize> = (1..=8).chain([10, 12, 14, 16, 28]).collect();
    if vector {
        registers.extend([1, 2, 3, 4].map(|v| v * lanes));
        registers.extend([extent, extent.div_ceil(2)].into_iter().filter(|&e| e <= 4 * lanes));
    }
    registers.retain(|&r| r <= extent);
    registers.sort_unstable();
    registers.dedup();
    let mut tiles = Vec::new();
    for register in registers {
        let whole = extent.div_ceil(register);
        let counts = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64].into_iter().filter(|&m| m < whole);
        tiles.extend(counts.chain([whole]).map(|m| vec![m * register, register]));
    }
    tiles
}

/// `[chunk]` values of the tiled reduction axis; the last covers it whole.
fn reduce_tiles(extent: usize) -> Vec<Vec<usize>> {
    let chunks = [4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048];
    chunks.into_iter().filter(|&c| c < extent).chain([extent]).map(|c| vec![c]).collect()
}

/// Reads knobs of a config by name and type.
struct Reader<'a>(&'a Config);

impl<'a> Reader<'a> {
    fn get(&self, name: &str) -> Result<&'a Value, LowerError> {
        self.0.knobs.get(name).ok_or_else(|| LowerError::knob(name, "is missing"))
    }

    fn choice(&self, name: &str) -> Result<&'a str, LowerError> {
        match self.get(name)? {
            Value::Choice(word) => Ok(word),
            other => Err(LowerError::knob(name, format!("'{other}' is not a choice"))),
        }
    }

    fn number(&self, name: &str) -> Result<usize, LowerError> {
        let word = self.choice(name)?;
        let number = word.parse().ok().filter(|&n| n > 0 && n <= 4096);
        number.ok_or_else(|| LowerError::knob(name, format!("'{word}' is not a number from 1 to 4096")))
    }

    fn layout(&self, name: &str, block: usize) -> Result<Layout, LowerError> {
        if !self.0.knobs.contains_key(name) {
            return Ok(Layout::Plain);
        }
        match self.choice(name)? {
            "plain" => Ok(Layout::Plain),
            "blocked" => Ok(Layout::ChannelBlocked(block)),
            other => Err(LowerError::knob(name, format!("'{other}' is not plain or blocked"))),
        }
    }

    fn tile<const N: usize>(&self, name: &str) -> Result<[usize; N], LowerError> {
        match self.get(name)? {
            Value::Tile(sizes) if sizes.iter().all(|&s| s > 0 && s <= 1 << 24) => {
                <[usize; N]>::try_from(sizes.as_slice())
                    .map_err(|_| LowerError::knob(name, format!("has {} levels instead of {N}", sizes.len())))
            }
            other => Err(LowerError::knob(name, format!("'{other}' is not a tile"))),
        }
    }

    /// A permutation of `expected`.
    fn order(&self, name: &str, expected: &[&str]) -> Result<Vec<&'a str>, LowerError> {
        let Value::Order(axes) = self.get(name)? else {
            return Err(LowerError::knob(name, "is not an order"));
        };
        let order: Vec<&str> = axes.iter().map(String::as_str).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        let mut wanted = expected.to_vec();
        wanted.sort_unstable();
        if sorted != wanted {
            return Err(LowerError::knob(name, format!("is not an order of {}", expected.join(", "))));
        }
        Ok(order)
    }
}

impl Direct {
    /// The typed form of `config`, or the first knob that is malformed, does not fit the workload, or breaks a limit of the
    /// target.
    pub fn new(workload: &Workload, target: &CpuTarget, config: &Config) -> Result<Self, LowerError> {
        let reader = Reader(config);
        let roles = Roles::of(workload);
        let block = block_size(target);
        let in_layout = reader.layout("layout.in", block)?;
        let data_layout = reader.layout("layout.data", block)?;
        let out_layout = reader.layout("layout.out", block)?;
        let (input_blocks, output_blocks) = blockable(workload, block);
        for (name, layout, fits) in [
            ("layout.in", in_layout, input_blocks),
            ("layout.data", data_layout, input_blocks),
            ("layout.out", out_layout, output_blocks),
        ] {
            if layout != Layout::Plain && !fits {
                return Err(LowerError::knob(name, format!("{block} does not divide the channels")));
            }
        }
        let data_mode = match reader.choice("data")? {
            "inplace" => DataMode::InPlace,
            "copy" => DataMode::Copy,
            "tile" => DataMode::Tile,
            other => {
                return Err(LowerError::knob("data", format!("'{other}' is not inplace, copy or tile")));
            }
        };
        let packed_weights = match reader.choice("weights")? {
            "packed" => true,
            "inplace" => false,
            other => {
                return Err(LowerError::knob("weights", format!("'{other}' is not packed or inplace")));
            }
        };
        let plain = Contraction::of(workload);
        let present = |names: &[&'static str]| -> Vec<&'static str> {
            names.iter().copied().filter(|n| extent(&plain, n) > 1).collect()
        };
        let spatial = present(&roles.spatial);
        let cache_names: Vec<&str> = spatial.iter().copied().chain(present(&[roles.reduce])).collect();
        let cache_order = reader.order("order", &cache_names)?;
        let inner_order = reader.order("order.inner", &spatial)?;
        let mut reduce_names = present(&[roles.reduce, "kh", "kw"]);
        if input_blocks && roles.channel != "g" {
            reduce_names.push("ci");
        }
        let reduce_order = reader.order("order.reduce", &reduce_names)?;

        let mut contraction = plain.clone();
        let reduce_axis = contraction.axis(roles.reduce);
        let channel_axis = contraction.axis(roles.channel);
        let mut in_lane = None;
        let mut out_lane = None;
        let blocked = |layout: Layout| layout != Layout::Plain;
        if roles.channel == "g" && (blocked(in_layout) || blocked(data_layout) || blocked(out_layout)) {
            out_lane = channel_axis.map(|a| contraction.split(a, block));
            in_lane = out_lane;
        } else {
            if blocked(in_layout) || blocked(data_layout) {
                in_lane = reduce_axis.map(|a| contraction.split(a, block));
            }
            if blocked(out_layout) {
                out_lane = channel_axis.map(|a| contraction.split(a, block));
            }
        }
        let axis_of = |name: &str| contraction.axis(name);
        let lane_of = |name: &str| lane_name(name).and_then(axis_of);
        // A tile of a split axis counts elements of the unsplit one in the config, blocks in the loops.
        let scale = |name: &str| {
            if lane_of(name).is_some() { block } else { 1 }
        };
        let mut cache_tiles = Vec::new();
        let mut register_tiles = Vec::new();
        for &name in &spatial {
            let knob = format!("tile.{name}");
            let [cache, register] = reader.tile::<2>(&knob)?;
            let unit = scale(name);
            if register % unit != 0 {
                return Err(LowerError::knob(
                    &knob,
                    format!("register tile {register} is no multiple of the block {unit}"),
                ));
            }
            if cache % register != 0 {
                return Err(LowerError::knob(&knob, format!("{cache} is no multiple of {register}")));
            }
            cache_tiles.push((name, cache / unit));
            register_tiles.push((name, register / unit));
        }
        if let Some(&name) = present(&[roles.reduce]).first() {
            let knob = format!("tile.{name}");
            let [chunk] = reader.tile::<1>(&knob)?;
            let unit = scale(name);
            if chunk % unit != 0 {
                return Err(LowerError::knob(&knob, format!("{chunk} is no multiple of the block {unit}")));
            }
            cache_tiles.push((name, chunk / unit));
        }
        let loops = |order: &[&str], tiles: &[(&str, usize)]| -> Vec<TileLoop> {
            let tile_of = |name: &str| tiles.iter().find(|t| t.0 == name).map_or(1, |t| t.1);
            order
                .iter()
                .filter_map(|name| axis_of(name).map(|axis| (axis, tile_of(name))))
                .map(|(axis, tile)| TileLoop { axis, tile: tile.min(contraction.axes[axis].extent) })
                .collect()
        };
        let vector_name = reader.choice("vector")?;
        if ![Some(roles.channel), roles.width].contains(&Some(vector_name)) {
            return Err(LowerError::knob("vector", format!("'{vector_name}' is not an axis that vectors run along")));
        }
        let vector = lane_of(vector_name).or(axis_of(vector_name));
        let direct = Self {
            input: with_layout(&contraction.data, in_layout, in_lane),
            in_layout,
            data: with_layout(&contraction.data, data_layout, in_lane),
            output: with_layout(&contraction.output, out_layout, out_lane),
            out_layout,
            data_mode,
            packed_weights,
            vector: vector.unwrap_or(0),
            batch: roles.batch.iter().filter_map(|n| axis_of(n)).collect(),
            cache: loops(&cache_order, &cache_tiles),
            parallel: reader.number("parallel")?,
            inner: loops(&inner_order, &register_tiles),
            reduce: reduce_order.iter().filter_map(|n| axis_of(n)).collect(),
            unroll: reader.number("unroll")?,
            contraction,
        };
        direct.check(target, data_layout)?;
        Ok(direct)
    }

    /// Extent of the register tile along a spatial axis (1 for batch axes, the whole block for lanes).
    pub fn register_extent(&self, axis: AxisId) -> usize {
        if let Some(l) = self.inner.iter().find(|l| l.axis == axis) {
            return l.tile;
        }
        let is_lane = !self.batch.contains(&axis) && !self.contraction.axes[axis].reduce;
        if is_lane { self.contraction.axes[axis].extent } else { 1 }
    }

    /// Spatial axes of the register tile with their extents, outermost first, the vectorised one last.
    pub fn register_tile(&self) -> Vec<(AxisId, usize)> {
        let spatial =
            (0..self.contraction.axes.len()).filter(|&a| !self.contraction.axes[a].reduce && a != self.vector);
        let mut tile: Vec<_> = spatial.map(|a| (a, self.register_extent(a))).filter(|t| t.1 > 1).collect();
        tile.push((self.vector, self.register_extent(self.vector)));
        tile
    }

    /// Rules between knobs and limits of the target.
    fn check(&self, target: &CpuTarget, data_layout: Layout) -> Result<(), LowerError> {
        let plain_in = self.in_layout == Layout::Plain;
        let plain_data = data_layout == Layout::Plain;
        if !plain_in && plain_data {
            return Err(LowerError::knob("layout.data", "a blocked input is not copied to a plain layout"));
        }
        match self.data_mode {
            DataMode::InPlace if plain_in != plain_data => {
                return Err(LowerError::knob("layout.data", "differs from layout.in though data is read in place"));
            }
            DataMode::Copy if plain_in == plain_data && !self.contraction.is_padded() => {
                return Err(LowerError::knob("data", "a copy without padding or another layout"));
            }
            _ => {}
        }
        self.check_vector()?;
        self.check_registers(target)?;
        self.check_peeling()?;
        self.check_memory(target)
    }

    /// Along the vector weights and output must have stride 0 or 1 (the output any along packed channels), the data operand
    /// too unless the vector runs along the width.
    fn check_vector(&self) -> Result<(), LowerError> {
        if self.register_extent(self.vector) == 1 {
            return Ok(());
        }
        if !self.packed_weights && ![0, 1].contains(&self.contraction.weight.stride(self.vector)) {
            return Err(LowerError::knob("vector", "the weights are strided along it"));
        }
        let along_width = !self.contraction.weight.uses(self.vector);
        if !along_width && ![0, 1].contains(&self.data.stride(self.vector)) {
            return Err(LowerError::knob("vector", "the data operand is strided along it"));
        }
        if along_width && self.output.stride(self.vector) != 1 {
            return Err(LowerError::knob("vector", "the output is strided along it"));
        }
        if along_width && self.data_mode == DataMode::InPlace && self.contraction.is_padded() {
            return Err(LowerError::knob("data", "vectors along a padded axis need a copy"));
        }
        Ok(())
    }

    /// Register budget and length of the straight-line body.
    fn check_registers(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let pieces = pieces(self.register_extent(self.vector), target.lanes());
        let tile = self.register_tile();
        let product = |uses: &dyn Fn(AxisId) -> bool| -> usize {
            tile.iter().filter(|t| t.0 != self.vector && uses(t.0)).map(|t| t.1).product()
        };
        let accumulators = product(&|_| true) * pieces;
        let weights_are_vectors = self.contraction.weight.uses(self.vector);
        let data_are_vectors = self.data.uses(self.vector);
        let weights = product(&|a| self.contraction.weight.uses(a)) * if weights_are_vectors { pieces } else { 1 };
        let data = product(&|a| self.data.uses(a)) * if data_are_vectors { pieces } else { 1 };
        let needed = accumulators + weights.min(data) + 1;
        let registers = target.isa.vector_registers();
        if needed > registers {
            let reason = format!("the register tile needs {needed} vector registers of {registers}");
            return Err(LowerError::knob("tile", reason));
        }
        let steps = if self.contraction.is_padded() && self.data_mode == DataMode::InPlace {
            let taps = |n: &str| extent(&self.contraction, n);
            self.unroll.max(taps("kh") * taps("kw"))
        } else {
            self.unroll
        };
        if accumulators * steps > MAX_BODY {
            let reason = format!("{} multiply-accumulates in a row exceed {MAX_BODY}", accumulators * steps);
            return Err(LowerError::knob("unroll", reason));
        }
        Ok(())
    }

    /// Peeling must stay small.
    fn check_peeling(&self) -> Result<(), LowerError> {
        if self.data_mode == DataMode::Copy {
            return Ok(());
        }
        for dim in 0..self.contraction.data.shape.len() {
            let (low, high) = self.contraction.data_range(dim);
            let over = (-low).max(high - self.contraction.data.shape[dim] as i64 + 1);
            if over <= 0 {
                continue;
            }
            let index = &self.contraction.data.index[dim];
            let tiles = if self.data_mode == DataMode::InPlace { &self.inner } else { &self.cache };
            for l in tiles {
                let stride = index.coefficient(crate::affine::VarId(l.axis as u32));
                let spatial = !self.contraction.axes[l.axis].reduce;
                if stride > 0 && spatial && over > stride * l.tile as i64 * MAX_PEELED {
                    return Err(LowerError::knob("tile", "too many tiles would be peeled for padding"));
                }
            }
        }
        Ok(())
    }

    /// A copied tile must fit the last-level cache share of a thread.
    fn check_memory(&self, target: &CpuTarget) -> Result<(), LowerError> {
        if self.data_mode == DataMode::Tile {
            let bytes = self.tile_shape().iter().product::<usize>() * 4;
            let limit = (target.l3_bytes / target.cores).max(target.l2_bytes);
            if bytes > limit {
                return Err(LowerError::knob("data", format!("a copied tile of {bytes} bytes exceeds {limit}")));
            }
        }
        Ok(())
    }

    /// Extent of `axis` within one cache tile.
    pub fn cache_extent(&self, axis: AxisId) -> usize {
        if self.batch.contains(&axis) {
            return 1;
        }
        self.cache.iter().find(|l| l.axis == axis).map_or(self.contraction.axes[axis].extent, |l| l.tile)
    }

    /// Shape of the copied data tile: what the largest cache tile reads.
    pub fn tile_shape(&self) -> Vec<usize> {
        self.data
            .index
            .iter()
            .map(|index| {
                let (low, high) = index.range(|v| self.cache_extent(v.0 as usize));
                (high - low + 1) as usize
            })
            .collect()
    }
}

/// Vector registers that hold `extent` elements: whole vectors, then ever smaller powers of two.
pub fn pieces(extent: usize, lanes: usize) -> usize {
    extent / lanes + (extent % lanes).count_ones() as usize
}

/// A fixed rule without measuring: vectors over the output channels (else the width), blocked layouts where they fit, data
/// read in place, weights packed, the largest register tile of up to two vectors by as many columns as the registers hold,
/// rows and channel tiles in parallel, the reduction whole.
pub fn default_config(workload: &Workload, target: &CpuTarget, sketch: &Sketch) -> Config {
    let roles = Roles::of(workload);
    let lanes = target.lanes();
    for channels in [2 * lanes, lanes, 4, 2, 1] {
        for vector in [Some(roles.channel), roles.width].into_iter().flatten() {
            for (layout, data) in DEFAULT_DATA {
                for width in (1..=28).rev() {
                    let words = [("vector", vector), ("data", data), ("layout", layout)];
                    let Some(config) = default_candidate(&roles, sketch, &words, channels, width) else {
                        continue;
                    };
                    if Direct::new(workload, target, &config).is_ok() {
                        return config;
                    }
                }
            }
        }
    }
    sketch.nth(0)
}

/// Layouts and data modes in the order in which the default tries them.
const DEFAULT_DATA: [(&str, &str); 6] = [
    ("blocked", "inplace"),
    ("blocked", "copy"),
    ("blocked", "tile"),
    ("plain", "inplace"),
    ("plain", "copy"),
    ("plain", "tile"),
];

/// The combination with the given words and register tile, if the knobs have it.
fn default_candidate(
    roles: &Roles,
    sketch: &Sketch,
    words: &[(&str, &str)],
    channels: usize,
    width: usize,
) -> Option<Config> {
    sketch.config_of(|knob| {
        let position = |word: &str| knob.values.iter().position(|v| *v == Value::Choice(word.into()));
        let (group, axis) = knob.name.split_once('.').unwrap_or((&knob.name, ""));
        match (group, axis) {
            ("tile", axis) if axis == roles.channel => widest(knob, channels),
            ("tile", "ow" | "m") => whole(knob, width),
            ("tile", axis) if axis == roles.reduce => Some(knob.values.len() - 1),
            ("weights", _) => position("packed"),
            ("unroll", _) => position("4"),
            ("parallel", _) => position("2").or(Some(0)),
            ("layout", _) => position(words[2].1).or(Some(0)),
            (name, _) => match words.iter().find(|w| w.0 == name) {
                Some((_, word)) => position(word),
                None => Some(0),
            },
        }
    })
}

/// The value whose register tile is the largest up to `limit` and whose cache tile is no larger.
fn widest(knob: &Knob, limit: usize) -> Option<usize> {
    let fits = |v: &Value| matches!(v, Value::Tile(t) if t.len() == 2 && t[0] == t[1] && t[1] <= limit);
    knob.values.iter().rposition(fits)
}

/// The value with the given register tile whose cache tile covers the axis; the largest register tile of an axis shorter than 2.
fn whole(knob: &Knob, register: usize) -> Option<usize> {
    knob.values.iter().rposition(|v| matches!(v, Value::Tile(t) if t.len() == 2 && t[1] == register))
}
