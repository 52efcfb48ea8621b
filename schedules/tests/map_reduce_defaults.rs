//! Default schedules of maps and reductions, without measurements or models.

use autotune_ir::{CpuTarget, Isa, Target};
use autotune_schedules::{KnobValue, ScheduleSpace, lower};
use autotune_workloads::Workload;

#[test]
fn every_thread_has_work_by_default() {
    let few = CpuTarget::generic_avx2(2);
    // The image has fewer channel blocks than the target has threads.
    let many = CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(16) };
    for (text, cpu) in [
        ("pool2d:c=1,h=64,w=64,k=3,s=2,p=1,kind=max", &few),
        ("pool2d:c=64,h=112,w=112,k=3,s=2,p=1,kind=max", &few),
        ("pool2d:c=64,h=112,w=112,k=3,s=2,p=1,kind=max", &many),
        ("pool2d:n=2,c=32,h=112,w=112,k=2,s=2,kind=avg", &many),
        ("reduce:m=1024,n=64,op=sum", &few),
        ("transpose:m=512,n=512", &few),
        ("transpose:m=3,n=50176", &few),
        ("transpose:m=50176,n=3", &few),
        ("transpose:b=3,m=4,n=5000", &few),
        ("matmul:m=4096,n=1,k=4096", &few),
        ("matmul:b=16,m=1,n=1,k=62500", &few),
    ] {
        let (workload, target): (Workload, _) = (text.parse().unwrap(), Target::Cpu(cpu.clone()));
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let program = lower(&workload, &target, &config).unwrap();
        assert!(program.stages[0].tasks() >= 4 * cpu.threads, "{text}\n{config}\n{program}");
    }
}

#[test]
fn vectors_go_along_what_is_contiguous_by_default() {
    let target = Target::Cpu(CpuTarget::generic_avx2(2));
    for (text, axis) in [
        ("reduce:m=1024,n=4096,op=sum", "n"),
        ("reduce:m=1024,n=4096,op=min", "n"),
        ("softmax:m=64,n=100", "n"),
        ("softmax:m=2,n=21,k=4096", "k"),
        ("layer_norm:m=512,n=768", "n"),
        ("group_norm:n=1,c=64,g=32,s=3136", "s"),
        ("local_response_norm:n=1,c=64,s=3136,size=5", "s"),
        ("pool2d:c=64,h=112,w=112,k=3,s=2,p=1,kind=max", "c"),
        ("pool2d:c=63,h=112,w=112,k=3,s=2,p=1,kind=max", "ow"),
        ("resize:c=64,h=7,w=7,s=2,mode=nearest", "c"),
        ("attention:b=12,m=197,n=197,k=64", "d"),
        ("transpose:m=512,n=512", "m"),
        ("transpose:shape=128x12x64,perm=102", "d2"),
        ("transpose:shape=128x12x64,perm=210", "d0"),
        ("matmul:m=4096,n=1,k=4096", "k"),
        ("matmul:m=4096,n=1,k=4096,ta,weights=data", "m"),
        ("matmul:m=1,n=1,k=1000000,weights=data", "k"),
        ("matmul:m=1,n=50257,k=768,tb,weights=data,bias", "k"),
    ] {
        let config = ScheduleSpace::new(&text.parse().unwrap(), &target).default_config();
        assert_eq!(config.knobs["vector"], KnobValue::Choice(axis.into()), "{text}: {config}");
    }
}

/// A matrix that is not packed is read in order: row by row, or a few rows at once.
#[test]
fn products_of_few_rows_or_a_column_read_the_matrix_in_order() {
    let space = |text: &str, threads| {
        ScheduleSpace::new(&text.parse().unwrap(), &Target::Cpu(CpuTarget::generic_avx2(threads)))
    };

    for (text, sketch, is_settled) in [
        ("matmul:m=64,n=1,k=4096", "map_reduce", true),
        ("matmul:m=1,n=1,k=1000,weights=data", "map_reduce", true),
        ("matmul:b=16,m=1,n=1,k=1000", "map_reduce", true),
        ("matmul:m=1,n=5000,k=768,tb,weights=data", "map_reduce", true),
        ("matmul:m=1,n=5000,k=768,weights=data", "direct", true),
        ("matmul:m=6,n=5000,k=768,weights=data,bias", "direct", true),
        ("matmul:m=1,n=5000,k=768", "direct", false),
        ("matmul:m=5000,n=4,k=768", "map_reduce", true),
        ("matmul:m=5000,n=8,k=768,weights=data,bias", "map_reduce", true),
        ("matmul:m=3,n=5000,k=768,tb,weights=data", "map_reduce", true),
        ("matmul:m=3,n=5000,k=768,ta,tb,weights=data", "map_reduce", true),
        ("matmul:m=3,n=5000,k=768,tb", "direct", false),
        ("matmul:m=5000,n=4,k=16", "direct", false),
        ("matmul:m=5000,n=9,k=768", "direct", false),
        ("matmul:m=1,n=64,k=64,weights=data", "direct", false),
        ("matmul:m=9,n=5000,k=768,weights=data", "direct", false),
    ] {
        let space = space(text, 1);
        assert_eq!((&*space.default_config().sketch, space.trusts_default()), (sketch, is_settled), "{text}");
    }

    for (threads, most) in [(1, 5024), (2, 2528)] {
        let config = space("matmul:m=1,n=5000,k=768,weights=data", threads).default_config();
        assert_eq!(config.knobs["tile.n"], KnobValue::Tile(vec![most, 32]), "{config}");
        assert_eq!(config.knobs["tile.k"], KnobValue::Tile(vec![8]), "{config}");
    }
}

