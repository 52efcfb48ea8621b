//! Default schedules on GPUs, chosen without measurements, and the estimates that choose them.

use autotune_ir::Target;
use autotune_ir::analyse::analyse;
use autotune_ir::analyse::gpu::Kernels;
use autotune_schedules::{Config, ScheduleSpace, lower};
use autotune_workloads::Workload;

fn sm_90() -> Target {
    Target::detect("cuda:sm_90", None).unwrap()
}

fn default(text: &str) -> Config {
    ScheduleSpace::new(&text.parse().unwrap(), &sm_90()).default_config()
}

fn kernels(workload: &str, config: &Config) -> Kernels {
    let workload: Workload = workload.parse().unwrap();
    analyse(&lower(&workload, &sm_90(), config).unwrap(), &sm_90()).kernels.unwrap()
}

fn wgmma(knobs: &str) -> Config {
    serde_json::from_str(&format!(r#"{{"sketch":"wgmma","knobs":{{{knobs},"split":"1","weights":"packed"}}}}"#))
        .unwrap()
}

#[test]
fn products_that_leave_tensor_cores_idle_are_computed_by_threads() {
    for dtype in ["f16", "bf16"] {
        for shape in [
            "c=96,h=56,w=56,o=96,k=3,p=1,g=96",
            "c=32,h=112,w=112,o=32,k=3,p=1,g=32",
            "c=3,h=224,w=224,o=64,k=7,s=2,p=3",
        ] {
            let config = default(&format!("conv2d:{shape},dtype={dtype}"));
            assert!(["tiled", "implicit_gemm"].contains(&&*config.sketch), "{shape}: {config}");
        }
        let config = default(&format!("conv2d:c=64,h=56,w=56,o=64,k=3,p=1,dtype={dtype}"));
        assert_eq!(config.sketch, "mma");
    }
    // Only tensor cores support the type.
    assert_eq!(default("conv2d:c=32,h=112,w=112,o=32,k=3,p=1,g=32,dtype=tf32").sketch, "mma");
}

#[test]
fn many_threads_share_a_single_long_row() {
    for n in [1_000_000, 100_000_000] {
        let config = default(&format!("reduce:m=1,n={n}"));
        let threads: usize = config.knobs["threads.row"].to_string().parse().unwrap();
        assert!(threads >= 128, "{config}");
    }
}

#[test]
fn a_stage_takes_as_long_as_its_busiest_block() {
    // There are 16 x 9 tiles for 132 persistent blocks: twelve blocks have two tiles.
    let workload = "matmul:m=2048,n=2048,k=2048,dtype=f16";
    let knobs = |tile: &str, grid: &str, stages: usize| {
        wgmma(&format!(r#"{tile},"grid":"{grid}","stages":"{stages}","producer":"group","raster":"1","tile.k":[64]"#))
    };
    let uneven = kernels(workload, &knobs(r#""tile.m":[128,64],"tile.n":[240,240]"#, "persistent", 3));
    assert!((uneven.tail() - 144.0 / 264.0).abs() < 0.01, "{}", uneven.tail());
    // There are 11 x 12 tiles, one per multiprocessor.
    let even = kernels(workload, &knobs(r#""tile.m":[192,64],"tile.n":[176,176]"#, "tiles", 4));
    assert_eq!(even.tail(), 1.0);
    assert!(even.cycles < 0.8 * uneven.cycles, "{} {}", even.cycles, uneven.cycles);

    for m in [2048, 2560, 3072, 5120] {
        let workload = format!("matmul:m={m},n={m},k={m},dtype=f16");
        let tail = kernels(&workload, &default(&workload)).tail();
        assert!(tail > 0.85, "{workload}: {tail}");
    }
}

#[test]
fn convolutions_of_three_by_three_are_transformed() {
    for shape in ["c=64,h=56,w=56,o=64", "c=128,h=28,w=28,o=128", "c=256,h=14,w=14,o=256", "c=512,h=7,w=7,o=512"] {
        assert_eq!(default(&format!("conv2d:{shape},k=3,p=1,bias,act=relu")).sketch, "winograd", "{shape}");
        let exact = default(&format!("conv2d:{shape},k=3,p=1,bias,act=relu,exact"));
        assert_ne!(exact.sketch, "winograd");
    }
}
