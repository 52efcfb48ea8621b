//! Programs of the sketches for tensor cores with given knobs, and faults in their pipelines.

use autotune_ir::affine::Affine;
use autotune_ir::analyse::analyse;
use autotune_ir::program::{Access, BinaryOp, Expr, Mbarrier, Node, Scope, Store, WarpRole};
use autotune_ir::{GpuTarget, Program, Target};
use autotune_schedules::gpu::{MMA, WGMMA};
use autotune_schedules::{Config, KnobIndices, KnobValue, KnobValues, ScheduleSpace};
use autotune_workloads::Workload;

pub fn target() -> Target {
    Target::detect("cuda:sm_80", None).unwrap()
}

/// The target of [`group_config`] with few multiprocessors, so that a persistent block has several
/// tiles.
pub fn small_target() -> Target {
    let gpu = GpuTarget::stated("cuda:sm_90").unwrap();
    Target::Gpu(GpuTarget { multiprocessors: 3, ..gpu })
}

/// Returns a config of the sketch for warp groups. The defaults of `knobs` are
/// `tile.m=128x64 tile.n=32x32 stages=3`, without a producer.
pub fn group_config(workload: &Workload, knobs: &str) -> Config {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    with_knobs(least(WGMMA.name, workload, &target), &format!("producer=inline grid=tiles {knobs}"))
}

/// Returns a config of the sketch for warps. The defaults of `knobs` are `tile.m=32x16 stages=3`,
/// without a split.
pub fn config(workload: &Workload, knobs: &str) -> Config {
    with_knobs(least(MMA.name, workload, &target()), knobs)
}

/// Returns a sketch's config with the least cycles by the analysis. The default of a small product
/// may be of another sketch.
fn least(sketch: &str, workload: &Workload, target: &Target) -> Config {
    let space = ScheduleSpace::new(workload, target);
    let own = space.sketches().iter().find(|own| own.name() == sketch).unwrap();
    let cycles = |point: &KnobIndices| {
        let plan = own.sketch.plan(workload, target, point).ok()?;
        Some(analyse(&plan.lower(), target).cycles())
    };
    let (_, point) = own.least(cycles).unwrap();
    let knobs = own.knobs.iter().map(|knob| (knob.name.clone(), point.value(&knob.name).unwrap().clone()));
    Config { sketch: sketch.into(), knobs: knobs.collect() }
}

fn with_knobs(mut config: Config, knobs: &str) -> Config {
    let plain = [("split", "1"), ("raster", "1")].map(|(name, word)| format!("{name}={word}")).join(" ");
    for (name, word) in [&plain, knobs].into_iter().flat_map(str::split_whitespace).filter_map(|k| k.split_once('=')) {
        let tile = || KnobValue::Tile(word.split('x').map(|size| size.parse().unwrap()).collect());
        let value = if name.starts_with("tile") { tile() } else { KnobValue::Choice(word.into()) };
        config.knobs.insert(name.into(), value);
    }
    config
}

fn for_each_list(nodes: &mut Vec<Node>, change: &mut impl FnMut(&mut Vec<Node>)) {
    change(nodes);
    nodes.iter_mut().filter_map(Node::body_mut).for_each(|body| for_each_list(body, change));
}

/// Returns the program with each list of nodes in its compute stage changed.
pub fn broken(program: &Program, mut change: impl FnMut(&mut Vec<Node>)) -> Program {
    let mut broken = program.clone();
    let compute = broken.stages.iter_mut().find(|stage| stage.name == "compute").unwrap();
    for_each_list(&mut compute.body, &mut change);
    assert_ne!(broken, *program);
    broken
}

/// Returns the program with each mbarrier operation changed or removed.
fn with_mbarriers(program: &Program, change: impl Fn(Mbarrier) -> Option<Mbarrier>) -> Program {
    broken(program, |list| {
        let changed = |node: Node| match node {
            Node::Mbarrier(mbarrier) => change(mbarrier).map(Node::Mbarrier),
            node => Some(node),
        };
        *list = std::mem::take(list).into_iter().filter_map(changed).collect();
    })
}

/// Returns programs of specialised warps with a kind of mbarrier operation removed, or one group
/// early.
fn side_faults(program: &Program) -> Vec<(&'static str, Program)> {
    let early = |mbarrier: Mbarrier| match mbarrier {
        Mbarrier::WaitEmpty { pending } => Mbarrier::WaitEmpty { pending: pending + 1 },
        mbarrier => mbarrier,
    };
    let released = |mbarrier: Mbarrier| match mbarrier {
        Mbarrier::ArriveEmpty { pending } => Mbarrier::ArriveEmpty { pending: pending.saturating_sub(1) },
        mbarrier => mbarrier,
    };
    let keep = |mbarrier: Mbarrier, wanted: bool| wanted.then_some(mbarrier);
    vec![
        ("no wait for a group", with_mbarriers(program, |s| keep(s, s != Mbarrier::WaitFull))),
        ("no wait for a release", with_mbarriers(program, |s| keep(s, !matches!(s, Mbarrier::WaitEmpty { .. })))),
        ("no release", with_mbarriers(program, |s| keep(s, !matches!(s, Mbarrier::ArriveEmpty { .. })))),
        ("an early fill", with_mbarriers(program, |s| Some(early(s)))),
        ("an early release", with_mbarriers(program, |s| Some(released(s)))),
    ]
}

/// Returns faulty programs: without the barrier, waiting for one copy group too few, multiplying
/// the next slot, and copying to the slot that is multiplied. With specialised warps, also programs
/// with faulty mbarriers.
pub fn faults(program: &Program) -> Vec<(&'static str, Program)> {
    let stages = program.buffers.iter().find(|buffer| buffer.scope == Scope::Shared).unwrap().shape[0];
    let moved = |by: i64, wanted: bool| {
        broken(program, |list| {
            let multiplies =
                |node: &Node| matches!(node, Node::Call { instruction, .. } if instruction.threads().is_some());
            for node in list {
                if let Node::Unflatten { value, body, digits } = node
                    && digits.len() == 2
                    && digits[1].extent == stages
                    && body.iter().any(multiplies) == wanted
                {
                    value.constant += by;
                }
            }
        })
    };
    let slots = [("the next slot", moved(1, true)), ("a busy slot", moved(1, false))];
    let is_specialised = program.stages.iter().any(|stage| WarpRole::occurs(&stage.body));
    let waits = if is_specialised { side_faults(program) } else { wait_faults(program) };
    waits.into_iter().chain(slots).collect()
}

fn wait_faults(program: &Program) -> Vec<(&'static str, Program)> {
    vec![
        ("no barrier", broken(program, |list| list.retain(|node| *node != Node::Barrier))),
        (
            "an early await",
            broken(program, |list| {
                for node in list {
                    if let Node::AwaitCopies { pending } = node {
                        *pending += 1;
                    }
                }
            }),
        ),
    ]
}

/// Calls `change` on both factors of a multiply-accumulate.
pub fn for_each_factor(store: &mut Store, change: &mut impl FnMut(&mut Access)) {
    if let Expr::Binary(BinaryOp::Mul, factors) = &mut store.value {
        for factor in &mut **factors {
            if let Expr::Load(access) = factor {
                change(access);
            }
        }
    }
}

/// Calls `change` on every number that is split into digits.
pub fn for_each_number(nodes: &mut Vec<Node>, change: &mut impl FnMut(&mut Affine)) {
    for_each_list(nodes, &mut |list| {
        for node in list {
            if let Node::Unflatten { value, .. } = node {
                change(value);
            }
        }
    });
}