/// Transposes have square blocks and a fixed order of the loops around them, without a model.
#[test]
fn transposes_have_square_blocks_by_default() {
    let target = |isa, threads| Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(threads) });
    for (text, isa, threads, [m, n], vector, outermost) in [
        ("transpose:m=512,n=512", Isa::Avx512, 1, [16, 16], "m", "n"),
        ("transpose:m=512,n=512", Isa::Avx2, 2, [8, 8], "m", "n"),
        ("transpose:m=12,n=3000", Isa::Avx512, 1, [8, 16], "m", "n"),
        ("transpose:m=4,n=30000", Isa::Avx2, 1, [4, 8], "m", "m"),
        ("transpose:m=4,n=30000", Isa::Avx2, 2, [4, 8], "m", "n"),
        ("transpose:m=4,n=300", Isa::Avx2, 2, [4, 8], "m", "m"),
        ("transpose:m=3,n=3000", Isa::Avx2, 1, [3, 16], "n", "m"),
        ("transpose:m=512,n=512,dtype=u8", Isa::Avx512, 1, [16, 16], "m", "n"),
        ("transpose:m=512,n=512,dtype=u8", Isa::Avx2, 1, [8, 8], "m", "n"),
        ("transpose:m=512,n=8,dtype=i8", Isa::Avx2, 1, [8, 8], "m", "n"),
    ] {
        let space = ScheduleSpace::new(&text.parse().unwrap(), &target(isa, threads));
        let config = space.default_config();
        assert_eq!(config.knobs["tile.m"], KnobValue::Tile(vec![m]), "{text}: {config}");
        assert_eq!(config.knobs["tile.n"], KnobValue::Tile(vec![n]), "{text}: {config}");
        assert_eq!(config.knobs["vector"], KnobValue::Choice(vector.into()), "{text}: {config}");
        assert!(matches!(&config.knobs["order"], KnobValue::Order(names) if names[0] == outermost), "{text}: {config}");
        assert!(space.trusts_default(), "{text}");
    }
    for text in ["pointwise:m=64,n=64,op=relu", "softmax:m=64,n=64", "pool2d:c=64,h=9,w=9,k=3,s=1,kind=max"] {
        assert!(!ScheduleSpace::new(&text.parse().unwrap(), &target(Isa::Avx2, 1)).trusts_default(), "{text}");
    }
}

#[test]
fn rows_between_what_is_combined_are_added_up_in_the_cache_by_default() {
    let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(1) });
    for (text, tiles) in [
        ("reduce:m=64,n=512,k=512,op=sum", &[("tile.m", 1), ("tile.k", 512)][..]),
        ("reduce:shape=64x128x8x256,axes=02,op=sum", &[("tile.k", 32), ("tile.i", 256)]),
        ("reduce:shape=64x128x64x256,axes=13,op=max", &[("tile.m", 1), ("tile.k", 64)]),
        ("reduce:shape=8x16x8x16,axes=02,op=sum", &[("tile.k", 1), ("tile.i", 16)]),
    ] {
        let config = ScheduleSpace::new(&text.parse().unwrap(), &target).default_config();
        for &(knob, tile) in tiles {
            assert_eq!(config.knobs[knob], KnobValue::Tile(vec![tile]), "{text}: {config}");
        }
    }
}

/// The few other operands of the product are read repeatedly, so that prefetching them gains
/// nothing.
#[test]
fn the_matrix_of_a_product_from_memory_is_prefetched() {
    let cpu = CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(1) };
    let target = Target::Cpu(cpu.clone());
    for (text, matrix) in [
        ("matmul:m=8192,n=1,k=4096", 0),
        ("matmul:m=8192,n=8,k=4096,weights=data", 0),
        ("matmul:m=8,n=8192,k=4096,tb,weights=data", 1),
        ("matmul:m=1,n=8192,k=4096,weights=data", 1),
        ("matmul:m=4,n=8192,k=4096,weights=data", 1),
        ("matmul:m=8,n=8192,k=4096,weights=data", 1),
    ] {
        let workload: Workload = text.parse().unwrap();
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let program = lower(&workload, &target, &config).unwrap().to_string();
        let name = workload.spec().operands().nth(matrix).unwrap().name.clone();
        let mut prefetches = program.lines().filter_map(|line| line.trim().strip_prefix("prefetch ")).peekable();
        assert!(prefetches.peek().is_some(), "{text}\n{config}\n{program}");
        assert!(prefetches.all(|what| what.starts_with(&format!("{name}["))), "{text}\n{config}\n{program}");
    }
    let small = ScheduleSpace::new(&"matmul:m=512,n=4,k=512,weights=data".parse().unwrap(), &target).default_config();
    assert_eq!(small.knobs["prefetch"], KnobValue::Choice("0".into()), "{small}");
}

/// Rows with a power-of-two stride share few ways of the first-level cache.
#[test]
fn tiles_have_no_more_rows_than_the_cache_holds_lines_of() {
    let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(1) });
    for (k, most) in [(1000, 28), (512, 16), (1024, 8), (4096, 8)] {
        let workload: Workload = format!("matmul:m=1024,n=16,k={k}").parse().unwrap();
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let KnobValue::Tile(tile) = &config.knobs["tile.m"] else { panic!("{config}") };
        assert_eq!(tile[1], most, "{config}");
    }
}
